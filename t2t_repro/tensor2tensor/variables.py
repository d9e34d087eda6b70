"""Reads the weights of tensor2tensor's Transformer from a TensorFlow 1 checkpoint, and gives them our names.

In shapes, D is the width, V the number of entries in a vocabulary.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from t2t_repro.checkpoints.reader import open_checkpoint
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams

SCOPE = "transformer/"
"""Beginning of the names of all weights of tensor2tensor's model `transformer`."""
UNUSED = {
    "optimizer variables": re.compile(
        r"training/.*|.*/(Adam|Adafactor|Momentum|VAdam|VRMSProp)(_\d+)?|.*beta[12]_power"
    ),
    "averages of losses": re.compile(r"losses_avg/.*"),
    "step counters": re.compile(r"global_step|train_stats/.*"),
}
"""Kinds of variables that are not weights, and patterns of their names."""
EMBEDDING = re.compile(rf"{SCOPE}(symbol_modality_\d+_\d+)/(shared|input_emb|target_emb|softmax)/weights_(\d+)")
"""Pattern of the names of the parts of an embedding: vocabulary, purpose and number of the part."""
ATTENTIONS = {
    "encoder": {"self_attention": "self_attention"},
    "decoder": {"self_attention": "self_attention", "encdec_attention": "memory_attention"},
}
"""For each stack, tensor2tensor's names of the attention sub-layers, and our names."""
RELATIVE = "dot_product_attention_relative/relative_positions"
"""Scope of the vectors of distances in an attention sub-layer."""


