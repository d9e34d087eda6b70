"""A run that was interrupted goes on, several processes write what one does, and other text starts anew."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from t2t_repro.data import datagen, encoding, vocabulary
from t2t_repro.data.datagen import generate_data
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from toys import Published, Toy, contents


@pytest.mark.parametrize(("split", "number"), [("train", 0), ("train", 20), ("dev", 0), ("dev", 9)])
def test_a_run_that_was_interrupted_goes_on_after_its_last_whole_shard(
    tmp_path: Path, split: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def watch(*place: object) -> None:
        if place == (split, 2, number):
            raise KeyboardInterrupt

    generate_data(Toy(), tmp_path / "unbroken", "")
    with pytest.raises(KeyboardInterrupt):
        generate_data(Toy(watch=watch), tmp_path / "broken", "")
    left = contents(tmp_path / "broken")
    assert "toy.json" not in left and ".toy.unfinished" in left
    monkeypatch.setattr(vocabulary, "train", None)  # learning it again would fail
    whole = {shard: (tmp_path / "broken" / shard).stat().st_mtime_ns for shard in left if shard.endswith("-of-00003")}
    generate_data(Toy(), tmp_path / "broken", "")
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")
    assert all((tmp_path / "broken" / shard).stat().st_mtime_ns == written for shard, written in whole.items())


def interrupted(problem: Toy, folder: Path, split: str, number: int, processes: int = 1) -> None:
    """A run that is interrupted when it reads a pair for the second time."""

    def watch(*place: object) -> None:
        if place == (split, 2, number):
            signal.raise_signal(signal.SIGINT)

    problem.watch = watch
    with pytest.raises(KeyboardInterrupt):
        generate_data(problem, folder, "", processes)


def files_until_interrupt(problem: Toy, folder: Path, files: int, vocab_file: Path | str = "") -> bool:
    """A run that is interrupted when that many files have appeared; whether it came to its end before."""
    replace = os.replace

    def replace_or_interrupt(*paths: Any) -> None:
        nonlocal files
        files -= 1
        if files < 0:
            raise KeyboardInterrupt
        replace(*paths)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(os, "replace", replace_or_interrupt)
        generate_data(problem, folder, "", vocab_file=vocab_file)
        return True
    return False


@pytest.mark.parametrize("given", [False, True])
def test_a_run_may_be_interrupted_before_any_file(tmp_path: Path, given: bool) -> None:
    vocabulary.train(["other text"], 300).save(tmp_path / "given.model")
    vocab_file = tmp_path / "given.model" if given else ""
    generate_data(Published(), tmp_path / "unbroken", "", vocab_file=vocab_file)
    files = 0
    while not files_until_interrupt(Published(), tmp_path / f"{files}", files, vocab_file):
        generate_data(Published(), tmp_path / f"{files}", "", vocab_file=vocab_file)
        assert contents(tmp_path / f"{files}") == contents(tmp_path / "unbroken")
        files += 1
    # The vocabulary; what is done, at first and after each of 4 shards and their indexes; test sets; two descriptions.
    assert files == 1 + 1 + 4 * 3 + 4 + 2


def test_a_run_may_be_interrupted_again_and_again(tmp_path: Path) -> None:
    generate_data(Toy(), tmp_path / "unbroken", "")
    runs = 1
    while not files_until_interrupt(Toy(), tmp_path / "broken", 5):
        runs += 1
    assert 3 <= runs <= 8
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_the_bytes_do_not_depend_on_the_processes_nor_on_an_interrupt_of_them(
    tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_data(Toy(200), tmp_path / "one", "", 1)
    monkeypatch.setattr(encoding, "PORTION_PAIRS", 7)
    generate_data(Toy(200), tmp_path / "some", "", processes)
    interrupted(Toy(200), tmp_path / "broken", "train", 150, processes)
    assert not multiprocessing.active_children()
    assert (tmp_path / "broken" / "toy-train-00000-of-00003").exists()
    generate_data(Toy(200), tmp_path / "broken", "", 4 - processes)
    assert contents(tmp_path / "one") == contents(tmp_path / "some") == contents(tmp_path / "broken")


@pytest.mark.parametrize(("few", "others"), [(60, True), (61, False)])
def test_few_pairs_are_not_worth_other_processes(
    tmp_path: Path, few: int, others: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    monkeypatch.setattr(datagen, "FEW_PAIRS", few)
    monkeypatch.setattr(encoding, "PORTION_PAIRS", 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    generate_data(Toy(50, 10, lambda *place: seen.append(multiprocessing.active_children())), tmp_path, "")
    assert any(seen) == others


def test_what_was_done_before_a_process_was_killed_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(*place: object) -> None:
        if place == ("train", 2, 180):
            child = multiprocessing.active_children()[0]
            os.kill(child.pid or 0, signal.SIGKILL)

    monkeypatch.setattr(encoding, "PORTION_PAIRS", 7)
    with pytest.raises(UserError, match="--num_concurrent_processes=1"):
        generate_data(Toy(20_000, watch=watch), tmp_path, "", 2)
    assert not multiprocessing.active_children()
    assert set(contents(tmp_path)) == {".toy.unfinished", "vocab.toy.400.model"}
    monkeypatch.setattr(vocabulary, "train", None)  # learning it again would fail
    generate_data(Toy(20_000), tmp_path, "", 1)


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(lambda toy: toy.pairs["train"][3].update(targets="άλλο"), id="train"),
        pytest.param(lambda toy: toy.pairs["train"].reverse(), id="order"),
        pytest.param(lambda toy: toy.pairs["dev"].pop(), id="dev"),
        pytest.param(lambda toy: setattr(toy, "settings", Problem.Settings(400, clean_max_words=4)), id="setting"),
        pytest.param(lambda toy: setattr(toy, "symbols", ("red house",)), id="symbols"),
        pytest.param(lambda toy: setattr(toy, "num_train_shards", 2), id="shards"),
    ],
)
def test_other_text_or_settings_after_an_interrupt_start_anew(tmp_path: Path, change: Callable[[Toy], None]) -> None:
    other = Toy()
    change(other)
    generate_data(other, tmp_path / "unbroken", "")
    interrupted(Toy(), tmp_path / "broken", "dev", 5)
    generate_data(other, tmp_path / "broken", "")
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a bit flipped": lambda old: old[:80] + bytes([old[80] ^ 1]) + old[81:],
    "its last row changed": lambda old: old[:-1] + bytes([old[-1] ^ 1]),
    "truncated": lambda old: old[:-1],
    "empty": lambda old: b"",
}


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, damage) for name in ("toy-train-00001-of-00003", "vocab.toy.400.model", ".toy.unfinished")
          for damage in (*DAMAGES, "gone")),
        *(("toy-train-00001-of-00003.index", damage)
          for damage in ("a bit flipped", "its last row changed", "truncated", "empty", "gone")),
    ],
)  # fmt: skip
def test_what_is_damaged_after_an_interrupt_is_made_again(tmp_path: Path, name: str, damage: str) -> None:
    generate_data(Toy(), tmp_path / "unbroken", "")
    interrupted(Toy(), tmp_path / "broken", "dev", 5)
    path = tmp_path / "broken" / name
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    generate_data(Toy(), tmp_path / "broken", "")
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")


def test_another_vocabulary_after_an_interrupt_is_not_used(tmp_path: Path) -> None:
    generate_data(Toy(), tmp_path / "unbroken", "")
    interrupted(Toy(), tmp_path / "broken", "dev", 5)
    vocabulary.train(["other text"], 300).save(tmp_path / "broken" / "vocab.toy.400.model")
    generate_data(Toy(), tmp_path / "broken", "")
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")


def test_files_of_others_stay(tmp_path: Path) -> None:
    others = {".toy_rev-train-00000-of-00001.abcd1234", ".toyota.json.abcd1234", ".toy.notes", "toy-train.txt",
              ".vocab.toyota.400.model.abcd1234", "toy.first_full.old"}  # fmt: skip
    for name in others:
        (tmp_path / name).write_bytes(b"stays")
    interrupted(Toy(), tmp_path, "dev", 5)
    generate_data(Toy(), tmp_path, "")
    assert {name for name, text in contents(tmp_path).items() if text == b"stays"} == others
