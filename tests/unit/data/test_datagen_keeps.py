"""Tests which existing files datagen keeps, replaces and refuses to replace, and what an interrupted run leaves."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from disks import largest_file
from folders import contents, put
from t2t_repro import registry
from t2t_repro.data import test_set_files
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.job import Options, source_files
from t2t_repro.data.unfinished import LOCK
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import UNFINISHED, locked
from t2t_repro.problem import Problem
from toys import ENGLISH, GREEK, Published, Toy, failure, lines, raise_at, text_files
from user_errors import user_error

OVERWRITE = Options(overwrite=True)
OTHERS = {".toy_rev-train-00000-of-00001", ".toyota.json", "toy-train.txt", "vocab.toyota.400.model", "toy.notes",
          "toy.first_full.old", ".toy-train-1.settings", "toyota-train-00000-of-00001"}  # fmt: skip
"""Files of the user with names that are almost those of the problem's data."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Returns the contents of the files that generate_data writes for the problem Published."""
    folder = tmp_path_factory.mktemp("published")
    generate_data(Published(), folder, "")
    return contents(folder)


def times(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mtime_ns for path in folder.iterdir()}


def test_a_repeated_run_reads_the_text_once_and_changes_no_file(
    tmp_path: Path, published: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    put(published, tmp_path)
    (tmp_path / "toy.second.en").unlink()  # A missing test set is written.
    before = times(tmp_path)
    problem = Published()
    generate_data(problem, tmp_path, "")
    assert capsys.readouterr().err.endswith(
        f"{tmp_path}: the data of problem toy is complete; --overwrite generates it again\n"
    )
    assert contents(tmp_path) == published and problem.passes == {"train": 1, "dev": 1}
    del before["toy.second.el"]
    assert before.items() <= times(tmp_path).items()
    generate_data(Published(), tmp_path, "", OVERWRITE)
    assert contents(tmp_path) == published and times(tmp_path)["toy-dev-00000-of-00001"] > max(before.values())


def test_damaged_data_is_generated_again(tmp_path: Path, published: dict[str, bytes]) -> None:
    for name in ("toy-train-00001-of-00003", "toy-dev-00000-of-00001", "vocab.toy.400.model"):
        for damaged in (published[name][:-1] + b"!", None):
            put(published, tmp_path)
            (tmp_path / name).write_bytes(damaged) if damaged else (tmp_path / name).unlink()
            generate_data(Published(), tmp_path, "")
            assert contents(tmp_path) == published


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda toy: toy.pairs["train"][3].update(targets="άλλο"), id="train"),
        pytest.param(lambda toy: toy.pairs["dev"].pop(), id="dev"),
        pytest.param(lambda toy: setattr(toy, "settings", Problem.Settings(400, clean_max_words=4)), id="setting"),
        pytest.param(lambda toy: setattr(toy, "symbols", ("red house",)), id="symbols"),
        pytest.param(lambda toy: setattr(toy, "num_train_shards", 2), id="shards"),
    ],
)
def test_other_text_or_settings_replace_data_only_with_overwrite(
    tmp_path: Path, change: Callable[[Toy], None], published: dict[str, bytes]
) -> None:
    other = Toy()
    change(other)
    put(dict.fromkeys(OTHERS, b"stays"), tmp_path)
    generate_data(Toy(), tmp_path, "")
    before = contents(tmp_path)
    message = failure(other, tmp_path)
    assert message.startswith(f"{tmp_path}: holds data of problem toy that was made ")
    assert "; run t2t-datagen with --overwrite to replace that data, or give another --data_dir" in message
    assert contents(tmp_path) == before
    generate_data(other, tmp_path, "", OVERWRITE)
    shutil.rmtree(tmp_path / "fresh", ignore_errors=True)
    generate_data(other, tmp_path / "fresh", "")
    new = {path.name: path.read_bytes() for path in tmp_path.iterdir() if path.is_file()}
    assert new == contents(tmp_path / "fresh") | dict.fromkeys(OTHERS, b"stays")


def test_files_of_an_unknown_origin_are_not_deleted(tmp_path: Path) -> None:
    for name in ("toy-train-00000-of-00001", "toy.json"):
        put({name: b"{}"}, tmp_path / name)
        assert "by another program; run t2t-datagen with --overwrite" in failure(Toy(), tmp_path / name)
        assert contents(tmp_path / name) == {name: b"{}"}


def test_a_folder_of_downloads_that_others_can_write_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Downloaded(Published):
        is_self_contained = False  # type: ignore[assignment]

    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o777)
    problem = Downloaded(watch=lambda *place: pytest.fail("read"))
    assert "other users can write there" in user_error(generate_data, problem, tmp_path / "D", str(tmp_path / "tmp"))
    test_set_files.write(problem, tmp_path / "D", str(tmp_path / "tmp"))
    assert capsys.readouterr().err.count("is not written: --tmp_dir=") == 3
    assert contents(tmp_path / "D") == {}


def test_older_data_survives_an_error_even_with_overwrite(tmp_path: Path, published: dict[str, bytes]) -> None:
    put(published, tmp_path)
    for place in (("train", 1, 0), ("train", 2, 49), ("dev", 2, 9)):
        failure(Toy(watch=raise_at(UserError("no source"), *place)), tmp_path, overwrite=True)
        assert contents(tmp_path) == published
    with largest_file(100):
        assert "cannot be written" in failure(Published(), tmp_path, overwrite=True)
    assert contents(tmp_path) == published


