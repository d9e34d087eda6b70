"""Tests that datagen keeps finished data: after a failure, when it is repeated, and while another run is at work."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from disks import largest_file
from folders import contents, put
from t2t_repro.data import datagen, summary, test_set_files
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.job import LOCK, Options
from t2t_repro.data.records import Records
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.errors import UserError
from t2t_repro.files.locks import locked
from t2t_repro.problem import Problem
from toys import Published, Toy, failure, raise_at, text_files


class LibraryError(Exception):
    """An exception of a library, which is no UserError."""


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Returns the contents of the files that generate_data writes for the problem Published."""
    folder = tmp_path_factory.mktemp("published")
    generate_data(Published(), folder, "")
    return contents(folder)


def fail(*arguments: Any) -> None:
    raise LibraryError


@pytest.mark.parametrize("owner", [test_set_files.write, summary.summarize, summary.save, datagen._describe])
def test_finished_shards_survive_a_failure_of_any_later_stage(
    tmp_path: Path, published: dict[str, bytes], owner: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = {"write": test_set_files, "_describe": datagen}.get(owner.__name__, summary)
    with monkeypatch.context() as patch, pytest.raises(LibraryError):
        patch.setattr(module, owner.__name__, fail)
        generate_data(Published(), tmp_path, "")
    remaining = contents(tmp_path)
    assert {name for name in published if "-of-" in name or "vocab" in name} < remaining.keys()
    monkeypatch.setattr(sentencepiece, "train", None)  # Learning the vocabulary again would raise an error.
    problem = Published()
    times = {path: path.stat().st_mtime_ns for path in tmp_path.glob("toy-*")}
    generate_data(problem, tmp_path, "")
    assert contents(tmp_path) == published
    assert {path: path.stat().st_mtime_ns for path in times} == times


@pytest.mark.parametrize("error", [UserError("line 9 is damaged"), LibraryError()])
@pytest.mark.parametrize("place", [("train", 20), ("dev", 8)])
def test_finished_shards_survive_a_source_that_fails_in_the_second_pass(
    tmp_path: Path, published: dict[str, bytes], error: Exception, place: tuple[str, int]
) -> None:
    problem = Published()
    problem.watch = raise_at(error, place[0], 2, place[1])
    with pytest.raises(type(error)):
        generate_data(problem, tmp_path, "")
    assert (tmp_path / "toy-train-00000-of-00003").exists()
    generate_data(Published(), tmp_path, "")
    assert contents(tmp_path) == published


@pytest.mark.parametrize("limit", [100, 30_000])
def test_a_full_disk_is_an_error_after_which_the_run_resumes(tmp_path: Path, limit: int) -> None:
    with largest_file(limit):
        message = failure(Toy(2000), tmp_path)
    assert "cannot be written" in message and str(tmp_path) in message
    assert not list(tmp_path.glob(".toy-*")), "a partial file is left"
    generate_data(Toy(2000), tmp_path, "")


def test_a_test_set_whose_library_fails_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Locked(Published):
        def test_set(self, name: str, tmp_dir: str) -> Any:
            if name == "second":
                raise LibraryError("cannot lock\nthe file")
            return super().test_set(name, tmp_dir)

    generate_data(Locked(), tmp_path, "")
    assert "test set second is not written: LibraryError: cannot lock the file\n" in capsys.readouterr().err
    assert (tmp_path / "toy.json").exists() and (tmp_path / "toy.first_full.en").exists()


def test_a_repeated_run_reads_the_text_once_and_changes_no_file(
    tmp_path: Path, published: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    put(published, tmp_path)
    (tmp_path / "toy.second.en").unlink()  # A missing test set is written.
    times = {path: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    passes = set()
    problem = Published()
    problem.watch = lambda split, number, _: passes.add(number)
    generate_data(problem, tmp_path, "")
    assert capsys.readouterr().err.endswith(
        f"{tmp_path}: the data of problem toy is complete; --overwrite generates it again\n"
    )
    assert contents(tmp_path) == published and passes == {1}
    del times[tmp_path / "toy.second.el"]
    assert {path: path.stat().st_mtime_ns for path in times} == times


def test_overwrite_generates_finished_data_again(tmp_path: Path, published: dict[str, bytes]) -> None:
    put(published, tmp_path)
    path = tmp_path / "toy-dev-00000-of-00001"
    before = path.stat().st_mtime_ns
    generate_data(Published(), tmp_path, "", Options(overwrite=True))
    assert contents(tmp_path) == published and path.stat().st_mtime_ns > before


@pytest.mark.parametrize("name", ["toy-train-00001-of-00003", "toy-dev-00000-of-00001.index", "vocab.toy.400.model"])
@pytest.mark.parametrize("is_missing", [False, True])
def test_damaged_files_of_finished_data_are_made_again(
    tmp_path: Path, published: dict[str, bytes], name: str, is_missing: bool
) -> None:
    put(published, tmp_path)
    if is_missing:
        (tmp_path / name).unlink()
    else:
        (tmp_path / name).write_bytes(published[name][:-1])
    before = (tmp_path / "toy-train-00000-of-00003").stat().st_mtime_ns
    generate_data(Published(), tmp_path, "")
    assert contents(tmp_path) == published
    assert (tmp_path / "toy-train-00000-of-00003").stat().st_mtime_ns == before


def test_other_settings_are_refused_before_the_text_is_read(tmp_path: Path, published: dict[str, bytes]) -> None:
    put(published, tmp_path)
    problem = Toy(watch=lambda *place: pytest.fail("read"))
    problem.settings = Problem.Settings(500)
    assert failure(problem, tmp_path) == (
        f"{tmp_path}: holds data of problem toy that was made with --vocab_size=400, not 500; run t2t-datagen "
        "with --overwrite to replace that data, or give another --data_dir to keep it"
    )
    assert contents(tmp_path) == published


def test_data_without_a_record_of_its_text_is_replaced_only_with_overwrite(
    tmp_path: Path, published: dict[str, bytes]
) -> None:
    description = json.loads(published["toy.json"])
    del description["source_fingerprint"], description["shards"]
    old = published | {"toy.json": json.dumps(description).encode()}
    put(old, tmp_path)
    assert "by an older version; run t2t-datagen with --overwrite" in failure(Published(), tmp_path)
    assert contents(tmp_path) == old
    generate_data(Published(), tmp_path, "", Options(overwrite=True))
    assert contents(tmp_path) == published


def test_shards_of_an_unknown_origin_are_not_deleted(tmp_path: Path) -> None:
    (tmp_path / "toy-train-00000-of-00001").write_bytes(b"tensor2tensor's")
    assert "(shards: 1) that this run cannot resume" in failure(Toy(), tmp_path)
    assert contents(tmp_path) == {"toy-train-00000-of-00001": b"tensor2tensor's"}


def test_a_finished_shard_is_not_kept_if_its_text_differs(tmp_path: Path, published: dict[str, bytes]) -> None:
    """The text changes in the second pass, and the run fails before its end. Then the user restores the text."""
    problem = Published()

    def watch(*place: object) -> None:
        if place == ("train", 2, 0):
            problem.pairs["train"][3]["inputs"] = "green"
        if place == ("train", 2, 40):
            raise UserError("a.en has 40 lines but a.el has 50")

    problem.watch = watch
    failure(problem, tmp_path)
    assert len(Records([tmp_path / "toy-train-00000-of-00003"])) == 16
    assert "its train text changed while it was read; run t2t-datagen again" in failure(Published(), tmp_path)
    assert contents(tmp_path) == {}
    generate_data(Published(), tmp_path, "")
    assert contents(tmp_path) == published


def test_a_second_run_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    def watch(split: str, passes: int, number: int) -> None:
        if number == 0:
            message = failure(Toy(20), tmp_path)
            assert message.startswith(f"{tmp_path}: another t2t-datagen is at work there; wait for its end, or give")
            with locked(tmp_path / ".lock", "", ""):  # t2t-trainer locks this file, which must be free
                pass

    generate_data(Toy(watch=watch), tmp_path, "")
    assert not (tmp_path / LOCK).exists()
    generate_data(Toy(), tmp_path, "")


def test_a_data_dir_that_cannot_be_created_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for folder, reason in (("file", "not a folder"), ("file/below", "cannot be written (Not a directory)")):
        assert failure(Toy(), tmp_path / folder) == f"{tmp_path / folder}: {reason}; choose another --data_dir"


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


def test_the_data_directory_may_have_the_name_of_a_language(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    problem = text_files(tmp_path)
    problem.settings = dataclasses.replace(problem.settings, languages="en,el")
    description = generate_data(problem, "el", "")
    assert generate_data(problem, "el", "") == description


def test_a_file_that_a_default_setting_names_is_not_overwritten(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    source = tmp_path / "text_files-train-00000-of-00001"
    source.write_text("a text of the user")

    @dataclasses.dataclass(frozen=True)
    class Settings(type(problem).Settings):  # type: ignore[misc]
        extra: str = str(source)

    problem.settings = Settings(**vars(problem.settings))
    assert f"{source} is also an input (--extra)" in failure(problem, tmp_path)
    assert source.read_text() == "a text of the user"


@pytest.mark.parametrize("pair", [{"inputs": "red"}, {"inputs": "red", "targets": 3}, ("red", "κόκκινο")])
def test_a_problem_that_yields_no_pair_of_texts_is_named(tmp_path: Path, pair: Any) -> None:
    problem = Toy()
    problem.pairs["train"][3] = pair
    assert failure(problem, tmp_path / "new").startswith(f"problem toy: generate yielded {pair!r}; yield a dict")
    assert not (tmp_path / "new").exists()


def test_a_test_set_without_targets_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Wrong(Published):
        def test_set(self, name: str, tmp_dir: str) -> Any:
            return iter([{"inputs": "red"}])

    generate_data(Wrong(), tmp_path, "")
    assert "test set second is not written: KeyError: 'targets'" in capsys.readouterr().err
