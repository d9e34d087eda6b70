"""Tests whether an average or the last checkpoint is called better. tests/system compares their
figures.
"""

import math

import pytest

from t2t_repro.metrics.score import Score
from t2t_repro.training.comparison import verdict
from t2t_repro.training.evaluation import Decoded, Evaluation


def evaluation(loss: float, score: float | None = None) -> Evaluation:
    return Evaluation(
        loss, 0.5, decoded=None if score is None else Decoded([Score("BLEU", score, "")], 100, [])
    )


@pytest.mark.parametrize(
    ("average", "last", "better"),
    [
        ((2.0, 20.0), (2.5, 19.0), ""),
        ((2.5, 5.79), (2.0, 9.27), "dev loss and BLEU"),
        ((2.0, 5.79), (2.0, 9.27), "BLEU"),
        ((2.5, math.nan), (2.0, 1.0), "dev loss"),
        ((2.5, None), (2.0, None), "dev loss"),
        ((2.0, 1.0), (2.0, 1.0), ""),
    ],
)
def test_what_the_last_checkpoint_does_better_is_named(
    average: tuple[float, float | None], last: tuple[float, float | None], better: str
) -> None:
    text = verdict(evaluation(*average), evaluation(*last), "M", "M/model.ckpt-9")
    assert text.startswith(
        f"the last checkpoint has the better {better}, but" if better else "the average is as good"
    )
    assert ("--output_dir=M --checkpoint_path=M/model.ckpt-9" in text) == bool(better)
