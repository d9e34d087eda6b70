"""Tests the vocabulary, shards and description that datagen writes, and the files that remain after an error."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest

from folders import contents
from t2t_repro import registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.description import Description
from t2t_repro.data.job import Options
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from toys import ENGLISH, GREEK, Toy, failure, raise_at, text_files

OVERWRITE = Options(overwrite=True)


def texts(problem: Toy, split: str) -> list[tuple[str, str]]:
    """Returns the pairs of source and target text in a split of `problem`."""
    return [(pair["inputs"], pair["targets"]) for pair in problem.pairs[split]]


def read_back(folder: Path, split: str) -> list[tuple[str, str]]:
    """Returns the pairs of source and target text that are decoded from the shards of a split."""
    vocab = load_vocabulary(folder / "vocab.toy.400.model")
    records = Records(find_shards(folder, "toy", split))
    sides = [vocab.decode([records[number][side].tolist() for number in range(len(records))]) for side in (0, 1)]
    return list(zip(*sides, strict=True))


@pytest.mark.parametrize(("train", "sizes"), [(1, [1]), (2, [1, 1]), (50, [16, 17, 17]), (5003, [1667, 1668, 1668])])
def test_even_shards_hold_all_text_in_order(tmp_path: Path, train: int, sizes: list[int]) -> None:
    problem = Toy(train)
    generated = generate_data(problem, tmp_path, "")
    assert generated == Description.load(tmp_path / "toy.json")
    for split in ("train", "dev"):
        assert read_back(tmp_path, split) == texts(problem, split)
        assert generated.pairs[split] == len(problem.pairs[split])
    assert [len(Records([path])) for path in find_shards(tmp_path, "toy", "train")] == sizes
    assert len(find_shards(tmp_path, "toy", "dev")) == 1


def test_the_folder_holds_exactly_these_files_and_the_description_is_the_last(tmp_path: Path) -> None:
    generate_data(Toy(), tmp_path, "")
    shards = [f"toy-train-0000{number}-of-00003" for number in range(3)] + ["toy-dev-00000-of-00001"]
    assert set(contents(tmp_path)) == {
        "toy.json", "datagen.json", "vocab.toy.400.model", *shards, *(f"{shard}.index" for shard in shards)
    }  # fmt: skip
    times = {path.name: path.stat().st_mtime_ns for path in tmp_path.iterdir()}
    times.pop("datagen.json")  # the summary may be newer than toy.json, because no program needs the summary
    assert times["toy.json"] == max(times.values())


def test_other_text_has_another_fingerprint(tmp_path: Path) -> None:
    problem = Toy()
    before = generate_data(problem, tmp_path / "one", "")
    problem.pairs["dev"][3]["targets"] += " σπίτι"
    after = generate_data(problem, tmp_path / "two", "")
    assert before.vocabulary_fingerprint == after.vocabulary_fingerprint
    assert before.fingerprint != after.fingerprint


def test_pairs_with_an_empty_side_are_dropped_and_counted(tmp_path: Path) -> None:
    problem = Toy(20)
    clean_pairs = texts(problem, "train")
    for position, empty in ((0, ("", "x")), (7, ("x", " \t")), (7, ("\u00a0", "x")), (23, ("", ""))):
        problem.pairs["train"].insert(position, dict(zip(("inputs", "targets"), empty, strict=True)))
    generated = generate_data(problem, tmp_path, "")
    assert read_back(tmp_path, "train") == clean_pairs
    assert generated.pairs == {"train": 20, "dev": 10}
    assert generated.dropped == {"train": {"empty side": 4}, "dev": {}}


def test_a_problem_and_its_reverse_have_the_same_data(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    sources = contents(tmp_path)
    generate_data(problem, tmp_path / "one", "")
    generate_data(registry.problem("text_files_rev", vars(problem.settings)), tmp_path / "two", "")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")
    assert all((tmp_path / name).read_bytes() == text for name, text in sources.items())


def test_the_vocabulary_of_a_large_text_is_learned_from_both_sides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sentencepiece, "sample", functools.partial(sentencepiece.sample, max_bytes=20_000))
    generate_data(Toy(3000), tmp_path, "")
    vocab = load_vocabulary(tmp_path / "vocab.toy.400.model")
    for text in (*ENGLISH, *GREEK):
        assert len(vocab.encode([text])[0]) < len(text)


def test_a_smaller_second_run_deletes_the_old_description_and_the_old_shards(tmp_path: Path) -> None:
    passes_with_description = set()

    def watch(split: str, passes: int, number: int) -> None:
        passes_with_description.add((passes, (tmp_path / "toy.json").exists()))

    generate_data(Toy(50), tmp_path, "")
    generate_data(Toy(2, watch=watch), tmp_path, "", OVERWRITE)
    assert passes_with_description == {(1, True), (2, False)}
    assert len(find_shards(tmp_path, "toy", "train")) == 2
    assert len(read_back(tmp_path, "train")) == 2


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_source_that_fails_in_the_first_pass_leaves_no_new_file(tmp_path: Path, split: str) -> None:
    (tmp_path / "mine").write_bytes(b"stays")
    for folder in (tmp_path, tmp_path / "new"):
        problem = Toy(watch=raise_at(UserError("line 9 is damaged"), split, 1, 8))
        assert failure(problem, folder) == "line 9 is damaged"
    assert contents(tmp_path) == {"mine": b"stays"}


def test_older_data_survives_an_error_in_the_first_pass_even_with_overwrite(tmp_path: Path) -> None:
    generate_data(Toy(), tmp_path, "")
    before = contents(tmp_path)
    failure(Toy(watch=raise_at(UserError("no source"), "train", 1, 0)), tmp_path, overwrite=True)
    problem = Toy()
    problem.settings = Problem.Settings(20)  # an error: a vocabulary has at least 256 pieces
    failure(problem, tmp_path, overwrite=True)
    assert contents(tmp_path) == before


def test_the_train_split_is_cleaned_and_the_dev_split_is_not(tmp_path: Path) -> None:
    problem = Toy(30)
    clean_pairs = texts(problem, "train")
    additional = [
        {"inputs": "red " * 9, "targets": "x"},
        {"inputs": "a b c d", "targets": "x"},
        {"inputs": " ", "targets": "x"},
    ]
    for split in ("train", "dev"):
        problem.pairs[split] += [*additional, problem.pairs[split][2]]
    problem.settings = Problem.Settings(400, clean_max_words=8, clean_max_ratio=3.0, clean_duplicates=True)
    generated = generate_data(problem, tmp_path, "")
    assert read_back(tmp_path, "train") == clean_pairs
    assert len(read_back(tmp_path, "dev")) == 10 + 3
    assert generated.pairs == {"train": 30, "dev": 13}
    assert generated.dropped == {
        "train": {"too many words": 1, "length ratio": 1, "empty side": 1, "duplicate": 1}, "dev": {"empty side": 1}
    }  # fmt: skip


@pytest.mark.parametrize("split", ["train", "dev"])
def test_a_lone_surrogate_is_an_error_of_one_line(tmp_path: Path, split: str) -> None:
    problem = Toy()
    problem.pairs[split][3]["targets"] = "a\ud800b"
    assert failure(problem, tmp_path) == (
        r"'a\ud800b': not UTF-8 text, because character 2 is a lone surrogate; remove it"
    )
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(("train", "dev", "split"), [(0, 5, "train"), (5, 0, "dev")])
def test_a_split_without_text_is_an_error(tmp_path: Path, train: int, dev: int, split: str) -> None:
    assert f"problem toy: no pair is left in its {split} split (read 0);" in failure(Toy(train, dev), tmp_path)
    assert contents(tmp_path) == {}


def test_cleaning_that_drops_everything_is_an_error_with_the_reasons(tmp_path: Path) -> None:
    problem = Toy()
    problem.pairs["train"].append({"inputs": "", "targets": "x"})
    problem.settings = Problem.Settings(400, clean_max_words=1)
    message = failure(problem, tmp_path)
    assert "no pair is left in its train split (read 51, " in message
    assert "too many words 50" in message and "empty side 1" in message


@pytest.mark.parametrize("growth", [-1, 1])
def test_a_text_that_grows_or_shrinks_between_the_passes_is_an_error(tmp_path: Path, growth: int) -> None:
    problem = Toy()

    def watch(*place: object) -> None:
        if place == ("train", 1, 0):
            train = problem.pairs["train"]
            problem.pairs["train"] = train[:growth] if growth < 0 else train + train[:growth]

    problem.watch = watch
    assert "problem toy: its train" in failure(problem, tmp_path)
    assert contents(tmp_path) == {}


CHANGES: dict[str, Callable[[list[dict[str, str]]], object]] = {
    "source": lambda pairs: pairs[4].update(inputs="green"),
    "target": lambda pairs: pairs[-1].update(targets="μικρό"),
    "order": lambda pairs: pairs.insert(5, pairs.pop(6)),
    "sides": lambda pairs: pairs.insert(3, dict(zip(pairs[3], list(pairs.pop(3).values())[::-1], strict=True))),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("duplicates", [False, True])
def test_a_text_that_changes_between_the_passes_is_an_error(
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


def test_settings_are_checked_before_text_is_read(tmp_path: Path) -> None:
    problem = Toy(watch=lambda *place: pytest.fail("read"))
    problem.settings = Problem.Settings(vocab_size=0)
    assert "--vocab_size=0 must be in 1 .. 2147483647" in failure(problem, tmp_path / "new")
    assert not (tmp_path / "new").exists()


def test_files_with_different_numbers_of_lines_leave_no_file(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    with open(tmp_path / "b.en", "a") as file:
        file.write("one more\n")
    message = failure(problem, tmp_path / "data")
    assert "b.en has 6 lines" in message and "b.el has 5" in message
    assert contents(tmp_path / "data") == {}
