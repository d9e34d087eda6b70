"""Tests the warnings about text that was probably given by mistake."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_repro.data.datagen import generate_data
from t2t_repro.data.text_check import TextCheck
from toys import GREEK, Toy, lines

OVERLAP = "every dev pair is also a training pair, so the dev loss will not show overfitting"
COPY = "in every training pair, the target text is the source text; are both sides one file?"
A, B, C = ("a", "eins"), ("b", "zwei"), ("c", "drei")


@pytest.mark.parametrize(
    ("train", "dev", "warnings"),
    [
        ([A, B], [B, C], []),
        ([A, B], [("a", "zwei")], []),
        ([A, B, C], [B, B], [OVERLAP]),
        ([("a", "a"), B], [C], []),
        ([("a", "a")], [("a", "a")], [OVERLAP, COPY]),
    ],
)
def test_a_dev_split_within_the_train_split_and_equal_sides_are_reported(
    train: list[tuple[str, str]], dev: list[tuple[str, str]], warnings: list[str]
) -> None:
    check = TextCheck()
    for watch, pairs in ((check.dev, dev), (check.train, train)):
        originals = [{"inputs": source, "targets": target} for source, target in pairs]
        assert list(watch(originals)) == originals
    assert check.warnings() == warnings


def test_the_warnings_are_about_the_text_that_is_kept(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # White space around a text and pairs with an empty side do not count.
    problem = Toy()
    problem.pairs["dev"] = [{"inputs": source, "targets": "x"} for source in lines(5)]
    problem.pairs["train"] = [{"inputs": source, "targets": f" {source}"} for source in lines(40, GREEK)]
    problem.pairs["train"].append({"inputs": "", "targets": "x"})
    generate_data(problem, tmp_path / "two", "")
    assert [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")] == [
        f"warning: problem toy: {COPY}"
    ]
