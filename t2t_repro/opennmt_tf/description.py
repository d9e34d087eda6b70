"""Reads which model `model_description.py` of OpenNMT-tf describes, without running it."""

import ast
import re
import warnings
from pathlib import Path
from typing import Any

from t2t_repro.errors import UserError, shortened
from t2t_repro.files.untrusted import read_text

DESCRIPTION = "model_description.py"
MODEL = re.compile("Transformer(Base|Big|Tiny|)(Relative|SharedEmbeddings|)")
"""Names of the models that can be imported: of a size in the catalog, or of any size."""
HEADS = {"Big": 16, "Tiny": 2}
"""Default number of heads of a size; otherwise 8."""
HPARAMS: dict[str, tuple[str, dict[Any, Any]]] = {
    "num_heads": ("num_heads", {}),
    "dropout": ("layer_prepostprocess_dropout", {}),
    "attention_dropout": ("attention_dropout", {}),
    "ffn_dropout": ("relu_dropout", {}),
    "ffn_activation": (
        "activation",
        {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"},
    ),
    "position_encoder_class": ("pos", {"SinusoidalPositionEncoder": "timing", None: "none"}),
}
"""For each argument that the weights do not show: its name here and, unless it is a number, its
values here.
"""
USED = {*HPARAMS, None}
"""Names of arguments that must be read. None is the name of **ARGUMENTS."""


def read_description(path: Path) -> dict[str, Any]:
    """Returns the hparams in a file that the weights do not show, by name.

    Raises UserError if the file is missing, describes another model, or has a value that no model
    here can have.
    """
    if not path.is_file():
        raise UserError(f"{path}: no such file; copy it from the folder of the training")
    try:
        with warnings.catch_warnings(action="ignore"):  # about escapes in the file
            nodes = [*ast.walk(ast.parse(read_text(path)))]
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise UserError(f"{path}: not a Python file; copy it again") from None
    names = dict.fromkeys(
        value for value in map(_value, nodes) if isinstance(value, str) and value.isidentifier()
    )
    if len(models := [*filter(MODEL.fullmatch, names)]) != 1:
        shown = shortened(", ".join(models or [name for name in names if name[:1].isupper()]))
        raise UserError(
            f"{path}: describes {shown or 'no model'}; choose a model Transformer, e.g. "
            "TransformerBase"
        )
    size, kind = MODEL.fullmatch(models[0]).groups()  # type: ignore[union-attr]
    hparams: dict[str, Any] = {
        "num_heads": HEADS.get(size, 8),
        "pos": "none" if kind == "Relative" else "timing",
    }
    calls = [
        node for node in nodes if isinstance(node, ast.Call) and _has_arguments_of(models[0], node)
    ]
    positional = [argument for call in calls for argument in call.args]
    has_unnamed = len(positional) > 2 or any(isinstance(node, ast.Starred) for node in positional)
    if len(calls) > 1 or has_unnamed:
        raise UserError(
            f"{path}: write a single call with the arguments of {models[0]}, and their names"
        )
    for keyword in calls[0].keywords if calls else []:
        if keyword.arg in USED:
            name, value = _hparam(keyword, path)
            hparams[name] = value
    return hparams


def _hparam(keyword: ast.keyword, path: Path) -> tuple[str, Any]:
    """Returns the name and the value here of an argument in a file."""
    name, values = HPARAMS.get(keyword.arg or "", ("", {}))
    value = _value(keyword.value)
    if values and value in values:
        return name, values[value]
    # Not isinstance, which takes True for a number.
    if not values and type(value) in (int, float):
        return name, value
    shown = shortened(f"{keyword.arg or '**'}={value!r}")
    choices = ", ".join(map(str, values)) or "a number"
    raise UserError(f"{path}:{keyword.lineno}: {shown} cannot be imported; write {choices}")


def _has_arguments_of(model: str, call: ast.Call) -> bool:
    """Returns True if a call makes the model, or names one of its arguments."""
    function = _value(call.func)
    if function in (model, "__init__", "partial"):
        return True
    # WordEmbedder has an argument of the same name, dropout.
    return function != "WordEmbedder" and any(keyword.arg in USED for keyword in call.keywords)


def _value(node: ast.AST) -> Any:
    """Returns the value of a literal, or the last name of a function or class; "..." for other
    expressions.
    """
    match node:
        case ast.Name(id=value) | ast.Attribute(attr=value) | ast.Constant(value=value):
            return value
    return "..."
