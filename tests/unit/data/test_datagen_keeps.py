"""Tests which existing files datagen keeps, replaces and refuses to replace, and what an
interrupted run leaves.
"""

import dataclasses
import itertools
import json
import os
import re
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
from toys import Published, Toy, failure, text_files
from user_errors import user_error

OVERWRITE = Options(overwrite=True)
OTHERS = {
    ".toy_rev-train-00000-of-00001",
    ".toyota.json",
    "toy-train.txt",
    "vocab.toyota.400.model",
    "toy.notes",
    "toy.first_full.old",
    ".toy-train-1.settings",
    "toyota-train-00000-of-00001",
}
"""Files of the user with names that are almost those of the problem's data."""
VOCABULARY = "vocab.toy.400.model"
PLACES = (("train", 1, 8), ("dev", 1, 8), ("train", 2, 20), ("dev", 2, 5))
"""Split, pass and number of the pairs at which a source fails."""


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
    assert contents(tmp_path) == published
    assert times(tmp_path)["toy-dev-00000-of-00001"] > max(before.values())


def test_damaged_data_is_generated_again(tmp_path: Path, published: dict[str, bytes]) -> None:
    for name, damaged in (
        ("toy-train-00001-of-00003", b"!"),
        ("toy-dev-00000-of-00001", None),
        (VOCABULARY, None),
    ):
        put(published, tmp_path)
        (tmp_path / name).unlink()
        if damaged:
            (tmp_path / name).write_bytes(published[name][:-1] + damaged)
        generate_data(Published(), tmp_path, "")
        assert contents(tmp_path) == published


CHANGES: dict[Callable[[Toy], object], str] = {
    lambda toy: toy.pairs["train"][3].update(targets="άλλο"): "from another text",
    lambda toy: toy.pairs["dev"].pop(): "from another text",
    lambda toy: setattr(
        toy, "settings", Problem.Settings(400, clean_max_words=4)
    ): "with --clean_max_words=0, not 4",
    lambda toy: setattr(toy, "symbols", ("red house",)): "from another text",
    lambda toy: setattr(toy, "num_train_shards", 2): "from another text",
}
"""Changes of a problem, and how the message describes the older data."""


def test_other_text_or_settings_replace_data_only_with_overwrite(tmp_path: Path) -> None:
    put(dict.fromkeys(OTHERS, b"stays"), tmp_path / "old")
    generate_data(Toy(), tmp_path / "old", "")
    before = contents(tmp_path / "old")
    for change, reason in CHANGES.items():
        other = Toy()
        change(other)
        message = failure(other, tmp_path / "old")
        assert f"{tmp_path}/old: holds data of problem toy that was made {reason}" in message
        assert "--overwrite" in message and contents(tmp_path / "old") == before
    for folder in ("old", "fresh"):
        generate_data(other, tmp_path / folder, "", OVERWRITE)
    others = dict.fromkeys(OTHERS, b"stays")
    assert contents(tmp_path / "old") == contents(tmp_path / "fresh") | others
    for name in ("toy-train-00000-of-00001", "toy.json"):  # files of an unknown origin
        put({name: b"{}"}, tmp_path / name)
        message = failure(Toy(), tmp_path / name)
        assert "by another program; run t2t-datagen with --overwrite" in message
        assert contents(tmp_path / name) == {name: b"{}"}


def test_a_folder_of_downloads_that_others_can_write_is_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Downloaded(Published):
        is_self_contained = False

    (tmp_path / "tmp").mkdir()
    (tmp_path / "tmp").chmod(0o777)
    problem = Downloaded(watch=lambda *place: pytest.fail("read"))
    assert "other users can write there" in user_error(
        generate_data, problem, tmp_path / "D", str(tmp_path / "tmp")
    )
    test_set_files.write(problem, tmp_path / "D", str(tmp_path / "tmp"))
    assert capsys.readouterr().err.count("is not written: --tmp_dir=") == 3
    assert contents(tmp_path / "D") == {}


def failing(
    train: int = 50,
    dev: int = 10,
    pair: Any = None,
    fails: Any = None,
    changes: str = "",
    **settings: Any,
) -> Toy:
    """Returns a problem with a wrong pair or setting, that fails at a place, or whose text changes
    before pass 2.
    """

    def watch(*place: object) -> None:
        if place == fails:
            raise UserError("line 9 is damaged")
        if place == (changes, 2, 0):
            problem.pairs[changes][4].update(inputs="green")

    problem = Toy(train, dev, watch)
    problem.settings = Problem.Settings(**{"vocab_size": 400} | settings)
    if pair:
        problem.pairs["train"][3] = pair
    return problem


