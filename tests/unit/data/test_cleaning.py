"""Tests Cleaning against a naive implementation that keeps all pairs in memory."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable

import hypothesis.strategies as st
import pytest
from hypothesis import given

from properties import few
from t2t_repro.corpora.parallel import Pair
from t2t_repro.data.cleaning import Cleaning


class TextChangedError(Exception):
    """The error that the tests give to `Cleaning.next_pass`."""


CHANGED = TextChangedError()


def pairs_of(*texts: tuple[str, str]) -> list[Pair]:
    return [{"inputs": source, "targets": target} for source, target in texts]


def random_pairs(count: int, seed: int) -> list[Pair]:
    """Returns random pairs of short texts from three words. Some sides are blank, and many pairs are repeated."""
    draw = random.Random(seed)
    spaces = (" ", "  ", "\t", "\u2028")

    def text() -> str:
        words = draw.choices(("a", "b", "ö"), k=draw.choice((0, 1, 1, 1, 2, 3, 7)))
        return "".join(word + draw.choice(spaces) for word in words) or draw.choice(("", " ", "\u00a0\t"))

    return [{"inputs": text(), "targets": text()} for _ in range(count)]


def stripped(pairs: list[Pair]) -> list[Pair]:
    return [{side: text.strip() for side, text in pair.items()} for pair in pairs]


def cleaned(pairs: list[Pair], words: int, ratio: float, duplicates: bool) -> tuple[list[Pair], dict[str, int]]:
    """Returns the pairs that a naive cleaning keeps, and the number of pairs that it drops for each reason."""
    clean_pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    for pair in stripped(pairs):
        lengths = [len(pair[side].split()) for side in ("inputs", "targets")]
        if not min(lengths):
            dropped["empty side"] += 1
        elif words and max(lengths) > words:
            dropped["too many words"] += 1
        elif ratio and max(lengths) / min(lengths) > ratio:
            dropped["length ratio"] += 1
        elif duplicates and pair in clean_pairs:
            dropped["duplicate"] += 1
        else:
            clean_pairs.append(pair)
    return clean_pairs, dict(dropped)


@pytest.mark.parametrize("words", [0, 2])
@pytest.mark.parametrize("ratio", [0.0, 1.0, 1.5])
@pytest.mark.parametrize("duplicates", [False, True])
def test_pairs_and_counts_equal_those_of_a_naive_implementation(words: int, ratio: float, duplicates: bool) -> None:
    for seed in range(5):
        pairs = random_pairs(300, seed)
        clean_pairs, dropped = cleaned(pairs, words, ratio, duplicates)
        reasons = {"empty side", *["too many words"] * bool(words), *["length ratio"] * bool(ratio)}
        assert set(dropped) == reasons | set(["duplicate"] * duplicates)  # Each enabled rule drops some pairs.
        cleaning = Cleaning(words, ratio, duplicates)
        for _ in cleaning.first_pass(pairs):
            pass
        assert (cleaning.pairs_read, cleaning.pairs_kept, dict(cleaning.dropped)) == (300, len(clean_pairs), dropped)
        assert list(cleaning.next_pass(pairs, CHANGED)) == clean_pairs
        assert list(cleaning.next_pass(pairs, CHANGED)) == clean_pairs


def test_a_later_pass_yields_the_pairs_of_the_first_without_repeats() -> None:
    pairs = random_pairs(500, 9)
    cleaning = Cleaning(max_words=3, drops_duplicates=True)
    first_pass = list(cleaning.first_pass(iter(pairs)))
    once = {str(pair): pair for pair in first_pass}  # different pairs, in the order of their first occurrences
    assert 0 < len(once) < len(first_pass)
    assert list(cleaning.next_pass(iter(pairs), CHANGED)) == list(once.values())


def test_only_empty_sides_and_white_space_around_texts_are_dropped_by_default() -> None:
    pairs = pairs_of(("a", "b"), ("a", " b  b\t"), ("a " * 1000, "b"), ("", "b"), ("a", "\u3000"), (" ", "\t"))
    expected = pairs_of(("a", "b"), ("a", "b  b"), ("a " * 999 + "a", "b"))
    cleaning = Cleaning()
    assert list(cleaning.first_pass(pairs)) == list(cleaning.next_pass(pairs, CHANGED)) == expected
    assert cleaning.dropped == {"empty side": 3}


def test_pairs_at_the_limits_are_kept() -> None:
    pairs = pairs_of(("a b c", "a"), ("a", "a b c"), ("a b c d", "a b"), ("a b", "a b c d"), ("a b c d", "a"))
    assert len(list(Cleaning(max_words=4, max_ratio=3.0).first_pass(pairs))) == 4
    assert len(list(Cleaning(max_words=3).first_pass(pairs))) == 2
    assert len(list(Cleaning(max_ratio=2.9).first_pass(pairs))) == 2


def test_only_the_first_of_equal_pairs_is_kept() -> None:
    pairs = pairs_of(("a", "b"), ("a", "c"), ("c", "b"), ("b", "a"), ("a ", "b"), ("A", "b"), ("a", "b"), ("a", "c"))
    cleaning = Cleaning(drops_duplicates=True)
    assert len(list(cleaning.first_pass(pairs))) == 8
    assert list(cleaning.next_pass(pairs, CHANGED)) == [*pairs[:4], pairs[5]]
    assert cleaning.dropped == {"duplicate": 3}


def test_reasons_without_pairs_are_not_listed() -> None:
    pairs = pairs_of(("a", "b"), ("b", "a"))
    cleaning = Cleaning(max_words=5, max_ratio=5.0, drops_duplicates=True)
    assert list(cleaning.first_pass(pairs)) == pairs
    assert dict(cleaning.dropped) == {}


def test_an_empty_text_has_no_pairs() -> None:
    cleaning = Cleaning(drops_duplicates=True)
    assert list(cleaning.first_pass([])) == list(cleaning.next_pass([], CHANGED)) == []
    assert (cleaning.pairs_read, cleaning.pairs_kept) == (0, 0)


OTHER_TEXTS: dict[str, Callable[[list[Pair]], list[Pair]]] = {
    "grown": lambda pairs: pairs + pairs_of(("new", "x")),
    "grown by a repeat": lambda pairs: pairs + pairs[:1],
    "shrunk": lambda pairs: pairs[:-1],
    "in another order": lambda pairs: [*pairs[1::-1], *pairs[2:]],
    "another source": lambda pairs: [pair | {"inputs": pair["inputs"].replace("a7", "new")} for pair in pairs],
    "another target": lambda pairs: [*pairs[:-1], pairs[-1] | {"targets": "new"}],
    "a repeat replaced": lambda pairs: [*pairs[:10], *pairs_of(("new", "x")), *pairs[11:]],
    "empty": lambda pairs: [],
}


@pytest.mark.parametrize("change", OTHER_TEXTS)
@pytest.mark.parametrize("duplicates", [False, True])
def test_a_text_that_changes_between_the_passes_raises_the_error(duplicates: bool, change: str) -> None:
    pairs = pairs_of(*((f"a{number % 10}", "b") for number in range(15)))
    cleaning = Cleaning(drops_duplicates=duplicates)
    assert len(list(cleaning.first_pass(pairs))) == 15
    with pytest.raises(TextChangedError):
        list(cleaning.next_pass(OTHER_TEXTS[change](pairs), CHANGED))
    assert len(list(cleaning.next_pass(pairs, CHANGED))) == (10 if duplicates else 15)


def test_other_pairs_that_are_dropped_do_not_count_as_a_change() -> None:
    pairs = pairs_of(("a", "b"), ("", "x"), ("c", "d"))
    cleaning = Cleaning(max_words=3)
    assert len(list(cleaning.first_pass(pairs))) == 2
    assert len(list(cleaning.next_pass([pairs[0], *pairs_of(("a b c d", "x")), pairs[2]], CHANGED))) == 2


def test_the_fingerprint_depends_on_the_kept_pairs_and_their_order() -> None:
    def fingerprint(pairs: list[Pair]) -> str:
        cleaning = Cleaning(max_words=3)
        for _ in cleaning.first_pass(pairs):
            pass
        return cleaning.fingerprint

    pairs = pairs_of(("a", "b"), ("c", "d"))
    assert fingerprint(pairs) == fingerprint(list(pairs))
    assert fingerprint(pairs) == fingerprint(pairs_of((" a", "b "), ("c", "d\t")))
    assert fingerprint(pairs) == fingerprint([*pairs, *pairs_of(("", "x"), ("a b c d", "x"))])
    others = [
        pairs[::-1],
        pairs[:1],
        [*pairs, pairs[0]],
        pairs_of(("b", "a"), ("c", "d")),
        pairs_of(("a", "b b"), ("c", "d")),
        pairs_of(("ab", "c"), ("d", "x")),
        [],
    ]
    assert len({fingerprint(text) for text in itertools.chain([pairs], others)}) == len(others) + 1


SIDE = st.text("aö \t\u00a0", max_size=6)


@few
@given(st.lists(st.tuples(SIDE, SIDE), max_size=12), st.integers(0, 3), st.sampled_from([0.0, 1.0, 1.5]), st.booleans())
def test_any_pairs_are_cleaned_as_by_the_naive_implementation(
    texts: list[tuple[str, str]], words: int, ratio: float, duplicates: bool
) -> None:
    pairs = pairs_of(*texts)
    cleaning = Cleaning(words, ratio, duplicates)
    first = list(cleaning.first_pass(pairs))
    kept, dropped = cleaned(pairs, words, ratio, duplicates)
    for _ in range(2):
        assert list(cleaning.next_pass(pairs, CHANGED)) == kept
    assert [pair for pair in first if pair in kept] == first
    assert (cleaning.pairs_read, cleaning.pairs_kept, dict(cleaning.dropped)) == (len(pairs), len(kept), dropped)
