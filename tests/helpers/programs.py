"""Runs the programs as a user does, on text that is made on the spot."""

from __future__ import annotations

import copy
import importlib
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from num2words import num2words

from t2t_repro.bin.program import run as run_program

MINUTE = (
    "num_hidden_layers=1,hidden_size=32,num_heads=2,filter_size=64,batch_size=400,norm_before=true,"
    "learning_rate_schedule=constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size,learning_rate_constant=2.0,"
    "learning_rate_warmup_steps=100"
)
"""Overrides that make transformer_tiny learn something in seconds."""


def run(program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs t2t-PROGRAM in a process of its own."""
    module = f"t2t_repro.bin.t2t_{program.replace('-', '_')}"
    command = [sys.executable, "-c", f"from {module} import run; run()", *arguments]
    options = {"capture_output": True, "text": True, "encoding": "utf-8", "errors": "surrogateescape"} | options
    return subprocess.run(command, check=False, **options)


def here(program: str, *arguments: str) -> int:
    """Runs t2t-PROGRAM in this process, which has TensorFlow loaded; returns its exit code."""
    module = importlib.import_module(f"t2t_repro.bin.t2t_{program.replace('-', '_')}")
    flags = copy.deepcopy(module.FLAGS)  # `program.run` adds to them
    return run_program(module.main, flags, module.__doc__, [f"t2t-{program}", *arguments])


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Asserts exit code 2 and a last line that is an error with all of `words`, without a traceback."""
    assert result.returncode == 2, (result.returncode, result.stderr)
    assert "Traceback" not in result.stderr, result.stderr
    line = result.stderr.rstrip("\n").rpartition("\n")[2]
    assert line.startswith("-c: "), result.stderr
    for word in words:
        assert word in line, line


def write_pairs(folder: Path, name: str, numbers: range) -> str:
    """Numbers in English and German words; returns the two paths as --train and --dev take them."""
    folder.mkdir(parents=True, exist_ok=True)
    for language in ("en", "de"):
        text = "".join(f"{num2words(number, lang=language)}\n" for number in numbers)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    return f"{folder / name}.en,{folder / name}.de"


@dataclass(frozen=True)
class Road:
    """A model trained on a user's own text files."""

    text: Path
    data: Path
    model: Path
    flags: list[str]
    """The trainer's flags, but for --train_steps."""
