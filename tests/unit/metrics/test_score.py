"""Tests of the score "exact matches", and of the names of metrics."""

from __future__ import annotations

import pytest

from t2t_repro.metrics.score import Score, exact_matches


def test_exact_matches_are_a_percentage_of_the_lines() -> None:
    assert exact_matches(["a", "b ", "c", "d"], ["a", "b", "C", "d"]).score == 50.0
    assert exact_matches(["a"], ["a"]).score == 100.0


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("BLEU", "bleu"),
        ("BLEU, lower-cased", "bleu"),
        ("chrF", "chrf"),
        ("F1", "f1"),
        ("exact matches", "exact_matches"),
    ],
)
def test_a_metric_is_named_without_its_variant(label: str, name: str) -> None:
    assert Score(label, 0.0, "").name == name
