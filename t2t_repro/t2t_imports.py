"""Answers to user directories (--t2t_usr_dir) that import tensor2tensor: the import line to write here."""

from __future__ import annotations

import re
import traceback
from pathlib import Path

TEXT_PROBLEMS = "from t2t_repro.problems import text_problems, translate"
IMPORTS = {
    "problem": "from t2t_repro import problem",
    "registry": "from t2t_repro import registry",
    "text_problems": TEXT_PROBLEMS,
    "translate": TEXT_PROBLEMS,
    "transformer": "from t2t_repro.hparams import transformer; hparams sets are frozen, so change copies with "
    "dataclasses.replace",
    "common_hparams": "from t2t_repro.hparam import HParams",
    "generator_utils": "no line: use t2t_repro.corpora.archives.unpack for downloads",
    "text_encoder": "no line: t2t-datagen encodes the text that generate_samples yields",
    "t2t_model": "import keras, and see docs/models.md",
}
"""Import line to write in place of a module of tensor2tensor, by the last part of the module's name."""


def answer(error: Exception, folder: Path) -> str:
    """Returns the error message for user code in `folder` that imports tensor2tensor; "" for other errors.

    Args:
        error: the exception that the import of the user's package has raised.
    """
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if str(folder) in frame.filename]
    if not (frames and isinstance(error, ImportError) and (error.name or "").startswith("tensor2tensor")):
        return ""
    line = (frames[-1].line or "").partition("#")[0].strip()
    module = next((name for name in re.findall(r"\w+", line) if name in IMPORTS), "")
    advice = IMPORTS.get(module, "what docs/from_tensor2tensor.md suggests")
    return f"tensor2tensor is not used here; in place of {line!r}, write {advice}"
