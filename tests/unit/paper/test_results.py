"""Tests that results.json is read back as it was written, and that a damaged file is reported in
one line.
"""

from pathlib import Path

import pytest

from t2t_repro.errors import UserError
from t2t_repro.paper.results import FILE, Results, read_results, training_results, write_results
from t2t_repro.training.metrics_log import MetricsLog

FULL = Results(
    100_000,
    4.9,
    25,
    {"wmt14": 27.1, "wmt14/full": 27},
    91.3,
    43200,
    "8 x P100",
    8,
    ["nrefs:1|case:mixed"],
    "alpha=1.0",
)


def test_written_results_are_read_back(tmp_path: Path) -> None:
    for results in (FULL, Results()):
        write_results(tmp_path, results)
        assert read_results(tmp_path) == results


def test_every_key_is_optional(tmp_path: Path) -> None:
    assert read_results(tmp_path) is None
    (tmp_path / FILE).write_text('{"steps": 5, "bleu": null}')
    assert read_results(tmp_path) == Results(5)


@pytest.mark.parametrize(
    "content",
    [
        '{"steps": -1}',
        '{"dev_perplexity": "4.9"}',
        '{"bleu": {"wmt14": "27.3"}}',
        '{"f1": false}',
        '{"train_seconds": 1e308}',
        '{"hardware": 8}',
        '{"signatures": [1]}',
        '{"started": "today"}',
        "[1]",
        '{"steps"',
    ],
)
def test_a_damaged_file_is_reported(content: str, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(UserError, match=r"results\.json:.*; delete it, and measure again"):
        read_results(tmp_path)


def test_the_metrics_of_a_training_give_its_results(tmp_path: Path) -> None:
    assert training_results(tmp_path) == Results()
    log = MetricsLog(tmp_path, 0)
    log.add(5, seconds=1.5, train_loss=2.0, hardware="A", gpu_count=2)
    log.add(5, dev_loss=1.0, dev_perplexity=2.5)
    assert training_results(tmp_path) == Results(
        5, 2.5, train_seconds=1.5, hardware="A", gpu_count=2
    )
    log.add(9, seconds=2.5, train_loss=2.0, hardware="B", gpu_count=1)
    assert training_results(tmp_path).dev_perplexity is None  # the log has no evaluation at step 9
    log.add(9, dev_loss=0.5, dev_perplexity=1.5, eval_steps=3)
    assert (
        training_results(tmp_path).dev_perplexity is None
    )  # the evaluation at step 9 is only partial
    log.add(9, dev_loss=float("nan"), dev_perplexity=float("nan"))
    assert training_results(tmp_path) == Results(
        9, None, train_seconds=2.5, hardware="2 x A, then 1 x B"
    )
