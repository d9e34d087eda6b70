"""Reads the weights of tensor2tensor's Transformer from a TensorFlow 1 checkpoint, and gives them
our names.

In shapes, D is the width, V the number of entries in a vocabulary.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from t2t_repro.checkpoints.reader import open_checkpoint
from t2t_repro.errors import UserError

SCOPE = "transformer/"
"""Beginning of the names of all weights of tensor2tensor's model `transformer`, and of ours."""
ONLY = "only tensor2tensor's model transformer, which turns one text into another, can be imported"
UNUSED = {
    "optimizer variables": (
        r"training/.*|.*/(Adam|Adafactor|Momentum|VAdam|VRMSProp)(_\d+)?|.*beta[12]_power"
    ),
    "averages of losses": r"losses_avg/.*",
    "step counters": r"global_step|train_stats/.*",
}
"""Kinds of variables that are not weights, and patterns of their names."""

_LAYER = r"body/(\w+)/(layer_\d+)"
_NORM = r"layer_(?:prepost|post)process/layer_norm/layer_norm_(scale|bias)"
_SELF = rf"{_LAYER}/self_attention/multihead_attention"
_MEMORY = rf"{_LAYER}/encdec_attention/multihead_attention"
_RELATIVE = "dot_product_attention_relative/relative_positions"
NAMES = {
    r"symbol_modality_\d+_\d+/(?:shared|input_emb)/weights_(?P<part>\d+)": "embedding/table",
    r"symbol_modality_\d+_\d+/target_emb/weights_(?P<part>\d+)": "target_embedding/table",
    r"symbol_modality_\d+_\d+/softmax/weights_(?P<part>\d+)": "softmax/table",
    r"body/target_space_embedding/kernel": "target_space_embedding",
    r"body/inputs_positional_embedding": "encoder/position/table",
    r"body/targets_positional_embedding": "decoder/position/table",
    rf"body/(\w+)/{_NORM}": r"\1/norm/\2",
    rf"{_LAYER}/self_attention/{_NORM}": r"\1/\2/residual_0/norm/\3",
    rf"{_LAYER}/encdec_attention/{_NORM}": r"\1/\2/residual_1/norm/\3",
    rf"body/encoder/(layer_\d+)/ffn/{_NORM}": r"encoder/\1/residual_1/norm/\2",
    rf"body/decoder/(layer_\d+)/ffn/{_NORM}": r"decoder/\1/residual_2/norm/\2",
    rf"{_LAYER}/ffn/conv([12])/(kernel|bias)": r"\1/\2/feed_forward/\4\3",
    rf"{_SELF}/(?P<part>[qkv])/kernel": r"\1/\2/self_attention/qkv",
    rf"{_SELF}/output_transform/kernel": r"\1/\2/self_attention/output",
    rf"{_SELF}/{_RELATIVE}_(keys|values)/embeddings": r"\1/\2/self_attention/relative_\3/table",
    rf"{_MEMORY}/q/kernel": r"\1/\2/memory_attention/q",
    rf"{_MEMORY}/(?P<part>[kv])/kernel": r"\1/\2/memory_attention/kv",
    rf"{_MEMORY}/output_transform/kernel": r"\1/\2/memory_attention/output",
}
"""Patterns of tensor2tensor's names without `SCOPE`, and our names. Variables with a "part" are
joined.
"""


def by_our_names(
    weights: Mapping[str, np.ndarray], path: str, names: Mapping[str, str] = NAMES, only: str = ONLY
) -> dict[str, np.ndarray]:
    """Returns the weights of a checkpoint at `path`, by tensor2tensor's names, as float32 by our
    names.

    `names` has patterns of their names and our names, and `only` is the end of the error messages.

    Raises UserError if no Transformer here has one of the weights, or two weights have the same
    meaning.
    """
    parts: dict[str, dict[int, np.ndarray]] = {}
    for name, value in weights.items():
        matches = [
            (match, our_name)
            for pattern, our_name in names.items()
            if (match := re.fullmatch(SCOPE + pattern, name))
        ]
        if not matches:
            raise UserError(f"{path}: has a variable {name}, which no Transformer here has; {only}")
        match, our_name = matches[0]
        part = match.groupdict().get("part", "0")
        number = "qkv".index(part) if part in "qkv" else int(part)
        # The first versions of tensor2tensor wrote kernels with a leading dimension of 1.
        matrix = value.reshape(value.shape[-2:]) if name.endswith("/kernel") else value
        values = parts.setdefault(SCOPE + match.expand(our_name), {})
        if number in values:
            raise UserError(f"{path}: has a second variable like {name}; {only}")
        values[number] = matrix.astype(np.float32)
    joined = {}
    for name, values in parts.items():
        axis = 0 if name.endswith("table") else -1  # V of a table, the outputs of a kernel
        joined[name] = np.concatenate([values[number] for number in sorted(values)], axis)
    return joined


