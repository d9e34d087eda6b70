"""Tests of `program.run`, which parses flags, returns exit codes, and prints errors in one line."""

import dataclasses
import importlib
import os
import resource
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import keras
import pytest
import tensorflow as tf
from absl import flags

from programs import output
from t2t_repro.bin import program
from t2t_repro.console.progress import say
from t2t_repro.errors import Stopped, UserError
from t2t_repro.files.output_files import Input
from t2t_repro.hparam import DecodeHParams
from terminals import screen
from user_errors import user_error


def run(main: program.Main, *arguments: str) -> int:
    """Runs `main` as a program with the command line `arguments`, and returns the exit code.

    The program accepts a flag --count, whose value is an integer from 1 to 9, and flags with text.
    """
    values = flags.FlagValues()
    for name in ("name", "hparams", "hparams_set"):
        flags.DEFINE_string(name, "", "", flag_values=values)
    flags.DEFINE_integer("count", 1, "how many", lower_bound=1, upper_bound=9, flag_values=values)
    return program.run(main, values, "Counts.", ["bin/t2t-counter", *arguments])


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (None, 0, ""),
        (Stopped("saved at step 5"), 0, "t2t-counter: saved at step 5\n"),
        (UserError("x.en: no such\nfile"), 2, "t2t-counter: x.en: no such file\n"),
        (
            UserError("name '\x1b[2J\x9b\u202e\udcff'"),
            2,
            "t2t-counter: name '\\x1b[2J\\x9b\\u202e\\udcff'\n",
        ),
        (FileNotFoundError(2, "No such file", "x.en"), 2, "t2t-counter: x.en: No such file\n"),
        (OSError("disk full"), 2, "t2t-counter: input/output: disk full\n"),
        (
            FileNotFoundError(2, "No usable temporary directory"),
            2,
            "t2t-counter: input/output: No usable temporary",
        ),
        (SystemExit("no"), 2, f"t2t-counter: {__file__}:"),
        (
            MemoryError(),
            2,
            "t2t-counter: too little free memory on this machine; end other programs",
        ),
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


def test_ctrl_c_prints_nothing_while_a_program_is_imported() -> None:
    code = "import t2t_repro.bin; raise KeyboardInterrupt"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
    assert (result.returncode, result.stderr) == (-signal.SIGINT, b"")


def test_the_environment_of_other_programs_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (
        ("TF_CONFIG", ""),
        ("TF_USE_LEGACY_KERAS", "1"),
        ("KERAS_BACKEND", "jax"),
        ("MPLBACKEND", "x"),
    ):
        monkeypatch.setenv(name, value)
    keras.config.set_floatx("float16")  # as ~/.keras/keras.json may do
    keras.config.set_image_data_format("channels_first")

    def main(values: flags.FlagValues) -> None:
        program.load_tensorflow()
        assert (keras.config.floatx(), keras.config.image_data_format()) == (
            "float32",
            "channels_last",
        )
        assert os.environ["MPLBACKEND"] == "Agg"
        assert "TF_CONFIG" not in os.environ and tf.keras.__version__ == keras.__version__

    assert run(main) == 0


def test_a_wrong_argument_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("more").write_text("--hparams=b=2")
    for arguments, words in (
        (["--count=0"], "flag --count=0: 0 is not an integer in the range [1, 9]"),
        (["--cont=2"], "Unknown command line flag 'cont'"),
        (["2"], "unexpected argument '2'; write every option as a flag: --name=value"),
        (["--name=out-\udcff.de"], "'--name=out-\\udcff.de' is not UTF-8; rename the file"),
        (
            ["--hparams=a=1", "--hparams=b=2"],
            "--hparams is given twice; give it once, its changes joined by commas",
        ),
        (["--count=2", "-count", "2"], "--count is given twice"),
        (["--hparams=a=1", "--flagfile=more"], "--hparams is given twice"),
    ):
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
    parts: tuple[str, ...] = ("x", "y")
    """Parts."""


@dataclass(frozen=True)
class Other:
    """Fields of other flags. `Settings` has one of them, too."""

    size: int = 4
    """Another size."""
    more: int = 1
    """More."""


def settings_flags(*arguments: str) -> flags.FlagValues:
    """Returns the flags of `Settings`, parsed."""
    values = program.make_flags(Settings, Other, "precision")
    values(["t2t-x", *arguments])
    return values


def test_flags_are_made_from_the_fields_of_a_dataclass() -> None:
    assert program.from_flags(Settings, settings_flags(), parts=("x", "y")) == Settings()
    values = settings_flags(
        "--size=2", "--rate=1", "--name=b", "--is_new", "--kind=many", "--parts=z"
    )
    assert program.from_flags(Settings, values) == Settings(2, 1.0, "b", True, "many", ["z"])
    assert values["size"].help == "Number of parts, counted."
    assert values.more == 1 and values.precision == "float32" and "data_dir" not in values
    assert all(
        name in program.field_help(program.SharedFlags)["decode_hparams"]
        for name in vars(DecodeHParams())
    )


