"""Tests that `as_dataset` has the batches of the pipeline."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from t2t_repro import registry
from t2t_repro.data import as_dataset
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import Data, load_data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.hparam import HParams

HPARAMS = HParams(batch_size=100, train_steps=9, max_length=20)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Data:
    folder = tmp_path_factory.mktemp("data")
    problem = registry.problem("numbers_ende", {"train_size": 50, "vocab_size": 300})
    generate_data(problem, folder, str(folder))
    return load_data(str(folder), "numbers_ende")


def rows(batch: Any) -> dict[int, tuple[list[int], list[int]]]:
    """Returns the ids of each example of a batch, by its number."""
    inputs, targets, examples = (np.array(batch[name]).tolist() for name in ("inputs", "targets", "examples"))
    return {
        number: ([number for number in source if number], [number for number in target if number])
        for number, source, target in zip(examples, inputs, targets, strict=True)
    }


def test_an_element_is_a_global_batch(data: Data) -> None:
    dataset = as_dataset(data.data_dir, "train", HPARAMS, random_seed=3, start=4)
    pipeline = Pipeline(data.records["train"], HPARAMS, 3, 20, 2)
    steps = list(pipeline.batches(4, 9))
    assert int(dataset.cardinality()) == len(steps) == 5 and pipeline.steps_per_epoch < 4
    for batch, step in zip(dataset, steps, strict=True):
        assert rows(batch).keys() == set(step.examples.tolist())
        for number, pair in rows(batch).items():
            assert pair == tuple(side.tolist() for side in data.records["train"][number])


def test_dev_has_each_pair_that_is_not_too_long(data: Data) -> None:
    dataset, records = as_dataset(data.data_dir, "dev", HPARAMS), data.records["dev"]
    numbers = [number for batch in dataset for number in rows(batch)]
    assert sorted(numbers) == np.flatnonzero(records.lengths.max(axis=0) <= 20).tolist() and len(numbers) < len(records)
    assert int(dataset.cardinality()) == len(list(dataset))


def test_mistakes_are_errors_of_python(data: Data, tmp_path: Path) -> None:
    for folder, split, problem in (
        (data.data_dir, "test", ""), (data.data_dir, "dev", "text_files"), (tmp_path, "dev", "")
    ):  # fmt: skip
        with pytest.raises(ValueError, match=f"{split if split == 'test' else folder}"):
            as_dataset(folder, split, HPARAMS, problem)


def test_the_package_does_not_import_tensorflow() -> None:
    code = "import sys, t2t_repro.data.pipeline; assert 'tensorflow' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
