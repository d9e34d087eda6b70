"""Tests of `program.run`, which parses flags, returns exit codes, and prints errors in one line."""

from __future__ import annotations

import dataclasses
import os
import resource
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest
import tensorflow as tf
from absl import flags

from t2t_repro.bin import program, t2t_decoder, t2t_query_server
from t2t_repro.console.progress import say
from t2t_repro.errors import Stopped, UserError
from t2t_repro.serving.client import Answer
from terminals import screen


def run(main: program.Main, *arguments: str) -> int:
    """Runs `main` as a program with the command line `arguments`, and returns the exit code.

    The program accepts a flag --count, whose value is an integer from 1 to 9, and flags with text.
    """
    values = flags.FlagValues()
    for name in ("name", "hparams", "hparams_set"):
        flags.DEFINE_string(name, "", "", flag_values=values)
    flags.DEFINE_integer("count", 1, "how many", lower_bound=1, upper_bound=9, flag_values=values)
    return program.run(main, values, "Counts.", ["bin/t2t_counter.py", *arguments])


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (None, 0, ""),
        (Stopped("saved at step 5"), 0, "t2t-counter: saved at step 5\n"),
        (UserError("x.en: no such\nfile"), 2, "t2t-counter: x.en: no such file\n"),
        (UserError("name '\x1b[2J\x9b\u202e\udcff'"), 2, "t2t-counter: name '\\x1b[2J\\x9b\\u202e\\udcff'\n"),
        (FileNotFoundError(2, "No such file", "x.en"), 2, "t2t-counter: x.en: No such file\n"),
        (OSError("disk full"), 2, "t2t-counter: input/output: disk full\n"),
        (MemoryError(), 2, "t2t-counter: the machine has too little free memory; end other programs, or give smal"),
        (KeyboardInterrupt(), 130, "t2t-counter: interrupted\n"),
    ],
)
def test_an_error_is_one_line_and_an_exit_code(
    error: BaseException | None, code: int, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(values: flags.FlagValues) -> None:
        if error:
            raise error

    assert run(main) == code
    printed = capsys.readouterr().err
    assert printed.startswith(message) and printed.count("\n") == (error is not None)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--count=0"], "flag --count=0: 0 is not an integer in the range [1, 9]"),
        (["--count=10"], "flag --count=10: "),
        (["--cont=2"], "Unknown command line flag 'cont'"),
        (["2"], "unexpected argument '2'; write every option as a flag: --name=value"),
        (["--name=out-\udcff.de"], "'--name=out-\\udcff.de' is not UTF-8; rename the file"),
        (["--flagfile=latin"], "--flagfile: the file is not UTF-8; convert it"),
        (["--hparams=a=1", "--hparams=b=2"], "--hparams is given twice; join the changes with commas"),
        (["--hparams=a=1", "-hparams=b=2"], "--hparams is given twice"),
        (["--hparams=a=1", "--flagfile=more"], "--hparams is given twice"),
    ],
)
def test_a_wrong_argument_is_one_line(
    arguments: list[str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("latin").write_bytes(b"--count=\xff\n")
    Path("more").write_text("--hparams=b=2")
    assert run(lambda values: None, *arguments) == 2
    printed = capsys.readouterr().err
    assert printed.startswith("t2t-counter: ") and words in printed and printed.count("\n") == 1
    assert run(lambda values: None, "--hparams=a=1", "--hparams_set=base") == 0


@dataclass(frozen=True)
class Settings:
    """Fields of all kinds that can be flags."""

    size: int = dataclasses.field(default=3, metadata={"lower_bound": 2})
    """Number of parts,
    counted."""
    rate: float = dataclasses.field(default=0.5, metadata={"upper_bound": 1.0})
    """Rate."""
    name: str | Path = "a"
    """A name."""
    is_new: bool = False
    """True if new."""
    kind: Literal["few", "many"] = "few"
    """Kind."""
    inner: int = 7
    """A field that has no flag."""


def settings_flags(*arguments: str) -> flags.FlagValues:
    """Returns the flags of `Settings`, parsed."""
    values = flags.FlagValues()
    program.define_fields(values, Settings, omit=("inner",))
    values(["t2t-x", *arguments])
    return values


def test_flags_are_made_from_the_fields_of_a_dataclass() -> None:
    assert program.from_flags(Settings, settings_flags()) == Settings()
    values = settings_flags("--size=2", "--rate=1", "--name=b", "--is_new", "--kind=many")
    assert program.from_flags(Settings, values, inner=9) == Settings(2, 1.0, "b", True, "many", 9)
    assert values["size"].help == "Number of parts, counted."


@pytest.mark.parametrize("argument", ["--size=1", "--rate=-0.1", "--rate=1.1", "--kind=all", "--inner=1"])
def test_a_value_that_the_field_does_not_allow_is_an_error(argument: str) -> None:
    with pytest.raises(flags.Error, match=argument[2:6]):
        settings_flags(argument)


PRINTER = """
import sys
from absl import flags
from t2t_repro.bin import program
text = "x" * int(sys.argv.pop())
sys.exit(program.run(lambda values: print(text), flags.FlagValues(), "", ["t2t-printer"]))
"""
"""A program that prints a line. Its argument is the number of letters in the line."""


@pytest.mark.parametrize("count", [10, 3000, 100_000])
def test_output_that_cannot_be_written_is_an_error(count: int) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-c", PRINTER, str(count)]
        result = subprocess.run(command, env=environment, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (result.returncode, result.stderr) == (2, "t2t-printer: input/output: No space left on device\n")


def test_closed_streams_and_another_backend_of_keras_do_no_harm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    seen = []

    def main(values: flags.FlagValues) -> None:
        say("a message")
        program.write_lines(["a line"])
        seen.append((os.environ["KERAS_BACKEND"], sys.stdin.buffer.read(), sys.stdout is sys.stderr))

    assert run(main) == 0
    assert seen == [("tensorflow", b"", False)]


@pytest.mark.parametrize(
    ("flag", "text"),
    [("-h", "Counts.\n\nFlags of t2t-counter:\n"), ("--registry_help", "problems:\n"), ("--version", "t2t_repro ")],
)
def test_help_is_printed_in_place_of_the_work(flag: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    def main(values: flags.FlagValues) -> None:
        raise AssertionError

    assert run(main, flag) == 0
    assert capsys.readouterr().out.startswith(text)


@pytest.mark.parametrize(
    ("has_device", "visible", "gpus", "is_warned"),
    [(True, "0", [], True), (True, "0", ["GPU:0"], False), (True, "-1", [], False), (False, "0", [], False)],
)
def test_a_gpu_that_tensorflow_does_not_see_gives_a_warning(
    has_device: bool,
    visible: str,
    gpus: list[str],
    is_warned: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(program, "GPU_DEVICE", tmp_path if has_device else tmp_path / "none")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: gpus)
    program.load_tensorflow()
    assert ("TensorFlow does not see this machine's GPU" in capsys.readouterr().err) == is_warned


def test_a_tilde_in_a_flag_is_the_home_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    values = flags.FlagValues()
    for name in ("a", "b", "c", "d"):
        flags.DEFINE_string(name, "", "", flag_values=values)
    seen = []
    arguments = ["--a=~/D,~/E,~", "-b=~", "--c=~x/D,~/E", "--d=x=~/D,~/E"]
    file = tmp_path / "flags"
    file.write_text("\n".join(arguments[1:]))
    command = ["t2t-x", arguments[0], f"--flagfile={file}"]
    assert program.run(lambda values: seen.append(values.flag_values_dict()), values, "", command) == 0
    expected = ["/home/me/D,/home/me/E,/home/me", "/home/me", "~x/D,~/E", "x=~/D,~/E"]
    assert [seen[0][name] for name in ("a", "b", "c", "d")] == expected


def test_a_terminal_gets_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    """Model outputs and server messages are escaped on a terminal, so that they cannot control it."""
    text = "\x1b[2Jab\rc\t\x07\x7f\x9b\u202ed Ω\u200f"
    shown = "\\x1b[2Jab\\rc\t\\x07\\x7f\\x9b\\u202ed Ω\u200f\n"
    answer, values = Answer((text,), (0.0,)), t2t_query_server.FLAGS
    values.mark_as_parsed()
    writers: list[tuple[Callable[[], None], str]] = [
        (lambda: t2t_decoder.write(None, [text]), "stdout"),
        (lambda: t2t_query_server.write([answer], values), "stdout"),
        (lambda: say(text), "stderr"),
    ]
    for write, stream in writers:
        with screen() as (terminal, text_on), monkeypatch.context() as patch:
            patch.setattr(sys, stream, terminal)
            write()
            assert text_on() == shown


def test_a_file_gets_the_text_as_it_is(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    t2t_decoder.write(None, ["\x1b[2J\r\u202e"])
    assert capfdbinary.readouterr().out == "\x1b[2J\r\u202e\n".encode()


def test_a_typed_line_that_is_not_utf_8_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    typed = iter(["z\udcfcei", "zwei"])
    monkeypatch.setattr("builtins.input", lambda prompt: next(typed))
    for stream in (sys.stdin, sys.stdout):
        monkeypatch.setattr(stream, "isatty", lambda: True, raising=False)
    assert next(program.typed_lines(tmp_path / "history")) == "zwei"
    assert "the line is not UTF-8" in capsys.readouterr().err


def test_a_program_may_open_more_files_than_the_usual_limit() -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    limits = []
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before, 512), most))
    try:
        assert run(lambda values: limits.append(resource.getrlimit(resource.RLIMIT_NOFILE))) == 0
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
    assert limits == [(most, most)]
