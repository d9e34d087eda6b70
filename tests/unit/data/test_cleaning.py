"""Tests Cleaning against a naive implementation that keeps all pairs in memory."""

from collections import Counter

import hypothesis.strategies as st
import numpy as np
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


def cleaned(
    pairs: list[Pair], words: int, ratio: float, duplicates: bool
) -> tuple[list[Pair], dict[str, int]]:
    """Returns the pairs that a naive cleaning keeps, and the number of pairs that it drops for each
    reason.
    """
    clean_pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    for pair in ({side: text.strip() for side, text in pair.items()} for pair in pairs):
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


@pytest.mark.parametrize("duplicates", [False, True])
def test_a_text_that_changes_between_the_passes_raises_the_error(duplicates: bool) -> None:
    pairs = pairs_of(*((f"a{number % 10}", "b") for number in range(15)))
    cleaning = Cleaning(drops_duplicates=duplicates)
    assert len(list(cleaning.first_pass(pairs))) == 15
    another_order = [*pairs[1::-1], *pairs[2:]]
    another_side = [*pairs[:-1], pairs[-1] | {"targets": "new"}]
    longer = (pairs + pairs_of(("new", "x")), pairs + pairs[:1])
    for other in (*longer, pairs[:-1], another_order, another_side):
        with pytest.raises(TextChangedError):
            list(cleaning.next_pass(other, CHANGED))
    assert len(list(cleaning.next_pass(pairs, CHANGED))) == (10 if duplicates else 15)


def test_the_fingerprint_depends_on_the_kept_pairs_and_their_order() -> None:
    def fingerprint(*texts: tuple[str, str]) -> str:
        cleaning = Cleaning(max_words=3)
        list(cleaning.first_pass(pairs_of(*texts)))
        return cleaning.fingerprint

    pairs = (("a", "b"), ("c", "d"))
    same = ((" a", "b "), ("c", "d\t"), ("", "x"), ("a b c d", "x"))
    assert fingerprint(*pairs) == fingerprint(*same)
    others = (
        *(pairs, pairs[::-1], pairs[:1], (*pairs, pairs[0])),
        *((("b", "a"), pairs[1]), (("ab", ""), pairs[1]), ()),
    )
    assert len({fingerprint(*text) for text in others}) == len(others)


WORDS = st.lists(st.sampled_from(["a", "ö", "a ", " ö", "\t", "\u00a0", "\u2028"]), max_size=5).map(
    "".join
)
SIDE = st.sampled_from(["a", "ö", "a ö"]) | WORDS  # the first three make repeated pairs likely


@few
@given(
    st.lists(st.tuples(SIDE, SIDE), max_size=12),
    st.integers(0, 3),
    st.sampled_from([0.0, 1.0, 1.5]),
    st.booleans(),
)
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
    assert (cleaning.pairs_read, cleaning.pairs_kept) == (len(pairs), len(kept))
    assert cleaning.dropped == dropped


@few
@given(st.lists(st.lists(st.tuples(SIDE, SIDE), max_size=6), min_size=2, max_size=4))
def test_a_pair_of_an_earlier_corpus_is_a_duplicate(corpora: list[list[tuple[str, str]]]) -> None:
    seen: list[np.ndarray] = []
    earlier: list[tuple[str, str]] = []
    for texts in corpora:
        cleaning = Cleaning(drops_duplicates=True, seen=seen)
        list(cleaning.first_pass(pairs_of(*texts)))
        count = len(cleaned(pairs_of(*earlier), 0, 0.0, True)[0])
        earlier += texts
        kept = cleaned(pairs_of(*earlier), 0, 0.0, True)[0][count:]
        assert list(cleaning.next_pass(pairs_of(*texts), CHANGED)) == kept


def test_the_tag_of_a_language_is_no_word() -> None:
    pairs = pairs_of(
        (">>de<< a b", "c"), (">>de<< a b c", "d"), (">>de<<  ", "e"), (">>de<< f", "g")
    )
    cleaning = Cleaning(max_words=2, max_ratio=2.0, target_language="de")
    assert list(cleaning.first_pass(pairs)) == [pairs[0], pairs[3]]
    assert cleaning.dropped == {"too many words": 1, "empty side": 1}
