"""Tests that interrupted data generation resumes, unless text or settings changed, with any number of processes."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from folders import contents
from t2t_repro.data import encoding, shard_writing
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.job import Options
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.errors import UserError
from t2t_repro.problem import Problem
from toys import Published, Toy, failure, raise_at


def interrupt(problem: Toy, folder: Path, split: str, number: int, processes: int = 1) -> None:
    """Generates data until the second pass over `split` reaches pair `number`; then interrupts it with SIGINT."""

    def watch(*place: object) -> None:
        if place == (split, 2, number):
            signal.raise_signal(signal.SIGINT)

    problem.watch = watch
    with pytest.raises(KeyboardInterrupt):
        generate_data(problem, folder, "", Options(processes))


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Returns the contents of the files that generate_data writes for Toy() without interruption."""
    folder = tmp_path_factory.mktemp("unbroken")
    generate_data(Toy(), folder, "")
    return contents(folder)


@pytest.mark.parametrize(("split", "number"), [("train", 0), ("train", 20), ("dev", 0), ("dev", 9)])
def test_an_interrupted_run_resumes_after_its_last_finished_shard(
    tmp_path: Path, unbroken: dict[str, bytes], split: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(KeyboardInterrupt):
        generate_data(Toy(watch=raise_at(KeyboardInterrupt(), split, 2, number)), tmp_path, "")
    remaining = contents(tmp_path)
    assert "toy.json" not in remaining and ".toy.unfinished" in remaining
    monkeypatch.setattr(sentencepiece, "train", None)  # learning the vocabulary again would call None and fail
    shards = [tmp_path / name for name in remaining if name.endswith("-of-00003")]
    times = {shard: shard.stat().st_mtime_ns for shard in shards}
    generate_data(Toy(), tmp_path, "")
    assert contents(tmp_path) == unbroken
    assert {shard: shard.stat().st_mtime_ns for shard in shards} == times


def files_until_interrupt(problem: Toy, folder: Path, files: int, vocab_file: Path | str = "") -> bool:
    """Generates data, but interrupts it before it writes more than `files` files.

    Returns True if the data was finished without an interruption.
    """
    replace = os.replace

    def replace_or_interrupt(*paths: Any) -> None:
        nonlocal files
        files -= 1
        if files < 0:
            raise KeyboardInterrupt
        replace(*paths)

    with pytest.MonkeyPatch.context() as patch, contextlib.suppress(KeyboardInterrupt):
        patch.setattr(os, "replace", replace_or_interrupt)
        generate_data(problem, folder, "", Options(vocab_file=vocab_file))
        return True
    return False


@pytest.mark.parametrize("has_vocab_file", [False, True])
def test_a_run_may_be_interrupted_before_any_file(tmp_path: Path, has_vocab_file: bool) -> None:
    sentencepiece.train(["other text"], 300).save(tmp_path / "user.model")
    vocab_file = tmp_path / "user.model" if has_vocab_file else ""
    generate_data(Published(), tmp_path / "unbroken", "", Options(vocab_file=vocab_file))
    files = 0
    while not files_until_interrupt(Published(), tmp_path / f"{files}", files, vocab_file):
        generate_data(Published(), tmp_path / f"{files}", "", Options(vocab_file=vocab_file))
        assert contents(tmp_path / f"{files}") == contents(tmp_path / "unbroken")
        files += 1
    # A run without interruption writes the vocabulary, a state file, 3 files (shard, index, new state) for each of 4
    # shards, 4 test set files, the description and the summary.
    assert files == 1 + 1 + 4 * 3 + 4 + 2


def test_a_run_may_be_interrupted_repeatedly(tmp_path: Path, unbroken: dict[str, bytes]) -> None:
    runs = 1
    while not files_until_interrupt(Toy(), tmp_path, 5):
        runs += 1
    assert 3 <= runs <= 8
    assert contents(tmp_path) == unbroken


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_processes_portions_and_an_interrupt_do_not_change_the_bytes(
    tmp_path: Path, processes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate_data(Toy(200), tmp_path / "one", "", Options(1))
    monkeypatch.setattr(encoding, "PORTION_PAIRS", 7)
    generate_data(Toy(200), tmp_path / "some", "", Options(processes))
    interrupt(Toy(200), tmp_path / "broken", "train", 150, processes)
    assert not multiprocessing.active_children()
    assert (tmp_path / "broken" / "toy-train-00000-of-00003").exists()
    generate_data(Toy(200), tmp_path / "broken", "", Options(4 - processes))
    assert contents(tmp_path / "one") == contents(tmp_path / "some") == contents(tmp_path / "broken")


@pytest.mark.parametrize(("limit", "starts_processes"), [(60, True), (61, False)])
def test_few_pairs_are_encoded_in_one_process(
    tmp_path: Path, limit: int, starts_processes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    children: list[Any] = []
    monkeypatch.setattr(shard_writing, "FEW_PAIRS", limit)
    monkeypatch.setattr(encoding, "PORTION_PAIRS", 7)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1})
    generate_data(Toy(50, 10, lambda *place: children.extend(multiprocessing.active_children())), tmp_path, "")
    assert bool(children) == starts_processes


def test_finished_files_are_kept_when_a_process_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def watch(*place: object) -> None:
        if place == ("train", 2, 180):
            child = multiprocessing.active_children()[0]
            os.kill(child.pid or 0, signal.SIGKILL)

    monkeypatch.setattr(encoding, "PORTION_PAIRS", 7)
    with pytest.raises(UserError, match="--num_concurrent_processes=1"):
        generate_data(Toy(20_000, watch=watch), tmp_path, "", Options(2))
    assert not multiprocessing.active_children()
    assert set(contents(tmp_path)) == {".toy.unfinished", "vocab.toy.400.model"}
    monkeypatch.setattr(sentencepiece, "train", None)  # learning the vocabulary again would call None and fail
    generate_data(Toy(20_000), tmp_path, "", Options(1))


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
@pytest.mark.parametrize("is_finished", [False, True])
def test_other_text_or_settings_replace_shards_only_with_overwrite(
    tmp_path: Path, change: Callable[[Toy], None], is_finished: bool
) -> None:
    other = Toy()
    change(other)
    generate_data(other, tmp_path / "unbroken", "")
    if is_finished:
        generate_data(Toy(), tmp_path / "broken", "")
    else:
        interrupt(Toy(), tmp_path / "broken", "dev", 5)
    before = contents(tmp_path / "broken")
    message = failure(other, tmp_path / "broken")
    assert message.startswith(f"{tmp_path}/broken: holds data of problem toy ")
    assert "; run t2t-datagen with --overwrite to replace that data, or give another --data_dir" in message
    assert contents(tmp_path / "broken") == before
    generate_data(other, tmp_path / "broken", "", Options(overwrite=True))
    assert contents(tmp_path / "broken") == contents(tmp_path / "unbroken")


def test_other_text_starts_over_if_no_shard_was_finished(tmp_path: Path, unbroken: dict[str, bytes]) -> None:
    interrupt(Toy(40), tmp_path, "train", 0)
    generate_data(Toy(), tmp_path, "")
    assert contents(tmp_path) == unbroken


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "a flipped bit": lambda old: old[:80] + bytes([old[80] ^ 1]) + old[81:],
    "another last byte": lambda old: old[:-1] + bytes([old[-1] ^ 1]),
    "truncated": lambda old: old[:-1],
    "empty": lambda old: b"",
}
SHARD = "toy-train-00001-of-00003"


