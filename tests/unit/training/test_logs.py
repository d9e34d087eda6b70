"""Tests of the values that an evaluation logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_repro.training.evaluation import Evaluation
from t2t_repro.training.logs import Logs
from t2t_repro.training.metrics_log import read_metrics


@pytest.mark.parametrize("source_use", [None, 0.0, 1.25])
def test_source_use_is_logged_if_it_was_measured(source_use: float | None, tmp_path: Path) -> None:
    logs = Logs(tmp_path, 0, 1)
    logs.evaluation(7, Evaluation(0.0, 0.5), source_use, None)
    expected = {"step": 7, "dev_loss": 0.0, "dev_perplexity": 1.0, "dev_accuracy": 0.5}
    assert read_metrics(tmp_path) == [expected | ({} if source_use is None else {"dev_source_use": source_use})]
