"""From text to vocabulary, shards and description."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from disks import largest_file
from t2t_repro import registry
from t2t_repro.data import description as description_module
from t2t_repro.data import summary, test_set_files, vocabulary
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.description import Description, load_description, load_problem
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from t2t_repro.textfile import read_lines, whole_file
from toys import ENGLISH, GREEK, Published, Toy, contents, lines


def read_back(folder: Path, split: str) -> list[tuple[str, str]]:
    """The pairs that the shards hold, as text."""
    words = Vocabulary.load(folder / "vocab.toy.400.model")
    read = Records(find_shards(folder, "toy", split))
    sides = [words.decode([read[number][side].tolist() for number in range(len(read))]) for side in (0, 1)]
    return list(zip(*sides, strict=True))


def failure(problem: Problem, folder: Path) -> str:
    with pytest.raises(UserError) as error:
        generate_data(problem, folder, "")
    assert "\n" not in str(error.value)
    return str(error.value)


def text_files(folder: Path) -> Problem:
    """The problem text_files with small files of its own."""
    for name, words, count in (("a.en", ENGLISH, 40), ("a.el", GREEK, 40), ("b.en", ENGLISH, 5), ("b.el", GREEK, 5)):
        (folder / name).write_text("".join(line + "\n" for line in lines(count, words)), "utf-8")
    settings = {"train": f"{folder}/a.en,{folder}/a.el", "dev": f"{folder}/b.en,{folder}/b.el", "vocab_size": 400}
    return registry.problem("text_files", settings)


@pytest.mark.parametrize("train", [1, 2, 50, 5003])
def test_the_shards_hold_all_text_in_order(tmp_path: Path, train: int) -> None:
    problem = Toy(train)
    description = generate_data(problem, tmp_path, "")
    for split in ("train", "dev"):
        expected = [(pair["inputs"], pair["targets"]) for pair in problem.pairs[split]]
        assert read_back(tmp_path, split) == expected
        assert description.pairs[split] == len(expected)


@pytest.mark.parametrize(("train", "sizes"), [(50, [16, 17, 17]), (2, [1, 1]), (5003, [1667, 1668, 1668])])
def test_the_train_split_is_spread_evenly_and_dev_is_one_shard(tmp_path: Path, train: int, sizes: list[int]) -> None:
    generate_data(Toy(train), tmp_path, "")
    assert [len(Records([path])) for path in find_shards(tmp_path, "toy", "train")] == sizes
    assert len(find_shards(tmp_path, "toy", "dev")) == 1


def test_each_file_is_there_and_no_other(tmp_path: Path) -> None:
    generate_data(Toy(), tmp_path, "")
    shards = [f"toy-train-0000{number}-of-00003" for number in range(3)] + ["toy-dev-00000-of-00001"]
    assert set(contents(tmp_path)) == {
        "toy.json", "datagen.json", "vocab.toy.400.model", *shards, *(f"{shard}.index" for shard in shards)
    }  # fmt: skip


def test_two_runs_give_the_same_bytes(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        generate_data(Toy(), tmp_path / folder, "")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


def test_other_text_gives_another_fingerprint(tmp_path: Path) -> None:
    problem = Toy()
    before = generate_data(problem, tmp_path / "one", "")
    problem.pairs["dev"][3]["targets"] += " σπίτι"
    after = generate_data(problem, tmp_path / "two", "")
    assert before.vocabulary_fingerprint == after.vocabulary_fingerprint
    assert before.fingerprint != after.fingerprint


def test_pairs_with_an_empty_side_are_left_out_and_counted(tmp_path: Path) -> None:
    problem = Toy(20)
    kept = [(pair["inputs"], pair["targets"]) for pair in problem.pairs["train"]]
    for position, empty in ((0, ("", "x")), (7, ("x", " \t")), (7, ("\u00a0", "x")), (23, ("", ""))):
        problem.pairs["train"].insert(position, dict(zip(("inputs", "targets"), empty, strict=True)))
    description = generate_data(problem, tmp_path, "")
    assert read_back(tmp_path, "train") == kept
    assert description.pairs == {"train": 20, "dev": 10}
    assert description.dropped == {"train": {"empty side": 4}, "dev": {}}


def test_reversed_problems_share_the_data(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    forward = contents(tmp_path)
    generate_data(problem, tmp_path / "one", "")
    backward = registry.problem("text_files_rev", vars(problem.settings))
    generate_data(backward, tmp_path / "two", "")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert all((tmp_path / name).read_bytes() == text for name, text in forward.items())
    again, _, _ = load_problem(tmp_path / "two", "text_files_rev")
    assert again.was_reversed and again.settings == problem.settings


def test_the_vocabulary_is_learned_from_both_sides_of_a_large_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vocabulary, "sample", functools.partial(vocabulary.sample, max_bytes=20_000))
    generate_data(Toy(3000), tmp_path, "")
    words = Vocabulary.load(tmp_path / "vocab.toy.400.model")
    for text in (*ENGLISH, *GREEK):
        assert len(words.encode([text])[0]) < len(text)


def test_the_description_is_written_last(tmp_path: Path) -> None:
    generate_data(Toy(), tmp_path, "")
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    times.pop("datagen.json")  # what people read of it; no program does
    assert times["toy.json"] == max(times.values())


def test_no_description_stands_while_shards_are_written(tmp_path: Path) -> None:
    seen = []

    def watch(split: str, passes: int, number: int) -> None:
        seen.append((passes, (tmp_path / "toy.json").exists()))

    generate_data(Toy(), tmp_path, "")
    generate_data(Toy(watch=watch), tmp_path, "")
    assert set(seen) == {(1, True), (2, False)}


def test_a_smaller_run_leaves_no_shard_of_a_larger_one(tmp_path: Path) -> None:
    generate_data(Toy(50), tmp_path, "")
    generate_data(Toy(2), tmp_path, "")
    assert len(find_shards(tmp_path, "toy", "train")) == 2
    assert len(read_back(tmp_path, "train")) == 2


@pytest.mark.parametrize(("split", "passes"), [("train", 1), ("dev", 1), ("train", 2), ("dev", 2)])
def test_a_source_that_fails_half_way_leaves_no_new_file(tmp_path: Path, split: str, passes: int) -> None:
    def watch(now: str, count: int, number: int) -> None:
        if (now, count, number) == (split, passes, 8):
            raise UserError("line 9 is damaged")

    (tmp_path / "mine").write_bytes(b"stays")
    assert failure(Toy(watch=watch), tmp_path) == "line 9 is damaged"
    assert contents(tmp_path) == {"mine": b"stays"}


def test_train_is_cleaned_as_asked_and_dev_is_not(tmp_path: Path) -> None:
    problem = Toy(30)
    kept = [(pair["inputs"], pair["targets"]) for pair in problem.pairs["train"]]
    odd = [
        {"inputs": "red " * 9, "targets": "x"},
        {"inputs": "a b c d", "targets": "x"},
        {"inputs": " ", "targets": "x"},
    ]
    for split in ("train", "dev"):
        problem.pairs[split] += [*odd, problem.pairs[split][2]]
    problem.settings = Problem.Settings(400, clean_max_words=8, clean_max_ratio=3.0, clean_duplicates=True)
    description = generate_data(problem, tmp_path, "")
    assert read_back(tmp_path, "train") == kept
    assert len(read_back(tmp_path, "dev")) == 10 + 3
    assert description.pairs == {"train": 30, "dev": 13}
    assert description.dropped == {
        "train": {"too many words": 1, "length ratio": 1, "empty side": 1, "duplicate": 1}, "dev": {"empty side": 1}
    }  # fmt: skip


def test_cleaning_that_leaves_nothing_says_why(tmp_path: Path) -> None:
    problem = Toy()
    problem.pairs["train"].append({"inputs": "", "targets": "x"})
    problem.settings = Problem.Settings(400, clean_max_words=1)
    message = failure(problem, tmp_path)
    assert "no pair is left in its train split, of 51 read" in message
    assert "too many words 50" in message and "empty side 1" in message


def test_test_sets_are_written_as_text_and_one_that_is_missing_is_said(
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
    spoken = capsys.readouterr().err.splitlines()
    assert "test set far is not written: far.tgz: no such file; download it" in spoken
    [line] = [line for line in spoken if line.startswith("test set second: 3 pairs in ")]
    assert f"{tmp_path}/toy.second.en" in line and f"{tmp_path}/toy.second.el" in line


@pytest.mark.parametrize(("sources", "targets"), [(2, 3), (0, 0)])
def test_a_test_set_that_cannot_be_scored_is_refused_at_once(tmp_path: Path, sources: int, targets: int) -> None:
    for side, count in (("en", sources), ("el", targets)):
        (tmp_path / f"toy.second.{side}").write_text("a\u2028b.\n" * count, "utf-8")
    with pytest.raises(UserError) as raised:
        test_set_files.ensure(Published(), tmp_path, "")
    assert str(raised.value).startswith(
        f"{tmp_path}/toy.second.en has {sources} lines and toy.second.el {targets}; each line needs its translation; "
    )


def test_a_disk_that_is_full_after_the_test_sets_leaves_no_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*arguments: Any) -> None:
        raise UserError("datagen.json: cannot be written")

    monkeypatch.setattr(summary, "save", full)
    failure(Published(), tmp_path)
    assert contents(tmp_path) == {}


def test_a_failure_in_the_first_pass_leaves_older_data_as_it_was(tmp_path: Path) -> None:
    def watch(split: str, passes: int, number: int) -> None:
        raise UserError("no source today")

    generate_data(Toy(), tmp_path, "")
    before = contents(tmp_path)
    failure(Toy(watch=watch), tmp_path)
    assert contents(tmp_path) == before


def test_a_failure_in_the_second_pass_leaves_no_description_of_older_data(tmp_path: Path) -> None:
    def watch(split: str, passes: int, number: int) -> None:
        if passes == 2:
            raise UserError("no source any more")

    generate_data(Toy(), tmp_path, "")
    failure(Toy(watch=watch), tmp_path)
    assert not (tmp_path / "toy.json").exists()


@pytest.mark.parametrize("limit", [100, 30_000])
def test_a_full_disk_leaves_no_new_file(tmp_path: Path, limit: int) -> None:
    with largest_file(limit):
        message = failure(Toy(5000), tmp_path)
    assert "cannot be written" in message and str(tmp_path) in message
    assert contents(tmp_path) == {}


def test_a_disk_that_is_full_for_the_description_alone_leaves_no_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, mode: str) -> Any:
        if path.name == "toy.json":
            raise UserError(f"{path}: cannot be written")
        return whole_file(path, mode)

    monkeypatch.setattr(description_module, "whole_file", full)
    assert "toy.json: cannot be written" in failure(Toy(), tmp_path)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize("more", [-1, 1])
def test_a_text_that_changes_between_the_passes_is_an_error(tmp_path: Path, more: int) -> None:
    problem = Toy()

    def watch(split: str, passes: int, number: int) -> None:
        if (split, passes, number) == ("train", 1, 0):
            train = problem.pairs["train"]
            problem.pairs["train"] = train[:more] if more < 0 else train + train[:more]

    problem.watch = watch
    assert "problem toy: its train" in failure(problem, tmp_path)
    assert contents(tmp_path) == {}


CHANGES: dict[str, Callable[[list[dict[str, str]]], object]] = {
    "a source": lambda pairs: pairs[4].update(inputs="green"),
    "a target": lambda pairs: pairs[-1].update(targets="μικρό"),
    "order": lambda pairs: pairs.insert(5, pairs.pop(6)),
    "sides": lambda pairs: pairs.insert(3, dict(zip(pairs[3], list(pairs.pop(3).values())[::-1], strict=True))),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("duplicates", [False, True])
def test_a_text_that_changes_and_keeps_its_length_is_an_error(
    tmp_path: Path, split: str, change: str, duplicates: bool
) -> None:
    problem = Toy()
    problem.settings = Problem.Settings(400, clean_duplicates=duplicates)

    def watch(*place: object) -> None:
        if place == (split, 2, 0):
            CHANGES[change](problem.pairs[split])

    problem.watch = watch
    assert f"problem toy: its {split} text changed while it was read" in failure(problem, tmp_path)
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(("train", "dev", "split"), [(0, 5, "train"), (5, 0, "dev")])
def test_a_split_without_text_is_an_error(tmp_path: Path, train: int, dev: int, split: str) -> None:
    assert f"problem toy: no pair is left in its {split} split, of 0 read" in failure(Toy(train, dev), tmp_path)
    assert contents(tmp_path) == {}


def test_settings_are_checked_before_anything_is_read_or_written(tmp_path: Path) -> None:
    read = []
    problem = Toy(watch=lambda *place: read.append(place))
    problem.settings = Problem.Settings(vocab_size=0)
    assert "--vocab_size=0 must be 1 or more" in failure(problem, tmp_path / "new")
    assert not read and not (tmp_path / "new").exists()


def test_different_numbers_of_lines_leave_no_file(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    with open(tmp_path / "b.en", "a") as file:
        file.write("one more\n")
    message = failure(problem, tmp_path / "data")
    assert "b.en has 6 lines" in message and "b.el has 5" in message
    assert contents(tmp_path / "data") == {}


def test_data_is_loaded_with_the_settings_it_was_made_with(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    made = generate_data(problem, tmp_path / "data", "")
    loaded, words, description = load_problem(tmp_path / "data", "text_files")
    assert loaded.settings == problem.settings
    assert description == made
    assert words.fingerprint == made.vocabulary_fingerprint
    assert json.loads((tmp_path / "data" / "text_files.json").read_text("utf-8"))["pairs"] == {"train": 40, "dev": 5}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder with the data of text_files."""
    generate_data(text_files(tmp_path), tmp_path / "data", "")
    return tmp_path / "data"