class KilledError(BaseException):
    """Stands for a signal that ends the run."""


def files_until_killed(problem: Toy, folder: Path, files: int) -> bool:
    """Generates data, but stops before it renames more than `files` files. Returns True if the run finished."""
    replace = os.replace

    def replace_or_die(*paths: Any) -> None:
        nonlocal files
        files -= 1
        if files < 0:
            raise KilledError
        replace(*paths)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KilledError):
        patch.setattr(os, "replace", replace_or_die)
        generate_data(problem, folder, "", OVERWRITE)
        return True
    return False


def test_a_run_may_be_stopped_before_any_file(tmp_path: Path) -> None:
    class Small(Published):
        num_train_shards = 1
        test_sets = ("second",)

    generate_data(Small(), tmp_path / "unbroken", "")
    unbroken = contents(tmp_path / "unbroken")
    # Vocabulary, two shards with their indexes, two files of a test set, summary, description: each is first written
    # and then moved.
    count = len(unbroken)
    assert count == 1 + 2 * 2 + 2 + 1 + 1
    for files in (0, 3, *range(count, 2 * count)):
        folder = tmp_path / f"{files}"
        assert not files_until_killed(Small(), folder, files)
        assert contents(folder).keys() <= unbroken.keys() - {"toy.json"} - {name for name in unbroken if "-of-" in name}
        generate_data(Small(), folder, "")
        assert contents(folder) == unbroken
    assert files_until_killed(Small(), tmp_path / "last", 2 * count)


def test_what_a_killed_run_left_is_deleted(tmp_path: Path, published: dict[str, bytes]) -> None:
    put({"toy-train-00000-of-00003": b"half", ".toy.json.abcd": b"half"}, tmp_path / UNFINISHED)
    generate_data(Published(), tmp_path, "")
    assert contents(tmp_path) == published and not (tmp_path / UNFINISHED).exists()
    # The kill came before the run moved a file, so the old data is complete.
    put(published, tmp_path / UNFINISHED)
    before = times(tmp_path)
    generate_data(Published(), tmp_path, "")
    assert {name: before[name] for name in published} == times(tmp_path)


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    def watch(split: str, passes: int, number: int) -> None:
        if number == 0:
            message = failure(Toy(20), tmp_path)
            assert message.startswith(f"{tmp_path}: another t2t-datagen is at work there; wait for its end, or give")
            with locked(tmp_path / ".lock", "", ""):  # t2t-trainer locks this file, which must be free
                pass

    generate_data(Toy(watch=watch), tmp_path, "")
    assert not (tmp_path / LOCK).exists()


def test_a_label_is_changed_without_generating_the_data_again(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    generate_data(problem, tmp_path / "data", "")
    before = contents(tmp_path / "data")
    problem.settings = dataclasses.replace(problem.settings, languages="en,el")
    description = generate_data(problem, tmp_path / "data", "")
    assert description.settings == vars(problem.settings)
    after = contents(tmp_path / "data")
    assert json.loads(after.pop("text_files.json"))["settings"]["languages"] == "en,el"
    assert json.loads(before.pop("text_files.json"))["settings"]["languages"] == ""
    # Without --languages, a label stays.
    assert generate_data(text_files(tmp_path), tmp_path / "data", "") == description
    assert after == before


@pytest.fixture
def text(tmp_path: Path) -> Path:
    """Writes text.en and text.el, and returns their path without the suffix."""
    for suffix, words in (("en", ENGLISH), ("el", GREEK)):
        (tmp_path / f"text.{suffix}").write_text("".join(f"{line}\n" for line in lines(40, words)), "utf-8")
    return tmp_path / "text"


@pytest.mark.parametrize(
    "name",
    ["text_files.dev.inputs", "text_files-train-00007-of-00010", "text_files-dev-00000-of-00001.index",
     "vocab.text_files.300.model", "datagen.json"],
)  # fmt: skip
@pytest.mark.parametrize("is_link", [False, True])
def test_a_source_that_the_run_would_write_or_delete_is_refused(text: Path, name: str, is_link: bool) -> None:
    data = text.parent / "data"
    data.mkdir()
    source = shutil.copy(f"{text}.en", data / name)
    if is_link:
        source = data / "link"
        source.symlink_to(data / name)
    before = contents(data)
    settings = {"train": f"{text}.en,{text}.el", "dev": f"{source},{text}.el", "vocab_size": 300}
    problem = registry.problem("text_files", settings)
    assert "is also an input (--dev) and would be overwritten; choose" in failure(problem, data, overwrite=True)
    assert contents(data) == before


def test_the_sources_are_the_existing_files_that_a_setting_names(text: Path) -> None:
    settings = {"train": f" {text}.en , {text}.el", "dev": "none,", "languages": str(text.parent)}
    files = source_files(registry.problem("text_files", settings))
    assert sorted(path.name for _, path in files) == ["text.el", "text.en"]  # type: ignore[union-attr]
    long_setting = ",".join(f"{number:04}" for number in range(200, 300))  # too long to be a file name
    assert source_files(registry.problem("wsj_parsing", {"train_sections": long_setting})) == []
    for name in ("trees", "a,b"):
        (text.parent / name).mkdir()
        (text.parent / name / "a").touch()
        problem = registry.problem("wsj_parsing_semi", {"parsed_trees": str(text.parent / name)})
        assert source_files(problem) == [("--parsed_trees", text.parent / name / "a")]