class OldVariables:
    """The weights in checkpoints that tensor2tensor wrote.

    Args:
        paths: the checkpoints, without ".index", at least one. With several, the weights are the means.

    Raises:
        UserError: a checkpoint is missing or damaged.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.path, self.step = paths[-1], 0
        self.unused: Counter[str] = Counter()
        """Number of variables of each kind in `UNUSED`, or "other variables"."""
        dtype = np.float64 if len(paths) > 1 else np.float32  # a sum of many weights needs the precision
        checkpoints = [self._read(path, dtype) for path in paths]
        self._weights = {name: np.mean([other[name] for other in checkpoints], axis=0) for name in checkpoints[0]}

    def _read(self, path: str, dtype: type) -> dict[str, np.ndarray]:
        """Returns the weights in a checkpoint by name. Sets `step` and `unused`."""
        weights: dict[str, np.ndarray] = {}
        self.unused.clear()
        with open_checkpoint(path) as reader:
            for name in sorted(reader.get_variable_to_shape_map()):
                kind = next((kind for kind, pattern in UNUSED.items() if pattern.fullmatch(name)), "")
                if name.startswith(SCOPE) and not kind:
                    weights[name] = np.asarray(reader.get_tensor(name), dtype)
                else:
                    self.unused[kind or "other variables"] += 1
                if name == "global_step":
                    self.step = int(reader.get_tensor(name))
        return weights

    def sizes(self) -> dict[str, Any]:
        """Returns the values of those fields of `HParams` that the weights determine, by name.

        Raises:
            UserError: a weight is missing.
        """
        attention = "body/encoder/layer_0/self_attention/multihead_attention"
        width, keys = self._get(f"{attention}/q/kernel").shape
        values = self._get(f"{attention}/v/kernel").shape[1]
        source, target, softmax = self._embeddings()
        encoder, decoder = (self._layers(stack) for stack in ATTENTIONS)
        sizes = {
            "num_hidden_layers": encoder,
            "num_encoder_layers": 0,
            "num_decoder_layers": decoder if decoder != encoder else 0,
            "hidden_size": width,
            "filter_size": self._get("body/encoder/layer_0/ffn/conv1/kernel").shape[1],
            "attention_key_channels": keys if keys != width else 0,
            "attention_value_channels": values if values != width else 0,
            "norm_before": f"{SCOPE}body/encoder/layer_prepostprocess/layer_norm/layer_norm_scale" in self._weights,
            "use_target_space_embedding": f"{SCOPE}body/target_space_embedding/kernel" in self._weights,
            "shared_embedding_and_softmax_weights": source == target == softmax,
            "shared_embedding": source == target != softmax,
            "self_attention_type": "dot_product",
            "max_relative_position": 0,
        }
        if f"{SCOPE}{attention}/{RELATIVE}_keys/embeddings" in self._weights:
            rows, head_width = self._get(f"{attention}/{RELATIVE}_keys/embeddings").shape
            sizes |= {
                "self_attention_type": "dot_product_relative",
                "max_relative_position": rows // 2,
                "num_heads": keys // head_width,
            }
        if f"{SCOPE}body/inputs_positional_embedding" in self._weights:
            sizes |= {"pos": "emb", "max_length": len(self._get("body/inputs_positional_embedding"))}
        return sizes

    def vocab_sizes(self) -> tuple[int, int]:
        """Returns the numbers of entries in the vocabularies of sources and targets."""
        source, target, _ = self._embeddings()
        return len(self._embedding(source)), len(self._embedding(target))

    def weights(self, hparams: HParams) -> dict[str, np.ndarray]:
        """Returns the weights of a `Transformer` with these hparams, float32, by the paths of its variables.

        Raises:
            UserError: a weight is missing, or the checkpoint has a weight that the `Transformer` does not have.
        """
        source, target, softmax = self._embeddings()
        weights = {"embedding/table": self._embedding(source)}
        if not hparams.shared_embedding_and_softmax_weights:
            weights["softmax/table"] = self._embedding(softmax)
            if not hparams.shared_embedding:
                weights["target_embedding/table"] = self._embedding(target)
        used = {name for name in self._weights if EMBEDDING.fullmatch(name)}
        for name, old_names in self._names(hparams):
            weights[name] = _joined([self._get(old_name) for old_name in old_names], axis=-1)
            used |= {SCOPE + old_name for old_name in old_names}
        if others := sorted(self._weights.keys() - used):
            raise UserError(
                f"{self.path}: has {len(others)} weights that no Transformer here has, such as {others[0]}; only "
                "tensor2tensor's model transformer can be imported"
            )
        return {SCOPE + name: value for name, value in weights.items()}

    def _names(self, hparams: HParams) -> Iterator[tuple[str, list[str]]]:
        """Yields our name of each weight, except embeddings, and tensor2tensor's names of the parts that it joins."""
        norm_scope = "layer_prepostprocess" if hparams.norm_before else "layer_postprocess"
        norm = {ours: f"{norm_scope}/layer_norm/layer_norm_{ours}" for ours in ("scale", "bias")}
        if hparams.use_target_space_embedding:
            yield "target_space_embedding", ["body/target_space_embedding/kernel"]
        for stack, attentions in ATTENTIONS.items():
            if hparams.pos == "emb":
                side = "inputs" if stack == "encoder" else "targets"
                yield f"{stack}/position/table", [f"body/{side}_positional_embedding"]
            if hparams.norm_before:
                yield from ((f"{stack}/norm/{ours}", [f"body/{stack}/{norm[ours]}"]) for ours in norm)
            for number in range(hparams.encoder_layers if stack == "encoder" else hparams.decoder_layers):
                ours, old = f"{stack}/layer_{number}", f"body/{stack}/layer_{number}"
                for index, sublayer in enumerate([*attentions, "ffn"]):
                    for part in norm:
                        yield f"{ours}/residual_{index}/norm/{part}", [f"{old}/{sublayer}/{norm[part]}"]
                for kind in ("kernel", "bias"):
                    yield from ((f"{ours}/feed_forward/{kind}{i}", [f"{old}/ffn/conv{i}/{kind}"]) for i in (1, 2))
                for old_name, our_name in attentions.items():
                    scope = f"{old}/{old_name}/multihead_attention"
                    joined = {"qkv": "qkv"} if our_name == "self_attention" else {"q": "q", "kv": "kv"}
                    for name, parts in joined.items():
                        yield f"{ours}/{our_name}/{name}", [f"{scope}/{part}/kernel" for part in parts]
                    yield f"{ours}/{our_name}/output", [f"{scope}/output_transform/kernel"]
                    if our_name == "self_attention" and hparams.max_relative_position:
                        for kind in ("keys", "values"):
                            yield f"{ours}/{our_name}/relative_{kind}/table", [f"{scope}/{RELATIVE}_{kind}/embeddings"]

    def _get(self, name: str) -> np.ndarray:
        """Returns a weight, without the leading dimension of 1 that kernels of old versions have."""
        try:
            weight = self._weights[SCOPE + name]
        except KeyError:
            raise UserError(
                f"{self.path}: has no variable {SCOPE}{name}; only tensor2tensor's model transformer can be imported"
            ) from None
        return weight.reshape(weight.shape[-2:]) if name.endswith("kernel") else weight

    def _layers(self, stack: str) -> int:
        numbers = [re.match(rf"{SCOPE}body/{stack}/layer_(\d+)/", name) for name in self._weights]
        return len({match[1] for match in numbers if match})

    def _embeddings(self) -> list[tuple[str, str]]:
        """Returns the vocabulary and the purpose in the names of the embeddings of sources, targets and softmax.

        Raises:
            UserError: an embedding is missing, or there are more than two vocabularies.
        """
        embeddings = {(match[1], match[2]) for name in self._weights if (match := EMBEDDING.fullmatch(name))}
        chosen = []
        for purpose in ("input_emb", "target_emb", "softmax"):
            candidates = [embedding for embedding in embeddings if embedding[1] == purpose]
            candidates = candidates or [embedding for embedding in embeddings if embedding[1] == "shared"]
            if len(candidates) != 1:
                raise UserError(
                    f"{self.path}: has {len(candidates)} embeddings {SCOPE}symbol_modality_*/{purpose}, not one; only "
                    "models that turn one text into another can be imported"
                )
            chosen += candidates
        return chosen

    def _embedding(self, embedding: tuple[str, str]) -> np.ndarray:
        """Returns an embedding, float32 [V, D], joined from its parts in the order of their numbers."""
        matches = {name: match for name in self._weights if (match := EMBEDDING.fullmatch(name))}
        parts = {int(match[3]): name for name, match in matches.items() if match.group(1, 2) == embedding}
        return _joined([self._weights[parts[number]] for number in sorted(parts)], axis=0)


def _joined(parts: Sequence[np.ndarray], axis: int) -> np.ndarray:
    return np.concatenate(parts, axis=axis, dtype=np.float32, casting="same_kind")
