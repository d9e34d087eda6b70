"""The flags of t2t-datagen: its processes, and a problem's settings."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest

from t2t_repro.bin import program, t2t_datagen
from toys import ENGLISH, GREEK, contents, lines


def generate(folder: Path, *flags: str) -> int:
    """Runs the program in this process; the flags are copied, since `program.run` adds to them."""
    for name, words in (("a.en", ENGLISH), ("a.el", GREEK)):
        text = lines(50, words)
        (folder / name).write_text("".join(line + "\n" for line in [*text, text[7], text[7]]), "utf-8")
    both = f"{folder}/a.en,{folder}/a.el"
    given = ["--problem=text_files", f"--train={both}", f"--dev={both}", "--vocab_size=400",
             f"--data_dir={folder}/data"]  # fmt: skip
    argv = ["t2t_datagen.py", *given, *flags]
    return program.run(t2t_datagen.main, copy.deepcopy(t2t_datagen.FLAGS), t2t_datagen.__doc__, argv)


def failure(capsys: pytest.CaptureFixture[str], folder: Path, *flags: str) -> str:
    """The one line of a run that must end with code 2 and write nothing."""
    assert generate(folder, *flags) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert not (folder / "data").exists()
    return captured.err


def dropped(folder: Path) -> dict[str, dict[str, int]]:
    return dict(json.loads((folder / "data" / "text_files.json").read_text("utf-8"))["dropped"])


@pytest.mark.parametrize("processes", [0, 2])
def test_the_number_of_processes_changes_no_byte(tmp_path: Path, processes: int) -> None:
    assert generate(tmp_path, "--num_concurrent_processes=1") == 0
    one = contents(tmp_path / "data")
    (tmp_path / "data").rename(tmp_path / "other")
    assert generate(tmp_path, f"--num_concurrent_processes={processes}") == 0
    assert contents(tmp_path / "data") == one


@pytest.mark.parametrize("value", ["-1", "two", "1.5", ""])
def test_a_number_of_processes_that_cannot_be(value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "--num_concurrent_processes=" in failure(capsys, tmp_path, f"--num_concurrent_processes={value}")


@pytest.mark.parametrize(
    ("flags", "count"),
    [
        ((), 0),
        (("--clean_duplicates",), 2),
        (("--clean_duplicates", "--num_concurrent_processes=1"), 2),
        (("--clean_duplicates=true",), 2),
        (("--clean_duplicates=1",), 2),
        (("--clean_duplicates=false",), 0),
        (("--noclean_duplicates",), 0),
        (("--clean_duplicates", "--noclean_duplicates"), 0),
    ],
)
def test_a_boolean_setting_needs_no_value(tmp_path: Path, flags: tuple[str, ...], count: int) -> None:
    assert generate(tmp_path, *flags) == 0
    assert dropped(tmp_path) == {"train": {"duplicate": count} if count else {}, "dev": {}}


def test_cleaning_by_length(tmp_path: Path) -> None:
    assert generate(tmp_path, "--clean_max_words=5", "--clean_max_ratio=1.5") == 0
    assert dropped(tmp_path) == {"train": {"too many words": 10}, "dev": {}}


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--clean_max_words=-1", "--clean_max_words=-1 must be 0 or more"),
        ("--clean_max_words=1.5", "--clean_max_words=1.5: the value must be of type int"),
        ("--clean_max_ratio=-0.5", "--clean_max_ratio=-0.5 must be 0 or more"),
        ("--clean_max_ratio=nan", "--clean_max_ratio=nan must be 0 or more"),
        ("--clean_max_ratio=much", "--clean_max_ratio=much: the value must be of type float"),
        ("--clean_duplicates=perhaps", "clean_duplicates=perhaps"),
        ("--vocab_size=0", "--vocab_size=0 must be 1 or more"),
        ("--clean_duplicate", "clean_duplicates"),
    ],
)
def test_a_setting_that_cannot_be(flag: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert words in failure(capsys, tmp_path, flag)


def test_help_lists_the_problems_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert generate(tmp_path, "--help") == 0
    text = capsys.readouterr().out
    for flag in ("--num_concurrent_processes:", "--[no]clean_duplicates:", "--clean_max_words:", "--clean_max_ratio:"):
        assert flag in text
