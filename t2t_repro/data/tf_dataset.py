"""The batches of training and evaluation as a `tf.data.Dataset`, e.g. for `fit` of Keras."""

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.data.batching import MAX_TOKENS
from t2t_repro.data.dataset import SPLITS, load_data, problems_in
from t2t_repro.data.pipeline import MicroBatch, Pipeline, batches_once
from t2t_repro.data.records import Records
from t2t_repro.errors import UserError, refuse_unknown
from t2t_repro.hparam import HParams

with quiet_tensorflow():
    import tensorflow as tf


@contextmanager
def python_errors() -> Iterator[None]:
    """Raises UserErrors and failed assertions of data sets as ValueErrors, for callers who write
    Python.
    """
    try:
        yield
    except UserError as error:
        raise ValueError(str(error)) from None
    except tf.errors.InvalidArgumentError as error:
        if assertion := re.search(r"assertion failed: \[(.+?)\]", error.message):
            raise ValueError(assertion[1]) from None
        raise


@python_errors()
def as_dataset(
    data_dir: str | Path,
    split: str,
    hparams: HParams,
    problem: str = "",
    random_seed: int = 1,
    start: Any = 0,
) -> tf.data.Dataset:
    """Returns the batches of a split of generated data as {"inputs": [B, S], "targets": [B, T],
    "examples": [B]}.

    These are the padded ids of B pairs and the numbers of the pairs, int64. "train" has the global
    batches of t2t-trainer, up to step hparams.train_steps. "dev" has each pair once. Raises
    ValueError if data is missing.

    Args:
        data_dir: data directory of t2t-datagen.
        split: "train" or "dev".
        hparams: batch_size, max_length, train_steps and subword sampling.
        problem: name of the problem; by default, the only one in `data_dir`.
        random_seed: determines which examples share a step, as --random_seed does.
        start: number of the first step, from 0. A variable, e.g. `model.optimizer.iterations`, is
            read when iteration starts, so that a run that `BackupAndRestore` resumes gets the
            batches that it would have got.
    """
    refuse_unknown("split", split, SPLITS)
    names = problems_in(data_dir)
    if not problem and len(names) != 1:
        raise UserError(
            f"{data_dir}: has data of {', '.join(names) or 'no problem'}; give problem=NAME"
        )
    data = load_data(str(data_dir), problem or names[0])
    if split == "dev":
        return dev_batches(data.records[split], hparams)
    pipeline = Pipeline(data.records[split], hparams, random_seed, 0, 1, data.vocabulary)
    return step_batches(pipeline, start, hparams.train_steps)


def step_batches(pipeline: Pipeline, start: Any, stop: int) -> tf.data.Dataset:
    """Returns the global batches of the steps `start` to `stop` - 1; see `as_dataset`."""

    def batches() -> Iterator[MicroBatch]:
        # Called when iteration starts, and `start` may be a variable.
        for batch in pipeline.batches(int(tf.convert_to_tensor(start)), stop):
            yield batch.micro_batches[0]

    dataset = _dataset(batches)
    if isinstance(start, int):
        dataset = dataset.apply(tf.data.experimental.assert_cardinality(max(stop - start, 0)))
    return dataset


def dev_batches(records: Records, hparams: HParams) -> tf.data.Dataset:
    """Returns each record once, in batches of at most `MAX_TOKENS` positions on each side, as
    t2t-trainer evaluates them.
    """
    batches = list(batches_once(records, MAX_TOKENS, hparams.max_length))
    return _dataset(lambda: batches).apply(tf.data.experimental.assert_cardinality(len(batches)))


def _dataset(batches: Callable[[], Iterable[MicroBatch]]) -> tf.data.Dataset:
    ids = tf.TensorSpec([None, None], tf.int64)
    numbers = tf.TensorSpec([None], tf.int64)
    return tf.data.Dataset.from_generator(
        lambda: (batch._asdict() for batch in batches()),
        output_signature={"inputs": ids, "targets": ids, "examples": numbers},
    )
