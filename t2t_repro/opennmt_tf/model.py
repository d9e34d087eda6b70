"""Finds the parts of a Transformer in a folder of OpenNMT-tf. The class for tensor2tensor's models
does the rest.
"""

import re
from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from t2t_repro import registry
from t2t_repro.checkpoints.reader import key, step_of
from t2t_repro.data.vocabularies.kinds import MAX_BYTES
from t2t_repro.data.vocabularies.marian import UNKNOWN, MarianVocabulary, marian_file
from t2t_repro.data.vocabularies.tensor2tensor import TokenVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.untrusted import read_bytes, read_text
from t2t_repro.hparam import HParams
from t2t_repro.opennmt_tf.description import DESCRIPTION, read_description
from t2t_repro.tensor2tensor.model import Import
from t2t_repro.tensor2tensor.variables import SCOPE, T2TVariables

HPARAMS_SET = "opennmt_base"
SPECIAL = ["<blank>", "<s>", "</s>"]
"""First pieces of each vocabulary."""
ROWS = [0, 2, 1]
"""OpenNMT-tf's ids of our first ids: padding, end, start."""
_TABLE = "examples_inputter/features_inputter/embedding"
_TARGET_TABLE = "examples_inputter/labels_inputter/embedding"
_SOFTMAX = "decoder/output_layer"
_LAYER = r"(\w+)/layers/(\d+)"
_NORM = r"(?:in|out)put_layer_norm/(\w+)"
_SELF = rf"{_LAYER}/self_attention/layer"
_MEMORY = rf"{_LAYER}/attention/0/layer"
_OURS_SELF = r"\1/layer_\2/self_attention"
_OURS_MEMORY = r"\1/layer_\2/memory_attention"
_OURS_FEED_FORWARD = r"\1/layer_\2/feed_forward"
NAMES = {
    _TABLE: "embedding/table",
    _TARGET_TABLE: "target_embedding/table",
    _SOFTMAX: "softmax/table",
    f"{_SOFTMAX}_bias": "softmax_bias",
    r"(\w+)/layer_norm/(\w+)": r"\1/norm/\2",
    rf"{_LAYER}/self_attention/{_NORM}": r"\1/layer_\2/residual_0/norm/\3",
    rf"(encoder)/layers/(\d+)/ffn/{_NORM}": r"\1/layer_\2/residual_1/norm/\3",
    rf"{_LAYER}/attention/0/{_NORM}": r"\1/layer_\2/residual_1/norm/\3",
    rf"(decoder)/layers/(\d+)/ffn/{_NORM}": r"\1/layer_\2/residual_2/norm/\3",
    rf"{_SELF}/linear_(?P<part>[qkv])[a-z]+(_bias)?": rf"{_OURS_SELF}/qkv\4",
    rf"{_SELF}/linear_output(_bias)?": rf"{_OURS_SELF}/output\3",
    rf"{_SELF}/relative_position_(\w+)": rf"{_OURS_SELF}/relative_\3/table",
    rf"{_MEMORY}/linear_(?P<part>q)[a-z]+(_bias)?": rf"{_OURS_MEMORY}/q\4",
    rf"{_MEMORY}/linear_(?P<part>[kv])[a-z]+(_bias)?": rf"{_OURS_MEMORY}/kv\4",
    rf"{_MEMORY}/linear_output(_bias)?": rf"{_OURS_MEMORY}/output\3",
    rf"{_LAYER}/ffn/layer/inner": rf"{_OURS_FEED_FORWARD}/kernel1",
    rf"{_LAYER}/ffn/layer/inner_bias": rf"{_OURS_FEED_FORWARD}/bias1",
    rf"{_LAYER}/ffn/layer/outer": rf"{_OURS_FEED_FORWARD}/kernel2",
    rf"{_LAYER}/ffn/layer/outer_bias": rf"{_OURS_FEED_FORWARD}/bias2",
}
"""Patterns of OpenNMT-tf's names after the changes in `ENDS`, and our names."""
ENDS = {"/kernel": "", "/bias": "_bias", "/gamma": "/scale", "/beta": "/bias"}
"""Changed ends of OpenNMT-tf's names."""


class OpenNMTVariables(T2TVariables):
    """The weights in checkpoints of OpenNMT-tf, with the rows of tables in our order."""

    names = NAMES
    only = "only a Transformer of OpenNMT-tf can be imported; choose another model"
    scope = "model/"
    kinds: ClassVar = {"variables of the training": r"(?!model/).*|.*/\.OPTIMIZER_SLOT/.*"}

    def _read(self, path: str) -> dict[str, np.ndarray]:
        weights: dict[str, np.ndarray] = {}
        for name, value in super()._read(path).items():
            name = name.removeprefix(self.scope).removesuffix(key(""))
            name = re.sub("/[a-z]+$", lambda match: ENDS.get(match[0], match[0]), name)
            if name == _SOFTMAX:
                value = value.T
            if name in (_TABLE, _TARGET_TABLE, _SOFTMAX, f"{_SOFTMAX}_bias"):
                value = np.concatenate([value[ROWS], value[len(ROWS) :]])
            weights[SCOPE + name] = value
        # The target embedding may also be the matrix before the softmax.
        if SCOPE + _TARGET_TABLE in weights:
            weights.setdefault(SCOPE + _SOFTMAX, weights[SCOPE + _TARGET_TABLE])
        self.step = step_of(path)
        return weights


class OpenNMTImport(Import):
    """A Transformer of OpenNMT-tf: its weights, hparams and vocabulary in our form."""

    variables_class = OpenNMTVariables
    prefix = "ckpt"

    def _hparams(self) -> tuple[HParams, str]:
        path = self._folder / DESCRIPTION
        attention_bias = f"{SCOPE}encoder/layer_0/self_attention/qkv_bias"
        changes = read_description(path) | self.variables.sizes()
        changes["use_softmax_bias"] = f"{SCOPE}softmax_bias" in self.weights
        changes["use_attention_biases"] = attention_bias in self.weights
        try:
            return replace(registry.hparams(HPARAMS_SET), **changes), str(path)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def _load(self, path: str | Path, side: str) -> Vocabulary:
        models = self._request.sentencepiece_model.split(",")
        model = models[-1] if side == "target" else models[0]
        table = read_text(path, MAX_BYTES).removesuffix("\n")
        lines = dict.fromkeys(line.rstrip("\r") for line in table.split("\n"))
        # A piece of the text with the name of our unknown piece gets another one.
        pieces = [f"{UNKNOWN}_" if line == UNKNOWN else line for line in lines]
        if pieces[: len(ROWS)] != SPECIAL:
            raise UserError(
                f"{path}: must begin with the lines {', '.join(SPECIAL)}; give a file of "
                "onmt-build-vocab"
            )
        pieces = [*(SPECIAL[row] for row in ROWS), *pieces[len(ROWS) :], UNKNOWN]
        if model:
            return MarianVocabulary(marian_file(pieces, read_bytes(model, MAX_BYTES)), model)
        return TokenVocabulary("\n".join([*pieces, ""]).encode(), str(path))

    def _hparams_line(self) -> str:
        return self._training_line(HPARAMS_SET)
