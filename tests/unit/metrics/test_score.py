"""Tests of the score "exact matches", and of the names of metrics."""

from t2t_repro.metrics.score import Score, exact_matches


def test_exact_matches_are_a_percentage_of_the_lines() -> None:
    score = exact_matches(["a", "b ", "c", "d"], ["a", "b", "C", "d"])
    assert (score.score, score.name) == (50.0, "exact_matches")
    assert Score("BLEU, lower-cased", 0.0, "").name == "bleu"  # without its variant
