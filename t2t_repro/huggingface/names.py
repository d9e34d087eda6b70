"""Names of a MarianMT model's weights in transformers, and our names of those in layers, for import
and export.

PyTorch's kernels have the shape [out, in], ours [in, out].
"""

import re
from collections.abc import Iterator

import numpy as np

from t2t_repro.hparam import HParams

SHARED = "model.shared.weight"
ENCODER = "model.encoder.embed_tokens.weight"
DECODER = "model.decoder.embed_tokens.weight"
SOFTMAX = "lm_head.weight"
BIAS = "final_logits_bias"
POSITIONS = {side: f"model.{side}.embed_positions.weight" for side in ("encoder", "decoder")}
KERNELS = (
    (
        "self_attention/qkv",
        "self_attention/qkv_bias",
        "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
        "DD",
    ),
    ("self_attention/output", "self_attention/output_bias", "self_attn.out_proj", "DD"),
    ("memory_attention/q", "memory_attention/q_bias", "encoder_attn.q_proj", "DD"),
    (
        "memory_attention/kv",
        "memory_attention/kv_bias",
        "encoder_attn.k_proj encoder_attn.v_proj",
        "DD",
    ),
    ("memory_attention/output", "memory_attention/output_bias", "encoder_attn.out_proj", "DD"),
    ("feed_forward/kernel1", "feed_forward/bias1", "fc1", "FD"),
    ("feed_forward/kernel2", "feed_forward/bias2", "fc2", "DF"),
)
"""For each kernel in a layer: our names of it and of its bias, the modules in transformers, and its
sizes there.
"""
WRITERS = r"(shared|embed_tokens|embed_positions|lm_head|out_proj|fc2|_layer_norm)\.(weight|bias)$"
"""Weights that are multiplied by c, as a regular expression."""
READERS = r"([qkv]_proj|fc1)\.weight$"
"""Weights that are divided by c, as a regular expression."""
NORMS = {"encoder": ("self_attn", "final"), "decoder": ("self_attn", "encoder_attn", "final")}


def layer_weights(hparams: HParams) -> Iterator[tuple[str, str, list[str], str]]:
    """Yields for each weight of the layers its side, our name, the names in transformers, and the
    sizes of each there.

    If there are several names, the weights lie side by side in ours. Sizes are letters, e.g. "FD":
    D is the model's width, F the inner width of the side's feed-forward networks.
    """
    for side, norms in NORMS.items():
        rows = [row for row in KERNELS if side == "decoder" or "memory" not in row[0]]
        for number, norm in enumerate(norms):
            ours = f"residual_{number}/norm"
            rows.append((f"{ours}/scale", f"{ours}/bias", f"{norm}_layer_norm", "D"))
        for layer in range(getattr(hparams, f"{side}_layers")):
            ours = f"{hparams.model}/{side}/layer_{layer}"
            for kernel, bias, names, sizes in rows:
                modules = [f"model.{side}.layers.{layer}.{name}" for name in names.split()]
                yield side, f"{ours}/{kernel}", [f"{module}.weight" for module in modules], sizes
                yield side, f"{ours}/{bias}", [f"{module}.bias" for module in modules], sizes[0]


def scaled(
    weights: dict[str, np.ndarray], factor: float, decoder_layers: int
) -> dict[str, np.ndarray]:
    """Returns weights that compute the same if the epsilon of layer norm is multiplied by the
    square of a factor.

    The vectors between the layers are multiplied by the factor c: the norm of c * x with c * c *
    epsilon is that of x with epsilon. Kernels that read such a vector are divided by c.
    """
    if factor == 1:
        return weights
    # The last norm is divided by c, because the matrix before the softmax is multiplied by it.
    divided = rf"{READERS}|decoder\.layers\.{decoder_layers - 1}\.final_layer_norm"
    result = dict(weights)
    for name, weight in weights.items():
        if re.search(divided, name):
            result[name] = weight * weight.dtype.type(1 / factor)
        elif re.search(WRITERS, name):
            result[name] = weight * weight.dtype.type(factor)
    return result
