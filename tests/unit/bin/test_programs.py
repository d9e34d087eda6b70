"""Tests the list of all programs, and what they say if a library or the system that they need is
missing.
"""

import runpy
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import programs
from models import write_checkpoint
from t2t_repro import bin
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.errors import require_extra

LISTING = (
    "import runpy, sys; runpy.run_module('t2t_repro', run_name='__main__'); assert 'absl' not in "
    "sys.modules"
)
REGISTRY_HELP = """
import sys
from t2t_repro.bin import t2t_trainer
try:
    t2t_trainer.run()
finally:
    print({"tensorflow", "keras"} & {*sys.modules})
"""


def test_the_package_lists_the_installed_programs_without_importing_them() -> None:
    lines = subprocess.run(
        [sys.executable, "-c", LISTING], capture_output=True, text=True, check=True
    ).stdout
    installed = {
        entry.name
        for entry in entry_points(group="console_scripts")
        if entry.module.startswith("t2t_repro.")
    }
    assert {line.split()[0] for line in lines.splitlines() if line.startswith("t2t-")} == installed
    assert all(len(line) <= 80 for line in lines.splitlines()) and "t2t-trainer --help" in lines


def test_registry_help_needs_no_tensorflow() -> None:
    command = [sys.executable, "-c", REGISTRY_HELP, "--registry_help"]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert lines[0] == "problems:" and lines[-1] == "set()"


def test_the_package_takes_no_arguments(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["t2t_repro", "nonsense"])
    with pytest.raises(SystemExit, match="2"):
        runpy.run_module("t2t_repro", run_name="__main__")
    assert "nonsense" in (error := capsys.readouterr().err) and error.count("\n") == 1


def test_windows_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)  # which the package sets
    with pytest.raises(SystemExit, match="2"):
        runpy.run_path(str(bin.__file__))
    assert "WSL 2" in (error := capsys.readouterr().err) and error.count("\n") == 1


@pytest.mark.parametrize(
    ("program", "library", "extra", "flags"),
    [
        ("attention", "matplotlib", "figures", "--output_dir=model --source=dog --out=x"),
        (
            "datagen",
            "tensorflow_datasets",
            "datasets",
            "--problem=wmt_enfr --data_dir=D --tmp_dir=T",
        ),
        ("datagen", "tensorflow_datasets", "datasets", "--problem=tfds --data_dir=D --tmp_dir=T"),
        ("exporter", "ctranslate2", "ctranslate2", "--output_dir=model --format=ctranslate2"),
        ("insights", "flask", "insights", "--output_dir=model"),
        ("insights", "waitress", "insights", "--output_dir=model"),
        (
            "translate-beam",
            "apache_beam",
            "beam",
            "--output_dir=model --decode_from_file=x --decode_to_file=y",
        ),
    ],
)
def test_a_missing_library_is_one_line_with_the_command_before_work_starts(
    program: str,
    library: str,
    extra: str,
    flags: str,
    folder: ModelFolder,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_checkpoint(folder.path, 1, {}, folder.vocabulary.fingerprint)  # loading it would fail
    monkeypatch.chdir(folder.path.parent)
    monkeypatch.setitem(sys.modules, library, None)
    error = programs.error(program, *flags.split())
    assert library in error and f'pip install "t2t_repro[{extra}]"' in error
    assert not any(Path(path).exists() and any(Path(path).iterdir()) for path in "DTx")


def test_a_broken_library_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "broken_library.py").write_text("import its_missing_part\n")
    monkeypatch.syspath_prepend(tmp_path)
    require_extra("figures", "broken_library")
