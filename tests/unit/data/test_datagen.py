"""Tests the vocabulary, shards and description that datagen writes, with any number of
processes.
"""

import multiprocessing
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from folders import contents
from shards import pairs_of
from t2t_repro import registry
from t2t_repro.data import encoding, shards
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import Description
from t2t_repro.data.job import Options
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.sentencepiece import default_size
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from toys import Toy


def texts(problem: Toy, split: str) -> list[tuple[str, str]]:
    """Returns the pairs of source and target text in a split of `problem`."""
    return [(pair["inputs"], pair["targets"]) for pair in problem.pairs[split]]


def read_back(folder: Path, split: str) -> list[tuple[str, str]]:
    """Returns the pairs of source and target text that are decoded from the shards of a split."""
    vocab = load_vocabulary(folder / "vocab.toy.400.model")
    records = Records(find_shards(folder, "toy", split))
    sides = zip(*pairs_of(records), strict=True)
    return list(zip(*map(vocab.decode, sides), strict=True))


@pytest.mark.parametrize(("train", "sizes"), [(2, [1, 1]), (50, [16, 17, 17])])
def test_even_shards_hold_all_text_in_order(tmp_path: Path, train: int, sizes: list[int]) -> None:
    problem = Toy(train)
    generated = generate_data(problem, tmp_path, "")
    assert generated == Description.load(tmp_path / "toy.json")
    if train == 50:
        # Training resumes only on data of the same fingerprint, and t2t-datagen leaves data of the
        # same source fingerprint alone.
        assert generated.fingerprint == "641ce9e15ee2"
        assert generated.source_fingerprint[:12] == "a22a2036181d"
    for split in ("train", "dev"):
        assert read_back(tmp_path, split) == texts(problem, split)
        assert generated.pairs[split] == len(problem.pairs[split])
    shards = find_shards(tmp_path, "toy", "train")
    assert [len(Records([path])) for path in shards] == sizes
    shards += find_shards(tmp_path, "toy", "dev")
    names = {"toy.json", "datagen.json", "vocab.toy.400.model", *(path.name for path in shards)}
    assert set(contents(tmp_path)) == names | {f"{path.name}.index" for path in shards}


def test_the_example_in_the_docs_has_a_dev_split_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "extending.md").read_text("utf-8")
    registry.problem("numbers_ende")  # loads all problems, before the test adds one
    for table in (registry._problems, registry._hparams):
        monkeypatch.setattr(table, "_objects", dict(table._objects))
    exec(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)[0], {})
    for distance in (1, 2):
        problem = registry.problem("poetry", {"distance": distance})
        train, dev = (
            [str(pair) for pair in problem.generate(split, "")] for split in ("train", "dev")
        )
        assert len(train) == 5 - distance and len(dev) == 1 and not set(train) & set(dev)


def test_the_train_split_is_cleaned_and_empty_sides_are_dropped_from_both(tmp_path: Path) -> None:
    problem = Toy(30)
    clean_pairs = texts(problem, "train")
    additional = [("red " * 9, "x"), ("a b c d", "x"), (" ", "x"), ("x", "\u00a0\t")]
    for split in ("train", "dev"):
        problem.pairs[split] += [
            {"inputs": source, "targets": target} for source, target in additional
        ]
        problem.pairs[split].append(problem.pairs[split][2])
    problem.settings = Problem.Settings(
        400, clean_max_words=8, clean_max_ratio=3.0, clean_duplicates=True
    )
    generated = generate_data(problem, tmp_path, "")
    assert read_back(tmp_path, "train") == clean_pairs
    assert len(read_back(tmp_path, "dev")) == 10 + 3
    assert generated.pairs == {"train": 30, "dev": 13}
    assert generated.dropped == {
        "train": {"too many words": 1, "length ratio": 1, "empty side": 2, "duplicate": 1},
        "dev": {"empty side": 2},
    }


@pytest.mark.parametrize(("processes", "started"), [(0, 2), (1, 0)])
def test_processes_and_portions_do_not_change_the_bytes(
    tmp_path: Path, processes: int, started: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: set[Any] = set()
    watch = lambda *place: children.update(multiprocessing.active_children())  # noqa: E731
    generate_data(Toy(210, watch=watch), tmp_path / "one", "")
    assert not children  # one process encodes few pairs
    monkeypatch.setattr(encoding, "PORTION_PAIRS", 7)
    monkeypatch.setattr(shards, "FEW_PAIRS", 220)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    generate_data(Toy(210, watch=watch), tmp_path / "some", "", Options(processes))
    assert len(children) == started and not multiprocessing.active_children()
    assert contents(tmp_path / "one") == contents(tmp_path / "some")


def test_a_killed_process_ends_the_run_with_a_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(*place: object) -> None:
        if place == ("train", 2, 180):
            child = multiprocessing.active_children()[0]
            os.kill(child.pid or 0, signal.SIGKILL)

    monkeypatch.setattr(encoding, "PORTION_PAIRS", 7)
    with pytest.raises(UserError, match="--num_concurrent_processes=1"):
        generate_data(Toy(2000, watch=watch), tmp_path, "", Options(2))
    assert not multiprocessing.active_children()
    assert contents(tmp_path) == {}


def test_vocabulary_and_shards_grow_with_the_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def generated(name: str, pairs: int, vocab_size: int = 0) -> tuple[int, int]:
        problem = Toy()
        problem.num_train_shards = 0
        problem.pairs["train"] = [{"inputs": f"{n:b}", "targets": f"{n:o}"} for n in range(pairs)]
        problem.settings = Problem.Settings(vocab_size)
        description = generate_data(problem, tmp_path / name, "")
        shards = find_shards(tmp_path / name, "toy", "train")
        return int(description.settings["vocab_size"]), len(shards)

    assert [generated(str(pairs), pairs) for pairs in (100, 10_001)] == [(1000, 1), (5000, 2)]
    assert "warning" not in capsys.readouterr().err
    generated("large", 100, 2500)
    assert "--vocab_size=1000 suits" in capsys.readouterr().err
    sizes = [default_size(["abc"], pairs) for pairs in (29_000, 505_700, 4_500_000)]
    assert sizes == [8000, 32000, 32000]
    assert default_size([chr(0x4E00 + n) for n in range(5000)], 100) == 6000
