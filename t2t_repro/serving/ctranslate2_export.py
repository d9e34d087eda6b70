"""A CTranslate2 model, for CPUs and C++: the same weights under CTranslate2's names, and the vocabulary beside them.

What CTranslate2 has no part for becomes weights that amount to the same: where d_k and d_v differ, the narrower is
filled up with zeros, and the target-space embedding goes into the table of source positions.

Shapes: D width, H heads, d_k and d_v a head's channels.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from t2t_repro.data.vocabulary import EOS_ID, Vocabulary
from t2t_repro.errors import UserError, unknown
from t2t_repro.hparam import HParams
from t2t_repro.model_folder import ModelFolder
from t2t_repro.serving.versions import new_version

POSITIONS = 2048
"""Rows of the tables of positions, at least: the most tokens of a source or of an output. CTranslate2 refuses more."""
TOKENIZER = "sentencepiece.model"
"""The vocabulary's name in the folder."""
LEAST_VERSION = (4, 7)
"""Of ctranslate2: the first whose encoder takes heads of any width."""
BFLOAT16 = {"bfloat16": "float32", "int8_bfloat16": "int8_float32"}
"""Quantizations for which CTranslate2's own writing needs PyTorch; what it writes without."""


def export_ctranslate2(
    folder: ModelFolder, checkpoint: str, export_dir: str | Path, quantization: str = "float32"
) -> Path:
    """Writes a CTranslate2 model to a new numbered folder under `export_dir`.

    It is written beside and renamed, so that a server never sees half of one.

    Args:
        checkpoint: see `ModelFolder.checkpoint`.
        quantization: how the weights are kept: "float32", "int8", or another one that CTranslate2 has.

    Returns:
        The new folder, numbered one higher than the highest there, from 1.

    Raises:
        UserError: see `refuse_impossible`; or the checkpoint does not fit, the disk is full or the folder cannot be
            written.
    """
    refuse_impossible(folder.hparams, quantization)
    spec = specification(folder.model(checkpoint), folder.vocabulary)
    spec.validate()
    spec.optimize(BFLOAT16.get(quantization, quantization))
    if quantization in BFLOAT16:
        _to_bfloat16(spec)
    with new_version(export_dir) as (beside, target):
        spec.save(str(beside))
        (beside / TOKENIZER).write_bytes(folder.vocabulary.model)
    return target


def refuse_impossible(hparams: HParams, quantization: str) -> None:
    """Raises UserError where CTranslate2 is missing or too old, or has no such quantization or model."""
    cure = 'pip install "t2t_repro[ctranslate2]"'
    try:
        import ctranslate2
        from ctranslate2.specs import model_spec
    except ImportError as error:
        raise UserError(f"--format=ctranslate2 needs the package ctranslate2 ({error}); {cure}") from None
    if tuple(map(int, ctranslate2.__version__.split(".")[:2])) < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise UserError(f"--format=ctranslate2 needs ctranslate2 {least}, not {ctranslate2.__version__}; {cure}")
    if quantization not in model_spec.ACCEPTED_MODEL_TYPES:
        raise unknown("--quantization", quantization, model_spec.ACCEPTED_MODEL_TYPES)
    cure = "leave out --format=ctranslate2"
    if hparams.model != "transformer":
        raise UserError(f"model={hparams.model}: of all models CTranslate2 gets only transformer here; {cure}")
    if hparams.self_attention_neighborhood:
        raise UserError(
            f"self_attention_neighborhood={hparams.self_attention_neighborhood}: CTranslate2 has no self-attention "
            f"that is restricted so; {cure}"
        )


