"""Tests that the wheel has all files of the package, and that each program starts from it."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SOURCES = {folder: Path("t2t_repro", folder) for folder in ("problems", "hparams", "bin")} | {
    "t2t_repro": Path("t2t_repro")
}
"""The place in the wheel of each folder of the source."""
START_ALL = """
import sys
from importlib.metadata import distribution

for program in distribution("t2t_repro").entry_points:
    sys.argv = [program.name, "--helpfull"]
    try:
        program.load()()
    except SystemExit as ended:
        assert ended.code == 0, program
import t2t_repro
assert "tensorflow" not in sys.modules
print(t2t_repro.__file__)
"""


@pytest.fixture
def wheel(tmp_path: Path) -> Path:
    """Returns a wheel that is built from a copy of the source, because setuptools writes into the
    source.
    """
    copy = tmp_path / "source"
    ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for folder in SOURCES:
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    pip = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    ]
    subprocess.run([*pip, f"--wheel-dir={tmp_path}", str(copy)], check=True)
    (built,) = tmp_path.glob("*.whl")
    return built


def test_the_wheel_has_all_files_and_its_programs_start(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    for source, target in SOURCES.items():
        files = {
            path.relative_to(ROOT / source) for path in (ROOT / source).rglob("*") if path.is_file()
        }
        for path in files - {path for path in files if "__pycache__" in path.parts}:
            assert (installed / target / path).read_bytes() == (ROOT / source / path).read_bytes()
    variables = {**os.environ, "PYTHONPATH": str(installed)}
    command = [sys.executable, "-c", START_ALL]
    started = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, encoding="utf-8", check=True
    )
    assert started.stdout.splitlines()[-1] == str(installed / "t2t_repro" / "__init__.py")
    assert (
        started.stdout.count("Flags of all programs")
        == started.stdout.count("\nFlags of t2t-")
        == 15
    )