@pytest.mark.parametrize(
    ("options", "named"),
    [
        *(({"fails": place}, "line 9 is damaged") for place in PLACES),
        ({"changes": "train"}, "problem toy: its train text changed while it was read"),
        ({"changes": "dev"}, "problem toy: its dev text changed while it was read"),
        ({"pair": {"inputs": "x", "targets": "a\ud800b"}}, "character 4 is a lone surrogate"),
        (
            {"pair": {"inputs": "red"}},
            "problem toy: generate yielded {'inputs': 'red'}; yield a dict",
        ),
        ({"train": 0}, "problem toy: no pair is left in its train split (read 0);"),
        ({"dev": 0}, "problem toy: no pair is left in its dev split (read 0);"),
        (
            {"clean_max_words": 1},
            "no pair is left in its train split (read 50, too many words 50);",
        ),
        ({"vocab_size": 20}, "--vocab_size=20: too small"),
        ({"vocab_size": -1}, "--vocab_size=-1 must be in 0 .. 2147483647"),
    ],
)
def test_a_run_that_fails_changes_no_file(
    tmp_path: Path, published: dict[str, bytes], options: dict[str, Any], named: str
) -> None:
    assert (
        named in failure(failing(**options), tmp_path / "new") and not (tmp_path / "new").exists()
    )
    put(published, tmp_path)
    assert (
        named in failure(failing(**options), tmp_path, overwrite=True)
        and contents(tmp_path) == published
    )


def test_a_full_disk_changes_no_file(tmp_path: Path, published: dict[str, bytes]) -> None:
    put(published, tmp_path)
    with largest_file(100):
        assert "cannot be written" in failure(Published(), tmp_path, overwrite=True)
    assert contents(tmp_path) == published


class KilledError(BaseException):
    """Stands for a signal that ends the run."""


def generate_until_killed(problem: Toy, folder: Path, files: int) -> None:
    """Generates data, but stops before it renames more than `files` files."""
    replace = os.replace
    names = itertools.count()

    def replace_or_die(*paths: Any) -> None:
        if next(names) == files:
            raise KilledError
        replace(*paths)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(KilledError):
        patch.setattr(os, "replace", replace_or_die)
        generate_data(problem, folder, "", OVERWRITE)


def test_a_run_may_be_stopped_before_any_file(tmp_path: Path, published: dict[str, bytes]) -> None:
    # Each file is first written and then moved.
    for files in (3, len(published), len(published) + 6, 2 * len(published) - 1):
        folder = tmp_path / f"{files}"
        generate_until_killed(Published(), folder, files)
        left = contents(folder).keys()
        assert left <= {name for name in published if "-of-" not in name} - {"toy.json"}
        generate_data(Published(), folder, "")
        assert contents(folder) == published


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
            assert f"{tmp_path}: another t2t-datagen is at work there" in message
            with locked(tmp_path / ".lock", ""):  # t2t-trainer locks this file, which must be free
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


@pytest.mark.parametrize(
    "name",
    [
        "text_files.dev.inputs",
        "text_files-train-00000-of-00001",
        "text_files-dev-00000-of-00001.index",
        "text_files.json",
        "vocab.text_files.400.model",
        "datagen.json",
    ],
)
def test_a_source_that_the_run_would_write_or_delete_is_refused(tmp_path: Path, name: str) -> None:
    problem = text_files(tmp_path)
    data = tmp_path / "data"
    data.mkdir()
    shutil.copy(tmp_path / "b.en", data / name)
    (data / "link").symlink_to(data / name)
    (data / "link.tsv").symlink_to(data / name)
    before = contents(data)
    (tmp_path / "dev.json").write_text(json.dumps({"b": {"files": ["data/link", "b.el"]}}))
    for dev in ("data/link,b.el", "b.en,b.el;data/link.tsv", "dev.json"):
        dev = re.sub("(^|[,;])", rf"\1{tmp_path}/", dev)
        problem.settings = dataclasses.replace(problem.settings, dev=dev)
        message = failure(problem, data, overwrite=True)
        assert "is also an input (--dev) and would be overwritten" in message
        assert contents(data) == before


def test_a_list_of_corpora_that_the_run_would_replace_is_refused(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    data = tmp_path / "data"
    put({"text_files.json": b'{"b": {"files": ["../b.en", "../b.el"]}}'}, data)
    dev = f"{tmp_path}/a.en,{tmp_path}/a.el;{data}/text_files.json"
    problem.settings = dataclasses.replace(problem.settings, dev=dev)
    before = contents(data)
    assert "text_files.json is also an input (--dev)" in failure(problem, data, overwrite=True)
    assert contents(data) == before


def test_the_sources_are_the_existing_files_that_a_setting_names(tmp_path: Path) -> None:
    text_files(tmp_path)
    put({"x": b""}, tmp_path / "b,c")
    train = f" {tmp_path}/a.en , {tmp_path}/a.el"
    longer_than_a_file_name = ",".join(f"{number:04}" for number in range(200, 300))
    for name, settings, files in (
        ("text_files", {"train": train, "dev": "none,"}, {"a.en", "a.el"}),
        ("wsj_parsing_semi", {"parsed_trees": f"{tmp_path}/b,c"}, {"b,c/x"}),
        ("wsj_parsing", {"train_sections": longer_than_a_file_name}, set[str]()),
    ):
        found = source_files(registry.problem(name, settings))
        assert {str(Path(path).relative_to(tmp_path)) for _, path in found} == files
