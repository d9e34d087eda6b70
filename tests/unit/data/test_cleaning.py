"""Which pairs are left out and counted, against an implementation that keeps everything in memory."""

from __future__ import annotations

import itertools
import random
from collections import Counter

import pytest

from t2t_repro.corpora.parallel import Pair
from t2t_repro.data.cleaning import Cleaning


def pairs_of(*texts: tuple[str, str]) -> list[Pair]:
    return [{"inputs": source, "targets": target} for source, target in texts]


def random_pairs(count: int, seed: int) -> list[Pair]:
    """Short pairs of three words, with blank sides and many repeats among them."""
    draw = random.Random(seed)
    spaces = (" ", "  ", "\t", "\u2028")

    def text() -> str:
        words = draw.choices(("a", "b", "ö"), k=draw.choice((0, 1, 1, 1, 2, 3, 7)))
        return "".join(word + draw.choice(spaces) for word in words) or draw.choice(("", " ", "\u00a0\t"))

    return [{"inputs": text(), "targets": text()} for _ in range(count)]


def cleaned(pairs: list[Pair], words: int, ratio: float, duplicates: bool) -> tuple[list[Pair], dict[str, int]]:
    """What is to be kept, and the pairs left out by reason."""
    kept: list[Pair] = []
    dropped: Counter[str] = Counter()
    for pair in pairs:
        lengths = [len(pair[side].split()) for side in ("inputs", "targets")]
        if not min(lengths):
            dropped["empty side"] += 1
        elif words and max(lengths) > words:
            dropped["too many words"] += 1
        elif ratio and max(lengths) / min(lengths) > ratio:
            dropped["length ratio"] += 1
        elif duplicates and pair in kept:
            dropped["duplicate"] += 1
        else:
            kept.append(pair)
    return kept, dict(dropped)


@pytest.mark.parametrize("words", [0, 2])
@pytest.mark.parametrize("ratio", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("duplicates", [False, True])
def test_the_pairs_and_counts_are_those_of_a_naive_implementation(words: int, ratio: float, duplicates: bool) -> None:
    for seed in range(5):
        pairs = random_pairs(300, seed)
        kept, dropped = cleaned(pairs, words, ratio, duplicates)
        reasons = {"empty side", *["too many words"] * bool(words), *["length ratio"] * bool(ratio)}
        assert set(dropped) == reasons | set(["duplicate"] * duplicates)  # or else the pairs show nothing
        cleaning = Cleaning(words, ratio, duplicates)
        for _ in cleaning.first_pass(pairs):
            pass
        assert (cleaning.read, cleaning.kept, dict(cleaning.dropped)) == (300, len(kept), dropped)
        assert list(cleaning.next_pass(pairs)) == kept
        assert list(cleaning.next_pass(pairs)) == kept


def test_a_further_pass_gives_the_first_pass_without_its_repeats() -> None:
    pairs = random_pairs(500, 9)
    cleaning = Cleaning(max_words=3, drops_duplicates=True)
    first = list(cleaning.first_pass(iter(pairs)))
    once = {str(pair): pair for pair in first}  # a dict keeps the place of the first
    assert 0 < len(once) < len(first)
    assert list(cleaning.next_pass(iter(pairs))) == list(once.values())


def test_nothing_but_empty_sides_goes_by_default() -> None:
    pairs = pairs_of(("a", "b"), ("a", "b"), ("a " * 1000, "b"), ("", "b"), ("a", "\u3000"), (" ", "\t"))
    cleaning = Cleaning()
    assert list(cleaning.first_pass(pairs)) == list(cleaning.next_pass(pairs)) == pairs[:3]
    assert cleaning.dropped == {"empty side": 3}


def test_limits_are_still_allowed() -> None:
    pairs = pairs_of(("a b c", "a"), ("a", "a b c"), ("a b c d", "a b"), ("a b", "a b c d"), ("a b c d", "a"))
    assert len(list(Cleaning(max_words=4, max_ratio=3.0).next_pass(pairs))) == 4
    assert len(list(Cleaning(max_words=3).next_pass(pairs))) == 2
    assert len(list(Cleaning(max_ratio=2.9).next_pass(pairs))) == 2


def test_only_pairs_alike_on_both_sides_are_repeats_and_the_first_stays() -> None:
    pairs = pairs_of(("a", "b"), ("a", "c"), ("c", "b"), ("b", "a"), ("a ", "b"), ("A", "b"), ("a", "b"), ("a", "c"))
    numbered = [pair | {"number": str(number)} for number, pair in enumerate(pairs)]
    cleaning = Cleaning(drops_duplicates=True)
    assert len(list(cleaning.first_pass(numbered))) == 8
    assert [pair["number"] for pair in cleaning.next_pass(numbered)] == list("012345")
    assert cleaning.dropped == {"duplicate": 2}


def test_a_reason_that_no_pair_gave_is_not_listed() -> None:
    pairs = pairs_of(("a", "b"), ("b", "a"))
    cleaning = Cleaning(max_words=5, max_ratio=5.0, drops_duplicates=True)
    assert list(cleaning.first_pass(pairs)) == pairs
    assert dict(cleaning.dropped) == {}


def test_no_text_at_all() -> None:
    cleaning = Cleaning(drops_duplicates=True)
    assert list(cleaning.first_pass([])) == list(cleaning.next_pass([])) == []
    assert (cleaning.read, cleaning.kept) == (0, 0)


@pytest.mark.parametrize("duplicates", [False, True])
def test_a_text_that_has_grown_or_shrunk_gives_more_or_fewer_pairs(duplicates: bool) -> None:
    pairs = pairs_of(*((f"a{number}", "b") for number in range(10)))
    cleaning = Cleaning(drops_duplicates=duplicates)
    assert len(list(cleaning.first_pass(pairs))) == 10
    assert len(list(cleaning.next_pass(pairs + pairs[:3]))) == 13
    assert len(list(cleaning.next_pass(pairs[:7]))) == 7


def test_the_fingerprint_is_of_the_pairs_that_stay_and_their_order() -> None:
    def fingerprint(pairs: list[Pair]) -> str:
        cleaning = Cleaning(max_words=3)
        for _ in cleaning.first_pass(pairs):
            pass
        return cleaning.fingerprint

    pairs = pairs_of(("a", "b"), ("c", "d"))
    assert fingerprint(pairs) == fingerprint(list(pairs))
    assert fingerprint(pairs) == fingerprint([*pairs, *pairs_of(("", "x"), ("a b c d", "x"))])
    others = [
        pairs[::-1],
        pairs[:1],
        [*pairs, pairs[0]],
        pairs_of(("b", "a"), ("c", "d")),
        pairs_of(("a", "b "), ("c", "d")),
        pairs_of(("ab", "c"), ("d", "x")),
        [],
    ]
    assert len({fingerprint(each) for each in itertools.chain([pairs], others)}) == len(others) + 1