@pytest.mark.parametrize(
    "argument", ["--size=1", "--rate=-0.1", "--rate=1.1", "--kind=all", "--long_lines=split"]
)
def test_a_value_that_the_field_does_not_allow_is_an_error(argument: str) -> None:
    with pytest.raises(flags.Error, match=argument[2:6]):
        settings_flags(argument)


def test_closed_streams_are_like_dev_null(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, stream, None)
    assert run(lambda values: print("x")) == 0


@pytest.mark.parametrize("count", [10, 100_000])
def test_output_that_cannot_be_written_is_an_error(
    count: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert run(lambda values: print("x" * count)) == 2
    assert capsys.readouterr().err == "t2t-counter: input/output: No space left on device\n"


@pytest.mark.parametrize(
    ("flag", "text"),
    [
        ("-h", "Counts.\n\nFlags of t2t-counter:\n  --count: how"),
        ("--registry_help", "problems:\n"),
        ("--version", "t2t_repro "),
    ],
)
def test_help_is_printed_in_place_of_the_work(
    flag: str, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def main(values: flags.FlagValues) -> None:
        raise AssertionError

    assert run(main, flag) == 0
    assert capsys.readouterr().out.startswith(text)


@pytest.mark.parametrize(
    "path", sorted(Path(program.__file__).parent.glob("t2t_*.py")), ids=lambda path: path.stem
)
def test_the_help_of_each_program_fits_80_columns(path: Path) -> None:
    module = importlib.import_module(f"t2t_repro.bin.{path.stem}")
    name = path.stem.removeprefix("t2t_").replace("_", "-")
    problem = ["--problem=text_files"] if "tmp_dir" in module.FLAGS else []
    text = output(name, "--helpfull", *problem)
    assert all(len(line) <= 80 for line in text.splitlines())
    words = " ".join(text.replace("\\\n", "").split())
    assert " ".join(module.__doc__.split()) in words and "t2t_repro.bin" not in text
    assert all(module.FLAGS[flag].help in words for flag in module.FLAGS)


def test_a_gpu_that_tensorflow_does_not_see_gives_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(program, "GPU_DEVICE", tmp_path)
    for visible, gpus, is_warned in (("0", [], True), ("0", ["GPU:0"], False), ("-1", [], False)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
        monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind, gpus=gpus: gpus)
        program.load_tensorflow()
        assert (
            "TensorFlow does not see this machine's GPU" in capsys.readouterr().err
        ) == is_warned


def test_a_tilde_in_a_flag_is_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    values = []
    for argument in ("--name=~/D,~/E,~", "-name=~", "--name=x=~/D,~/E", "--name=~no-one/D"):
        assert run(lambda flags: values.append(flags.name), argument) == 0
    assert values == ["/home/me/D,/home/me/E,/home/me", "/home/me", "x=~/D,~/E", "~no-one/D"]


def test_a_terminal_gets_no_control_characters(capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Model outputs and server messages are escaped on a terminal, so that they cannot control
    it.
    """
    text = "\x1b[2Jab\rc\t\x07\x7f\x9b\u202ed Ω\u200f"
    with screen() as (terminal, text_on), pytest.MonkeyPatch.context() as patch:
        for stream in ("stdout", "stderr"):
            patch.setattr(sys, stream, terminal)
        program.write_lines([text])
        say(text)
        assert text_on() == "\\x1b[2Jab\\rc\t\\x07\\x7f\\x9b\\u202ed Ω\u200f\n" * 2
    program.write_lines([text])
    assert capfdbinary.readouterr().out == f"{text}\n".encode()


def test_an_output_that_cannot_be_written_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("text", "no.part"):
        Path(name).touch()
    inputs: list[Input] = [("--from", "text"), ("--about", "no.part")]
    with program.output("other", ".part", inputs), program.output("fine", ".part", inputs):
        for path, words in (
            *(
                (f"x{suffix}", f"--decode_to_file=x{suffix} would be plain text")
                for suffix in (".gz", ".XZ", ".sgm")
            ),
            (".", "--decode_to_file=. is a folder; name a file"),
            ("new/", "--decode_to_file=new/ is a folder; name a file"),
            ("text", "text is also an input (--from)"),
            ("no", "no.part is also an input (--about)"),
            ("other", "other: another process is writing this file"),
        ):
            assert words in user_error(program.output(path, ".part", inputs).__enter__)


def test_a_program_may_open_more_files_than_the_usual_limit() -> None:
    before, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(before, 512), most))
    try:
        assert run(lambda values: None) == 0
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (most, most)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (before, most))
