"""Tests that a problem's test sets are written as text files."""

from pathlib import Path

import pytest

from t2t_repro.data import test_set_files
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.job import Options
from t2t_repro.errors import UserError
from t2t_repro.files.textfile import read_lines
from toys import Published, Toy


def test_test_sets_are_written_as_text_and_a_missing_one_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    generate_data(Published(), tmp_path, "")
    texts = {path.name: list(read_lines(str(path))) for path in tmp_path.glob("toy.*.e[nl]")}
    assert texts == {
        "toy.first_full.en": [f"first/full {number}\u2028\r." for number in range(3)],
        "toy.first_full.el": [f"{number}." for number in range(3)],
        "toy.second.en": [f"second {number}\u2028\r." for number in range(3)],
        "toy.second.el": [f"{number}." for number in range(3)],
    }
    messages = capsys.readouterr().err.splitlines()
    assert "test set far is not written: far.tgz: no such file; download it" in messages
    assert "test set second: 3 pairs in toy.second.en and toy.second.el" in messages


def test_existing_files_are_kept_and_their_paths_have_the_problems_direction(
    tmp_path: Path,
) -> None:
    (tmp_path / "toy.second.en").write_text("mine\n", "utf-8")
    (tmp_path / "toy.second.el").write_text("own\n", "utf-8")
    files = test_set_files.ensure(Published(), tmp_path, "")
    assert files["second"] == (tmp_path / "toy.second.en", tmp_path / "toy.second.el")
    assert files.keys() == {"first/full", "second"}
    assert list(read_lines(str(tmp_path / "toy.second.en"))) == ["mine"]
    backward = Published()
    backward.was_reversed = True
    assert test_set_files.ensure(backward, tmp_path, "")["second"] == files["second"][::-1]


def test_the_dev_split_is_the_test_set_of_a_problem_without_others(tmp_path: Path) -> None:
    problem = Toy()
    problem.pairs["dev"][3]["targets"] = "C\nD"
    [(name, (sources, references))] = test_set_files.ensure(problem, tmp_path, "").items()
    assert (name, sources.name, references.name) == ("dev", "toy.dev.inputs", "toy.dev.targets")
    assert list(read_lines(str(references))) == [
        pair["targets"].replace("\n", " ") for pair in problem.pairs["dev"]
    ]
    # Deletes the test set's files, because their text may be outdated.
    generate_data(problem, tmp_path, "")
    assert not sources.exists() and not references.exists()


def test_overwriting_deletes_a_test_set_that_cannot_be_written_again(tmp_path: Path) -> None:
    for side in ("en", "el"):
        (tmp_path / f"toy.far.{side}").write_text("old\n", "utf-8")
    generate_data(Published(), tmp_path, "")
    assert (tmp_path / "toy.far.en").exists()
    generate_data(Published(), tmp_path, "", Options(overwrite=True))
    assert sorted(path.name for path in tmp_path.glob("toy.*.el")) == [
        "toy.first_full.el",
        "toy.second.el",
    ]


@pytest.mark.parametrize(
    ("sources", "targets", "fault"), [(2, 3, "have 2 and 3 lines"), (0, 0, "empty")]
)
def test_a_test_set_that_cannot_be_scored_is_refused(
    tmp_path: Path, sources: int, targets: int, fault: str
) -> None:
    for side, count in (("en", sources), ("el", targets)):
        (tmp_path / f"toy.second.{side}").write_text("a\u2028b.\n" * count, "utf-8")
    with pytest.raises(UserError) as raised:
        test_set_files.ensure(Published(), tmp_path, "")
    assert f"{tmp_path}/toy.second.en" in str(raised.value) and fault in str(raised.value)
    assert "delete both files" in str(raised.value)
