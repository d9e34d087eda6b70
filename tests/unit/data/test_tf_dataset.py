"""Tests that `as_dataset` has the batches of the pipeline."""

import itertools
from pathlib import Path

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
    generate_data(
        registry.problem("numbers_ende", {"train_size": 50, "vocab_size": 300}), folder, str(folder)
    )
    return load_data(str(folder), "numbers_ende")


def test_elements_are_the_global_batches_and_dev_has_each_pair_that_is_not_too_long(
    data: Data,
) -> None:
    pipeline = Pipeline(data.records["train"], HPARAMS, 3, 20, 2)
    lengths = data.records["dev"].lengths.max(axis=0)
    numbers = {}
    for split, records in data.records.items():
        dataset = as_dataset(data.data_dir, split, HPARAMS, random_seed=3, start=4)
        batches = [
            [array.numpy() for array in (b["inputs"], b["targets"], b["examples"])] for b in dataset
        ]
        numbers[split] = [sorted(batch[-1].tolist()) for batch in batches]
        assert int(dataset.cardinality()) == len(batches)
        for *pair, number in (row for batch in batches for row in zip(*batch, strict=True)):
            for ids, expected in zip(pair, records[number], strict=True):
                np.testing.assert_array_equal(ids, np.pad(expected, (0, len(ids) - len(expected))))
    assert numbers["train"] == [sorted(step.examples.tolist()) for step in pipeline.batches(4, 9)]
    assert sorted(itertools.chain(*numbers["dev"])) == np.flatnonzero(lengths <= 20).tolist()
    assert pipeline.steps_per_epoch < 4 and max(lengths) > 20


def test_mistakes_are_errors_of_python(data: Data, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="test"):
        as_dataset(data.data_dir, "test", HPARAMS)
    for folder, problem in ((Path(data.data_dir), "text_files"), (tmp_path, "")):
        with pytest.raises(ValueError, match=folder.name):
            as_dataset(folder, "dev", HPARAMS, problem)
