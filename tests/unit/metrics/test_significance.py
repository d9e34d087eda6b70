"""Tests the significance of differences against an enumeration of all exchanges of lines."""

import itertools

import pytest
from sacrebleu import CHRF

from t2t_repro.metrics.significance import compare

REFERENCES = [
    "the old bridge is closed", "a dog sleeps", "they sing", "rain falls on the roof",
    "two men play chess", "she reads a letter", "nobody came", "the train is late",
]  # fmt: skip
BASELINE = [
    "the old bridge closes", "a dog sleeps", "they are singing", "rain on a roof",
    "two men are at chess", "she reads letters", "nobody is here", "the train is late",
]  # fmt: skip
OTHER = ["an old bridge is closed", "the dog is asleep", "they sing", "rain falls", *REFERENCES[4:]]


def score(lines: list[str]) -> float:
    return CHRF().corpus_score(lines, [REFERENCES]).score


def test_randomization_is_the_share_of_exchanges_with_a_larger_difference() -> None:
    difference = abs(score(BASELINE) - score(OTHER))
    larger = 0
    pairs = zip(BASELINE, OTHER, strict=True)
    for exchanged in itertools.product(*([(a, b), (b, a)] for a, b in pairs)):
        first, second = map(list, zip(*exchanged, strict=True))
        larger += abs(score(first) - score(second)) > difference + 1e-9
    rows, signature = compare({"a": BASELINE, "b": OTHER, "c": BASELINE}, [REFERENCES], CHRF())
    assert [row.score for row in rows] == [score(BASELINE), score(OTHER), score(BASELINE)]
    # 10,000 of the exchanges, drawn at random, have a standard deviation of less than 0.005.
    assert abs((rows[1].randomization_p or 0) - larger / 2 ** len(BASELINE)) < 0.02
    # sacrebleu R -i A B -m chrf --paired-bs -w 8 -f text, and --paired-ar, on files with these
    # lines
    assert [round(row.interval, 5) for row in rows[:2]] == [17.67157, 16.41830]
    baseline, other, same = [(row.bootstrap_p, row.randomization_p) for row in rows]
    assert baseline == (None, None)
    assert other == pytest.approx((0.0110, 0.0965), abs=0.5e-4)
    assert same == (1, 1)  # the same lines as the baseline's
    assert {"ar:10000", "bs:1000"} < set(signature.split("|"))