def specification(model: Any, vocabulary: Vocabulary) -> Any:
    """The ctranslate2.specs.TransformerSpec that computes what `model` computes.

    Args:
        model: a `Transformer`.
    """
    from ctranslate2.specs import TransformerSpec
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec

    hparams: HParams = model.hparams
    head = max(hparams.key_channels, hparams.value_channels) // hparams.num_heads
    sizes: dict[str, Any] = {
        "num_layers": hparams.num_hidden_layers,
        "num_heads": hparams.num_heads,
        "head_dim": head,
        "pre_norm": hparams.norm_before,
    }
    encoder, decoder = TransformerEncoderSpec(**sizes), TransformerDecoderSpec(**sizes)
    decoder.start_from_zero_embedding = True
    encoder.embeddings[0].weight = _array(model.embedding.table)
    decoder.embeddings.weight = _array(model.target_embedding.table)
    decoder.projection.weight = _array(model.softmax.table)
    count = max(POSITIONS, hparams.max_length)
    positions = _array(model.source_position(0, count))[0]
    if hparams.use_target_space_embedding:
        positions += _array(model.target_space)[model.target_space_id]
    encoder.position_encodings.encodings = positions
    decoder.position_encodings.encodings = _array(model.target_position(0, count))[0]
    for layer, into in zip(model.encoder, encoder.layer, strict=True):
        _self_attention(into.self_attention, layer.self_attention, head)
        _feed_forward(into.ffn, layer.feed_forward)
        for residual, part in zip(layer.residuals, (into.self_attention, into.ffn), strict=True):
            _norm(part.layer_norm, residual.norm)
    for layer, into in zip(model.decoder, decoder.layer, strict=True):
        _self_attention(into.self_attention, layer.self_attention, head)
        _cross_attention(into.attention, layer.cross_attention, head)
        _feed_forward(into.ffn, layer.feed_forward)
        for residual, part in zip(layer.residuals, (into.self_attention, into.attention, into.ffn), strict=True):
            _norm(part.layer_norm, residual.norm)
    if hparams.norm_before:
        _norm(encoder.layer_norm, model.encoder_norm)
        _norm(decoder.layer_norm, model.decoder_norm)

    spec = TransformerSpec(encoder, decoder)
    pieces = vocabulary.pieces(range(vocabulary.size))
    spec.register_source_vocabulary(pieces)
    spec.register_target_vocabulary(pieces)
    spec.config.add_source_eos = True
    spec.config.eos_token = pieces[EOS_ID]
    # CTranslate2 wants some token to start from; it embeds it as zeros.
    spec.config.bos_token = spec.config.decoder_start_token = pieces[EOS_ID]
    spec.config.layer_norm_epsilon = hparams.norm_epsilon
    return spec


def _self_attention(into: Any, layer: Any, head: int) -> None:
    cuts = (layer.key_channels, 2 * layer.key_channels)
    q, k, v = np.split(_array(layer.qkv_kernel).T, cuts)
    into.linear[0].weight = np.concatenate([_filled(kernel, layer.num_heads, head) for kernel in (q, k, v)])
    _attention(into, layer, head)


def _cross_attention(into: Any, layer: Any, head: int) -> None:
    k, v = np.split(_array(layer.kv_kernel).T, (layer.key_channels,))
    into.linear[0].weight = _filled(_array(layer.q_kernel).T, layer.num_heads, head)
    into.linear[1].weight = np.concatenate([_filled(kernel, layer.num_heads, head) for kernel in (k, v)])
    _attention(into, layer, head)


def _attention(into: Any, layer: Any, head: int) -> None:
    into.linear[-1].weight = _filled(_array(layer.output_kernel), layer.num_heads, head).T
    into.queries_scale = (layer.key_channels // layer.num_heads) ** -0.5  # CTranslate2's own is that of filled heads


def _filled(rows: np.ndarray, num_heads: int, head: int) -> np.ndarray:
    """Rows [H * d, D] -> [H * head, D], each head's d rows followed by zeros."""
    rows = rows.reshape(num_heads, -1, rows.shape[-1])
    rows = np.pad(rows, ((0, 0), (0, head - rows.shape[1]), (0, 0)))
    return rows.reshape(num_heads * head, -1)


def _feed_forward(into: Any, layer: Any) -> None:
    into.linear_0.weight, into.linear_0.bias = _array(layer.kernel1).T, _array(layer.bias1)
    into.linear_1.weight, into.linear_1.bias = _array(layer.kernel2).T, _array(layer.bias2)


def _norm(into: Any, layer: Any) -> None:
    into.gamma, into.beta = _array(layer.scale), _array(layer.bias)


def _array(weight: Any) -> np.ndarray:
    """A copy: CTranslate2 quantizes in place."""
    from keras import ops

    return np.array(ops.convert_to_tensor(weight).numpy())


def _to_bfloat16(spec: Any) -> None:
    import tensorflow as tf

    for name, variable in spec.variables().items():
        is_weight = not isinstance(variable, str) and not variable.is_scalar() and not name.endswith("_scale")
        if is_weight and variable.dtype == "float32":
            variable.array = variable.array.astype(tf.bfloat16.as_numpy_dtype)
