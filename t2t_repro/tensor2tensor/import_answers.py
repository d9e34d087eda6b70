"""Answers to user directories (--t2t_usr_dir) that import tensor2tensor: advice for each import."""

from __future__ import annotations

import ast
import traceback
from pathlib import Path

TEXT_PROBLEMS = "write from t2t_repro.problems import text_problems, translate"
MODEL = "write from t2t_repro.models.transformer import Transformer, see docs/models.md"
ANSWERS = {
    "problem": "write from t2t_repro import problem",
    "registry": "write from t2t_repro import registry",
    "problems": "write from t2t_repro import registry, and registry.problem(name)",
    "text_problems": TEXT_PROBLEMS,
    "translate": TEXT_PROBLEMS,
    **dict.fromkeys(
        ("translate_ende", "translate_enfr"),
        "write from t2t_repro.problems import translate, which has the WMT problems of German and French; copy others",
    ),
    "transformer": "write from t2t_repro.hparams import tensor2tensor as transformer; hparams sets are frozen, so "
    "change copies with dataclasses.replace; for the model, write from t2t_repro.models.transformer import Transformer",
    "common_hparams": "write from t2t_repro.hparam import HParams",
    "generator_utils": "use t2t_repro.corpora.archives.unpack for downloads",
    "text_encoder": "write no import: t2t-datagen encodes the text that generate_samples yields",
    "Transformer": MODEL,
    "t2t_model": MODEL,
}
"""Advice for an import from tensor2tensor, by the name of the imported module or class."""


def answer(error: Exception, folder: Path) -> str:
    """Returns the error message for user code in `folder` that imports tensor2tensor; "" for other errors.

    Args:
        error: the exception that the import of the user's package has raised.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if str(folder) in frame.filename]
    if not (frames and isinstance(error, ImportError) and (error.name or "").startswith("tensor2tensor")):
        return ""
    names = _imported_names(Path(frames[-1].filename).read_bytes(), frames[-1].lineno or 0)
    advice = "; ".join(f"in place of {name}, {_advice(name)}" for name in names)
    return f"tensor2tensor is not used here; {advice}"


def _imported_names(code: bytes, line: int) -> list[str]:
    """Returns the names, with dots, that the import statement at this line of Python code imports."""
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno == line:
            module = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            return [f"{module}{alias.name}" for alias in node.names]
    return ["tensor2tensor"]  # the statement is in a string that the code executes


def _advice(name: str) -> str:
    """Returns the advice for an imported name."""
    parts = reversed(name.split("."))
    return next(
        (ANSWERS[part] for part in parts if part in ANSWERS),
        f"write no import, and remove the code that uses {name.rpartition('.')[2]}: nothing replaces it here",
    )
