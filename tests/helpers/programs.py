"""Runs t2t programs for the tests, in pytest's process or in a new process.

A program starts faster in pytest's process, because TensorFlow is already imported there.
"""

import copy
import gzip
import importlib
import itertools
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from unittest import mock

import pytest
from num2words import num2words

from t2t_repro import registry
from t2t_repro.bin.program import run as run_program

SMALL = (
    "num_hidden_layers=1,hidden_size=32,num_heads=2,filter_size=64,batch_size=400,"
    "norm_before=true,"
    "learning_rate_schedule=constant*linear_warmup*rsqrt_decay*rsqrt_hidden_size,"
    "learning_rate_constant=2.0,learning_rate_warmup_steps=100"
)
"""Hparams overrides that make transformer_tiny so small that it learns a little within seconds."""
LOOKUP = (f"--t2t_usr_dir={Path(__file__).parent / 'lookup_model'}", "--model=lookup")
"""Flags of t2t-trainer for a model that trains several seconds faster than a Transformer, see
lookup_model.
"""
ENCODING: dict[str, Any] = {"encoding": "utf-8", "errors": "surrogateescape"}


@dataclass(frozen=True)
class TrainedModel:
    """A model trained on text files: the folders of its text, its generated data and its
    checkpoints.
    """

    text: Path
    data: Path
    folder: Path
    flags: list[str]
    """The flags of t2t-trainer that trained the model, without --train_steps."""


def run(
    program: str, *arguments: str, input: str = "", cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Runs t2t-PROGRAM in pytest's process. An exception that the program does not handle fails the
    test.
    """
    arguments = last_flags(arguments)
    name = f"t2t-{program}"
    module = _module(program)
    values = copy.deepcopy(module.FLAGS)  # `run_program` adds flags to the copy
    with ExitStack() as stack:
        streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        streams[0].write(input.encode(**ENCODING))
        streams[0].seek(0)
        with (
            mock.patch.dict(os.environ),
            chdir(cwd or "."),
            user_code_forgotten(),
            _standard_streams(streams),
        ):
            code = run_program(module.main, values, module.__doc__, [name, *arguments])
        texts = []
        for stream in streams[1:]:
            stream.seek(0)
            texts.append(stream.read().decode(**ENCODING))
    return subprocess.CompletedProcess([name, *arguments], code, *texts)


def last_flags(arguments: Sequence[str | Path]) -> tuple[str, ...]:
    """Returns the arguments with only the last of equal flags, because programs refuse two."""
    texts = [str(argument) for argument in arguments]
    last = {text.split("=")[0]: index for index, text in enumerate(texts)}
    kept = [
        not text.startswith("--") or last[text.split("=")[0]] == index
        for index, text in enumerate(texts)
    ]
    return tuple(itertools.compress(texts, kept))


def succeed(program: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Runs t2t-PROGRAM in pytest's process, asserts that its exit code is 0, and returns its
    result.
    """
    result = run(program, *arguments, **options)
    assert result.returncode == 0, result.stderr
    return result


def refused(result: subprocess.CompletedProcess[str], *words: str) -> None:
    """Asserts that a program refused its input or flags.

    The exit code must be 2, without a traceback, and the last line of standard error must contain
    all of `words`.
    """
    assert result.returncode == 2, (result.returncode, result.stderr)
    assert "Traceback" not in result.stderr, result.stderr
    line = result.stderr.rstrip("\n").rpartition("\n")[2]
    assert line.startswith("t2t-"), result.stderr
    for word in words:
        assert word in line, line


def output(program: str, *arguments: str) -> str:
    """Runs t2t-PROGRAM in pytest's process and returns its standard output. Standard error must be
    empty.
    """
    result = succeed(program, *arguments)
    assert result.stderr == ""
    return result.stdout


def error(program: str, *arguments: str) -> str:
    """Runs t2t-PROGRAM in pytest's process and returns its error message without "t2t-PROGRAM: ".

    The exit code must be 2, and the message must be the program's only output, a single line.
    """
    result = run(program, *arguments)
    assert (result.returncode, result.stdout) == (2, ""), result.stderr
    assert (
        result.stderr.startswith(f"t2t-{program}: ")
        and result.stderr.find("\n") == len(result.stderr) - 1
    )
    return result.stderr.removeprefix(f"t2t-{program}: ").removesuffix("\n")


@contextmanager
def without_extras() -> Iterator[None]:
    """In the `with` block, Python does not find the libraries of the extras "datasets" and
    "figures".
    """
    libraries = {"matplotlib", "pyarrow", "tensorflow_datasets"}
    with pytest.MonkeyPatch.context() as patch:
        for name in libraries | {
            module for module in sys.modules if module.partition(".")[0] in libraries
        }:
            patch.setitem(sys.modules, name, None)
        yield


def write_lines(path: Path, lines: Iterable[str]) -> str:
    """Writes a text file, compressed with gzip if its name ends in .gz; returns its path."""
    data = "".join(f"{line}\n" for line in lines).encode()
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def write_pairs(folder: Path, name: str, numbers: Iterable[int]) -> str:
    """Writes each number in English words to NAME.en and in German words to NAME.de, one per line.

    Returns both paths with a comma between them, as t2t-datagen's --train and --dev expect.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for language in ("en", "de"):
        text = "".join(f"{num2words(number, lang=language)}\n" for number in numbers)
        (folder / f"{name}.{language}").write_text(text, encoding="utf-8")
    return f"{folder / name}.en,{folder / name}.de"


def _module(program: str) -> Any:
    return importlib.import_module(f"t2t_repro.bin.t2t_{program.replace('-', '_')}")


@contextmanager
def _standard_streams(files: Sequence[IO[bytes]]) -> Iterator[None]:
    """Inside the `with` block, Python, C++ code and child processes use `files` as standard input,
    output and error.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    with ExitStack() as stack:
        for descriptor, (name, file) in enumerate(
            zip(("stdin", "stdout", "stderr"), files, strict=True)
        ):
            original = os.dup(descriptor)
            stack.callback(os.close, original)
            stack.callback(os.dup2, original, descriptor)
            os.dup2(file.fileno(), descriptor)
            stream = stack.enter_context(
                open(descriptor, "w" if descriptor else "r", closefd=False, **ENCODING)
            )
            stack.enter_context(mock.patch.object(sys, name, stream))
        yield


@contextmanager
def user_code_forgotten() -> Iterator[None]:
    """After the `with` block, removes modules that a program imported from --t2t_usr_dir, and what
    they registered.
    """
    registry.import_built_in()
    modules = set(sys.modules)
    with ExitStack() as stack:
        for names in (registry._problems, registry._hparams, registry._models):
            stack.enter_context(mock.patch.dict(names._objects))
        yield
    for name in set(sys.modules) - modules:
        file = Path(getattr(sys.modules[name], "__file__", None) or "")
        is_package = name.startswith("t2t_repro") or file.is_relative_to(sys.prefix)
        if (
            file.is_relative_to(tempfile.gettempdir()) and not is_package
        ) or name == "lookup_model":
            del sys.modules[name]