@pytest.mark.parametrize("name", [SHARD, f"{SHARD}.index", "vocab.toy.400.model", ".toy.unfinished"])
@pytest.mark.parametrize("damage", [*DAMAGES, "missing"])
def test_files_damaged_after_an_interrupt_are_made_again(
    tmp_path: Path, unbroken: dict[str, bytes], name: str, damage: str
) -> None:
    interrupt(Toy(), tmp_path, "dev", 5)
    path = tmp_path / name
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(DAMAGES[damage](path.read_bytes()))
    # Without the state file, t2t-datagen cannot know which text the shards hold, so it needs --overwrite.
    generate_data(Toy(), tmp_path, "", Options(overwrite=name == ".toy.unfinished"))
    assert contents(tmp_path) == unbroken


def test_a_vocabulary_replaced_after_an_interrupt_is_not_used(tmp_path: Path, unbroken: dict[str, bytes]) -> None:
    interrupt(Toy(), tmp_path, "dev", 5)
    sentencepiece.train(["other text"], 300).save(tmp_path / "vocab.toy.400.model")
    generate_data(Toy(), tmp_path, "")
    assert contents(tmp_path) == unbroken


def test_other_files_stay(tmp_path: Path) -> None:
    others = {".toy_rev-train-00000-of-00001.abcd1234", ".toyota.json.abcd1234", ".toy.notes", "toy-train.txt",
              ".vocab.toyota.400.model.abcd1234", "toy.first_full.old", ".toy.env.template",
              ".toy-train-1.settings"}  # fmt: skip
    for name in others:
        (tmp_path / name).write_bytes(b"stays")
    interrupt(Toy(), tmp_path, "dev", 5)
    generate_data(Toy(), tmp_path, "")
    assert {name for name, text in contents(tmp_path).items() if text == b"stays"} == others
