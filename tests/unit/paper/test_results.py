"""results.json: what is read, and what is refused in one line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_repro.errors import UserError
from t2t_repro.hparam import to_json
from t2t_repro.paper.results import FILE, Results, of_training, read_results
from t2t_repro.training.metrics_log import MetricsLog

ALL = Results(
    100_000, 4.9, 25, {"wmt14": 27.1, "wmt14/full": 27}, 91.3, 43200, "8 x P100", 8, ["nrefs:1|case:mixed"], "alpha=1.0"
)


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    for results in (ALL, Results()):
        (tmp_path / FILE).write_text(to_json(results))
        assert read_results(tmp_path) == results


def test_each_key_is_optional_and_others_are_left_aside(tmp_path: Path) -> None:
    assert read_results(tmp_path) is None
    (tmp_path / FILE).write_text("{}")
    assert read_results(tmp_path) == Results()
    whole = json.loads(to_json(ALL))
    for name in whole:
        (tmp_path / FILE).write_text(json.dumps({name: whole[name], "started": "today"}))
        assert read_results(tmp_path) == Results(**{name: getattr(ALL, name)})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("steps", 1.5),
        ("steps", True),
        ("steps", -1),
        ("dev_perplexity", "4.9"),
        ("dev_bleu", float("nan")),
        ("bleu", 27.3),
        ("bleu", {"wmt14": "27.3"}),
        ("f1", False),
        ("train_seconds", float("inf")),
        ("hardware", 8),
        ("gpu_count", 0.5),
        ("signatures", "nrefs:1"),
        ("signatures", [1]),
        ("search", 4),
    ],
)
def test_a_value_of_another_type(name: str, value: Any, tmp_path: Path) -> None:
    (tmp_path / FILE).write_text(json.dumps({name: value}))
    with pytest.raises(UserError) as error:
        read_results(tmp_path)
    assert str(error.value).startswith(f"{tmp_path}/results.json: {name}={value!r} must be ")
    assert str(error.value).endswith("; delete the file, and measure again")


@pytest.mark.parametrize("content", [b"", b'{"steps": 1', b"[1]", b"7", b'{"hardware": "\xff"}'])
def test_no_json_object(content: bytes, tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(content)
    with pytest.raises(UserError, match=r"results\.json: .*; delete it, and measure again"):
        read_results(tmp_path)


def test_what_a_training_told_of_itself(tmp_path: Path) -> None:
    assert of_training(tmp_path) == Results()
    log = MetricsLog(tmp_path, 0)
    log.add(5, seconds=1.5, train_loss=2.0, hardware="A", gpu_count=2)
    log.add(5, dev_loss=1.0, dev_perplexity=2.5)
    assert of_training(tmp_path) == Results(5, 2.5, train_seconds=1.5, hardware="A", gpu_count=2)
    log.add(9, seconds=2.5, train_loss=2.0, hardware="B", gpu_count=1)
    assert of_training(tmp_path).dev_perplexity is None  # killed before the evaluation
    log.add(9, dev_loss=0.5, dev_perplexity=1.5, eval_steps=3)
    assert of_training(tmp_path).dev_perplexity is None
    log.add(9, dev_loss=float("nan"), dev_perplexity=float("nan"))
    assert of_training(tmp_path) == Results(9, None, train_seconds=2.5, hardware="2 x A, then 1 x B")
