"""Tests the warnings about text that was probably given by mistake."""

from pathlib import Path

import pytest

from t2t_repro.data.datagen import generate_data
from toys import Toy

OVERLAP = "every dev pair is also a training pair, so the dev loss will not show overfitting"
UNSPACED = (
    "no spaces separate the words of this text, so BLEU needs its language; name it: "
    "--languages=en,zh"
)
COPY = "in every training pair, the target text is the source text; are both sides one file?"


@pytest.mark.parametrize(
    ("train", "dev", "warnings"),
    [
        ("a=eins b=zwei", "b=zwei c=drei", []),
        ("a=eins b=zwei", "a=zwei", []),
        ("a=eins b=zwei c=drei", "b=zwei b=zwei", [OVERLAP]),
        ("a=a b=zwei", "c=drei", []),
        ("a=两只狗", "b=一个人在骑车。", [UNSPACED]),
        ("a=a b= =b", "b= a=a", [OVERLAP, COPY]),  # pairs with an empty side do not count
    ],
)
def test_a_dev_split_within_the_train_split_and_equal_sides_are_reported(
    train: str, dev: str, warnings: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    problem = Toy()
    for split, text in (("train", train), ("dev", dev)):
        pairs = (pair.split("=") for pair in text.split())
        # White space around a text does not count.
        problem.pairs[split] = [
            {"inputs": source, "targets": f" {target}"} for source, target in pairs
        ]
    generate_data(problem, tmp_path, "")
    printed = [line for line in capsys.readouterr().err.splitlines() if line.startswith("warning")]
    assert printed == [f"warning: problem toy: {warning}" for warning in warnings]
