"""Tests that any number of processes encodes text to the same records, and that the processes
end.
"""

import multiprocessing
import os
import signal
from collections import Counter
from collections.abc import Iterable, Iterator

import pytest

from t2t_repro.corpora.parallel import Pair
from t2t_repro.data import encoding
from t2t_repro.data.encoding import encode, portions
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.vocabulary import Vocabulary

ODD = (
    "a\u2028b\u0085d\u000ce",
    "\r\t \u00a0\ufeff",
    "\x00\x1f\x7f",
    "\uffff\U0010ffff",
    "👩‍👩‍👧 é",
    "<0x41> <unk>",
)


@pytest.fixture(scope="module")
def vocab() -> Vocabulary:
    """Returns a vocabulary whose alphabet is a few English letters."""
    return sentencepiece.train(
        [f"the {a} {b} runs" for a in ("dog", "cat", "fox") for b in ("red", "green")], 290
    )


@pytest.fixture(autouse=True)
def small_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sets PORTION_PAIRS to 7, so that few pairs make several portions. Child processes do not use
    the constant.
    """
    monkeypatch.setattr(encoding, "PORTION_PAIRS", 7)


def some_pairs(count: int) -> list[Pair]:
    """Returns pairs that differ from each other. Some have characters outside the vocabulary's
    alphabet.
    """
    return [
        {"inputs": f"dog {number}", "targets": f"{ODD[number % len(ODD)]} {number * number}"}
        for number in range(count)
    ]


def encoded(
    vocab: Vocabulary, pairs: Iterable[Pair], processes: int
) -> tuple[bytes, list[list[int]], Counter[str]]:
    """Returns the bytes of the pairs' records, each pair's [source length, target length], and the
    counts.
    """
    chunks, counts = zip(*encode(portions(pairs), vocab, processes), strict=True)
    lengths = [[row["source"], row["target"]] for _, index in chunks for row in index]
    return b"".join(contents for contents, _ in chunks), lengths, sum(counts, Counter[str]())


def test_two_encodings_at_a_time_have_their_own_vocabularies(vocab: Vocabulary) -> None:
    other = sentencepiece.train([f"{a} sees 1{b}" for a in ("dog", "ant") for b in ("7", "8")], 280)
    alternating = zip(
        *(encode(portions(some_pairs(30)), each, 1) for each in (vocab, other)), strict=True
    )
    for each, results in zip((vocab, other), zip(*alternating, strict=True), strict=True):
        assert (
            b"".join(contents for (contents, _), _ in results)
            == encoded(each, some_pairs(30), 1)[0]
        )


def test_child_processes_ignore_interrupts_from_their_start(
    vocab: Vocabulary, capfd: pytest.CaptureFixture[str]
) -> None:
    """If SIGINT reaches child processes, even while they start, they finish the encoding and print
    nothing.
    """
    sent = 0

    def pairs() -> Iterator[Pair]:
        nonlocal sent
        for pair in some_pairs(300):
            for child in multiprocessing.active_children():
                assert child.pid is not None
                os.kill(child.pid, signal.SIGINT)
                sent += 1
            yield pair

    assert encoded(vocab, pairs(), 2) == encoded(vocab, some_pairs(300), 1)
    assert sent > 200
    assert capfd.readouterr().err == ""


def test_one_process_encodes_on_a_machine_without_semaphores(
    vocab: Vocabulary, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(*arguments: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")  # as without /dev/shm

    monkeypatch.setattr("_multiprocessing.SemLock", refuse)
    assert encoded(vocab, some_pairs(20), 2) == encoded(vocab, some_pairs(20), 1)
    assert "/dev/shm" in capsys.readouterr().err