def load_failure(data: Path, name: str = "text_files") -> str:
    with pytest.raises(UserError) as error:
        load_problem(data, name)
    return str(error.value)


def test_data_of_another_problem_is_named(data: Path) -> None:
    message = load_failure(data, "numbers_ende")
    assert f"{data}: no data of problem 'numbers_ende' there (it holds text_files)" in message
    assert f"run t2t-datagen --problem=numbers_ende --data_dir={data}" in message


def test_an_empty_or_missing_folder_holds_no_data(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / "nowhere"):
        assert f"{folder}: no data of problem 'text_files' there; run t2t-datagen" in load_failure(folder)


def test_a_swapped_vocabulary_is_found_by_its_fingerprint(data: Path) -> None:
    other = vocabulary.train(lines(100), 300)
    right = Vocabulary.load(data / "vocab.text_files.400.model")
    other.save(data / "vocab.text_files.400.model")
    message = load_failure(data)
    assert other.fingerprint in message and right.fingerprint in message
    assert "vocab.text_files.400.model" in message


def test_a_missing_vocabulary_is_named(data: Path) -> None:
    os.unlink(data / "vocab.text_files.400.model")
    assert "vocab.text_files.400.model: no such vocabulary" in load_failure(data)


def change(**fields: Any) -> Callable[[str], str]:
    """A function that changes fields of a description; None takes them away."""

    def changed(text: str) -> str:
        kept = {name: value for name, value in (json.loads(text) | fields).items() if value is not None}
        return json.dumps(kept)

    return changed


@pytest.mark.parametrize(
    "damage",
    [
        pytest.param(lambda text: "", id="empty"),
        pytest.param(lambda text: text[:-20], id="truncated"),
        pytest.param(lambda text: "[]", id="no object"),
        pytest.param(change(vocabulary=None), id="a field missing"),
        pytest.param(change(pairs=3), id="a field of another type"),
        pytest.param(change(colour="red"), id="an unknown field"),
    ],
)
def test_a_damaged_description_is_named(data: Path, damage: Callable[[str], str]) -> None:
    path = data / "text_files.json"
    path.write_text(damage(path.read_text("utf-8")), "utf-8")
    assert f"{path}:" in load_failure(data)


def test_a_description_that_is_not_utf8_is_named(data: Path) -> None:
    (data / "text_files.json").write_bytes(b"\xff\xfe{}")
    assert f"{data}/text_files.json:" in load_failure(data)


def test_a_description_says_what_the_folder_holds(data: Path) -> None:
    description = load_description(data, registry.problem("text_files_rev"))
    assert isinstance(description, Description)
    assert (description.problem, description.vocabulary) == ("text_files", "vocab.text_files.400.model")
    assert len(description.fingerprint) == len(description.vocabulary_fingerprint) == 12
