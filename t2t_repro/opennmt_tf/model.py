"""Finds the parts of a Transformer in a folder of OpenNMT-tf. The class for tensor2tensor's models
does the rest.
"""

import re
from dataclasses import replace
from pathlib import Path

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
from t2t_repro.tensor2tensor.variables import SCOPE, OldVariables

HPARAMS_SET = "opennmt_base"
SPECIAL = ["<blank>", "<s>", "</s>"]
"""First pieces of each vocabulary."""
ROWS = [0, 2, 1]
"""OpenNMT-tf's ids of our first ids: padding, end, start."""
_LAYER, _NORM = r"(\w+)/layers/(\d+)", r"(?:in|out)put_layer_norm/(\w+)"
_TABLE, _TARGET_TABLE = (
    f"examples_inputter/{side}_inputter/embedding" for side in ("features", "labels")
)
_SOFTMAX = "decoder/output_layer"
NAMES = {
    **{_TABLE: "embedding/table", _TARGET_TABLE: "target_embedding/table"},
    **{_SOFTMAX: "softmax/table", f"{_SOFTMAX}_bias": "softmax_bias"},
    r"(\w+)/layer_norm/(\w+)": r"\1/norm/\2",
    rf"{_LAYER}/self_attention/{_NORM}": r"\1/layer_\2/residual_0/norm/\3",
    rf"(?:(encoder)/layers/(\d+)/ffn/{_NORM}|{_LAYER}/attention/0/{_NORM})": r"\1\4/layer_\2\5/residual_1/norm/\3\6",  # noqa: E501
    rf"(decoder)/layers/(\d+)/ffn/{_NORM}": r"\1/layer_\2/residual_2/norm/\3",
    rf"{_LAYER}/self_attention/layer/linear_(?P<part>[qkv])[a-z]+(_bias)?": r"\1/layer_\2/self_attention/qkv\4",  # noqa: E501
    rf"{_LAYER}/attention/0/layer/linear_(?P<part>q)[a-z]+(_bias)?": r"\1/layer_\2/memory_attention/q\4",  # noqa: E501
    rf"{_LAYER}/attention/0/layer/linear_(?P<part>[kv])[a-z]+(_bias)?": r"\1/layer_\2/memory_attention/kv\4",  # noqa: E501
    rf"{_LAYER}/self_attention/layer/linear_output(_bias)?": r"\1/layer_\2/self_attention/output\3",
    rf"{_LAYER}/attention/0/layer/linear_output(_bias)?": r"\1/layer_\2/memory_attention/output\3",
    rf"{_LAYER}/self_attention/layer/relative_position_(\w+)": r"\1/layer_\2/self_attention/relative_\3/table",  # noqa: E501
    **{
        f"{_LAYER}/ffn/layer/{name}": rf"\1/layer_\2/feed_forward/{ours}"
        for name, ours in (
            ("inner", "kernel1"),
            ("inner_bias", "bias1"),
            ("outer", "kernel2"),
            ("outer_bias", "bias2"),
        )
    },
}
"""Patterns of OpenNMT-tf's names after the changes in `ENDS`, and our names."""
ENDS = {"/kernel": "", "/bias": "_bias", "/gamma": "/scale", "/beta": "/bias"}
"""Changed ends of OpenNMT-tf's names."""


class OpenNMTVariables(OldVariables):
    """The weights in checkpoints of OpenNMT-tf, with the rows of tables in our order."""

    names, only = NAMES, "only a Transformer of OpenNMT-tf can be imported; choose another model"
    scope, kinds = "model/", {"variables of the training": r"(?!model/).*|.*/\.OPTIMIZER_SLOT/.*"}

    def _read(self, path: str, dtype: type) -> dict[str, np.ndarray]:
        weights: dict[str, np.ndarray] = {}
        for name, value in super()._read(path, dtype).items():
            name = name.removeprefix(self.scope).removesuffix(key(""))
            name = re.sub("/[a-z]+$", lambda match: ENDS.get(match[0], match[0]), name)
            value = value.T if name == _SOFTMAX else value
            is_table = name in (_TABLE, _TARGET_TABLE) or name.startswith(_SOFTMAX)
            weights[SCOPE + name] = (
                np.concatenate([value[ROWS], value[len(ROWS) :]]) if is_table else value
            )
        if (
            target := weights.get(SCOPE + _TARGET_TABLE)
        ) is not None:  # it may also be the matrix before the softmax
            weights.setdefault(SCOPE + _SOFTMAX, target)
        self.step = step_of(path)
        return weights


class OpenNMTImport(Import):
    """A Transformer of OpenNMT-tf: its weights, hparams and vocabulary in our form."""

    variables_class, prefix = OpenNMTVariables, "ckpt"

    def _hparams(self) -> tuple[HParams, str]:
        path, weights = self._folder / DESCRIPTION, self.variables.weights
        biases = {
            "use_softmax_bias": "softmax_bias",
            "use_attention_biases": "encoder/layer_0/self_attention/qkv_bias",
        }
        changes = read_description(path) | self.variables.sizes()
        changes |= {name: SCOPE + weight in weights for name, weight in biases.items()}
        try:
            return replace(registry.hparams(HPARAMS_SET), **changes), str(path)
        except UserError as error:
            raise UserError(f"{path}: {error}") from None

    def _load(self, path: str | Path, side: str) -> Vocabulary:
        models = self._request.sentencepiece_model.split(",")
        model = models[-1 if side == "target" else 0]
        table = read_text(path, MAX_BYTES).removesuffix("\n")
        lines = dict.fromkeys(line.rstrip("\r") for line in table.split("\n"))
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
        usual = vars(registry.hparams(HPARAMS_SET))
        changes = ",".join(
            f"{name}={value}" for name, value in vars(self.hparams).items() if value != usual[name]
        )
        return f"to train on: --hparams_set={HPARAMS_SET}" + (
            f" --hparams={changes}" if changes else ""
        )