class T2TVariables:
    """The weights in a checkpoint that tensor2tensor wrote, or their means over several.

    The paths are without ".index". Raises UserError if a checkpoint is missing or damaged, or has a
    weight that no Transformer here has.
    """

    names: ClassVar[Mapping[str, str]] = NAMES
    """Patterns of the names of weights without `SCOPE`, and our names."""
    only: ClassVar[str] = ONLY
    """End of the error messages about another model."""
    scope: ClassVar[str] = SCOPE
    """Beginning of the names of weights in the checkpoint."""
    kinds: ClassVar[Mapping[str, str]] = UNUSED
    """Kinds of variables that are not weights, and patterns of their names."""

    def __init__(self, paths: Sequence[str]) -> None:
        self.path = paths[-1]
        self.step = 0
        self.unused: Counter[str] = Counter()
        """Number of variables of each of the `kinds`, or "other variables"."""
        checkpoints = [self._read(path) for path in paths]
        means: dict[str, np.ndarray] = {}
        for name in checkpoints[0]:
            values = [weights[name] for weights in checkpoints]
            # A sum of many weights needs the precision of float64.
            means[name] = np.asarray(np.mean(values, axis=0, dtype=np.float64), np.float32)
        self.weights = by_our_names(means, self.path, self.names, self.only)
        """The weights, float32, by our names."""

    def _read(self, path: str) -> dict[str, np.ndarray]:
        """Returns the weights in a checkpoint by tensor2tensor's names.

        Sets `step` and `unused`.
        """
        weights: dict[str, np.ndarray] = {}
        self.unused.clear()
        with open_checkpoint(path) as reader:
            for name in sorted(reader.get_variable_to_shape_map()):
                kinds = [
                    kind for kind, pattern in self.kinds.items() if re.fullmatch(pattern, name)
                ]
                if name.startswith(self.scope) and not kinds:
                    weights[name] = reader.get_tensor(name)
                else:
                    self.unused[kinds[0] if kinds else "other variables"] += 1
                if name == "global_step":
                    self.step = int(reader.get_tensor(name))
        return weights

    def sizes(self) -> dict[str, Any]:
        """Returns the values of those fields of `HParams` that the weights determine, by name.

        Raises UserError if a weight is missing.
        """
        attention = "encoder/layer_0/self_attention"
        width, filter_size = self._shape("encoder/layer_0/feed_forward/kernel1")
        values = self._shape(f"{attention}/output")[0]
        keys = (self._shape(f"{attention}/qkv")[1] - values) // 2
        encoder_layers = self._layers("encoder")
        decoder_layers = self._layers("decoder")
        has_softmax = self._has("softmax/table")
        sizes = {
            "num_hidden_layers": encoder_layers,
            "num_encoder_layers": 0,
            "num_decoder_layers": decoder_layers if decoder_layers != encoder_layers else 0,
            "hidden_size": width,
            "filter_size": filter_size,
            "attention_key_channels": keys if keys != width else 0,
            "attention_value_channels": values if values != width else 0,
            "norm_before": self._has("encoder/norm/scale"),
            "use_target_space_embedding": self._has("target_space_embedding"),
            "shared_embedding_and_softmax_weights": not has_softmax,
            "shared_embedding": has_softmax and not self._has("target_embedding/table"),
            "self_attention_type": "dot_product",
            "max_relative_position": 0,
        }
        if self._has(f"{attention}/relative_keys/table"):
            rows, head_width = self._shape(f"{attention}/relative_keys/table")
            sizes |= {
                "self_attention_type": "dot_product_relative",
                "max_relative_position": rows // 2,
                "num_heads": keys // head_width,
            }
        if self._has("encoder/position/table"):
            sizes |= {"pos": "emb", "max_length": self._shape("encoder/position/table")[0]}
        return sizes

    def vocab_sizes(self) -> tuple[int, int]:
        """Returns the numbers of entries in the vocabularies of sources and targets."""
        source_size = self._shape("embedding/table")[0]
        if self._has("target_embedding/table"):
            return source_size, self._shape("target_embedding/table")[0]
        return source_size, source_size

    def _layers(self, stack: str) -> int:
        pattern = rf"{SCOPE}{stack}/layer_\d+/self_attention/output"
        return sum(bool(re.fullmatch(pattern, name)) for name in self.weights)

    def _has(self, name: str) -> bool:
        return SCOPE + name in self.weights

    def _shape(self, name: str) -> tuple[int, ...]:
        if not self._has(name):
            raise UserError(f"{self.path}: has no weight {SCOPE}{name}; {self.only}")
        return self.weights[SCOPE + name].shape
