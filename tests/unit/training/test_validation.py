"""Tests of the evaluations of a run: their messages, warnings and best checkpoints."""

import math
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from t2t_repro.errors import Stopped
from t2t_repro.hparam import HParams
from t2t_repro.metrics.score import Score
from t2t_repro.training.config import RunConfig
from t2t_repro.training.evaluation import Decoded, Evaluation
from t2t_repro.training.validation import Validation


class Recorder:
    """A fake of the parts of a training run that an evaluation uses. `messages` collects the lines
    that it prints.
    """

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.run = SimpleNamespace(
            data=None,
            config=RunConfig(),
            strategy=SimpleNamespace(num_replicas_in_sync=1),
            say=self.messages.append,
            draw_attention=None,
            hparams=HParams(train_steps=100, learning_rate_warmup_steps=40),
        )
        self.folder = None
        self.model = None
        self.source_use: float | None = None
        self.saved: list[int] = []
        self.checkpoints = SimpleNamespace(save_best=self.saved.append)
        self.logs = SimpleNamespace(
            is_best=lambda evaluation: evaluation.loss < 2.0,
            evaluation=lambda *arguments: None,
            metrics=None,
        )

    def evaluator(self, should_stop: Any) -> Evaluation:
        return Evaluation(1.0, 0.5, 0, self.source_use, Decoded([Score("BLEU", 12.3, "")], 100, []))

    def evaluated(self, step: int, source_use: float | None = 2.345) -> list[str]:
        """Evaluates step `step`; returns the messages."""
        self.messages.clear()
        self.source_use = source_use
        prepared: Any = self
        Validation(prepared, lambda: False).evaluate(step)
        return [*self.messages]


def test_the_mark_of_the_best_evaluation_stands_beside_its_measure() -> None:
    scores = [
        Score("BLEU", 12.3, ""),
        Score("BLEU, lower-cased", 13.0, ""),
        Score("chrF", 45.6, ""),
    ]
    evaluation = Evaluation(1.0, 0.5, decoded=Decoded(scores, 100, []))
    for best_by, marked, ending in (
        ("bleu", "12.30 of 100 lines (best)", ""),
        ("chrf", "lines, ", "chrF 45.60 (best)"),
    ):
        text = evaluation.describe(True, best_by)
        assert marked in text and text.endswith(ending) and text.count("(best)") == 1
        assert evaluation.describe(False, best_by) == text.replace(" (best)", "")


def test_an_evaluation_is_one_line_and_saves_the_best_checkpoint() -> None:
    prepared = Recorder()
    line = (
        "step 40: dev loss 1.0000 (best), perplexity 2.718 a token, accuracy 50.0%, source use "
        "2.35, BLEU 12.30 of 100"
    )
    assert prepared.evaluated(40) == [f"{line} lines"]
    assert prepared.saved == [40] and "source use" not in prepared.evaluated(60, None)[0]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prepared, "evaluator", mock.Mock(side_effect=Stopped))
        assert prepared.evaluated(80) == [
            "step 80: evaluation interrupted, as requested; the same command evaluates first"
        ]
    assert prepared.saved == [40, 60]


def test_a_model_that_ignores_its_source_is_reported_after_the_warmup() -> None:
    prepared = Recorder()
    reported = []
    for step, source_use in (
        (39, 0.0),
        (40, 0.099),
        (50, None),
        (60, math.nan),
        (70, -0.001),
        (100, 0.1),
    ):
        reported += [(step, message) for message in prepared.evaluated(step, source_use)[1:]]
    assert [step for step, _ in reported] == [40, 70]
    assert all(
        message.startswith("warning: the model hardly uses its source") for _, message in reported
    )
    assert "by only 0.099 nats a token" in reported[0][1] and "-0.001 nats" in reported[1][1]
