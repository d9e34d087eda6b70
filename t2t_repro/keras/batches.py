"""Turns the data that users give to `fit`, `evaluate` and `predict` into batches of ids."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data.records import Records
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import padded
from t2t_repro.errors import UserError, text_list

FORMS = (
    "give two lists of texts (sources, targets), as_dataset, or a tf.data.Dataset of batches of "
    "pairs: texts [batch] or padded ids [batch, length]"
)


class EncodedPairs(Records):
    """Encoded pairs of texts in memory, with the interface of `Records`."""

    def __init__(
        self, sources: Sequence[str], targets: Sequence[str], vocabulary: Vocabulary
    ) -> None:
        self._ids = vocabulary.encode_sources(sources), vocabulary.encode_targets(targets)
        self.starts = np.array([0, len(sources)])
        self.lengths = np.array([list(map(len, side)) for side in self._ids], np.int32)
        self.corpora = (StoredCorpus(stop=len(sources)),)

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of pairs as `Records.read` does."""
        source, target = (list(map(side.__getitem__, numbers.tolist())) for side in self._ids)
        return np.concatenate(source, dtype=np.int32), np.concatenate(target, dtype=np.int32)


def pairs_in(x: Any, y: Any, vocabulary: Vocabulary) -> EncodedPairs | None:
    """Returns the pairs if `x` and `y` are lists of texts; None if `x` is a data set; else raises
    an error.
    """
    if isinstance(x, tf.data.Dataset):
        return None
    if y is None:
        if not (isinstance(x, tuple | list) and len(x) == 2) or any(
            isinstance(side, str) for side in x
        ):
            raise UserError(f"cannot read data of type {type(x).__name__}; {FORMS}")
        x, y = x
    sources = text_list("sources", x)
    targets = text_list("targets", y, len(sources))
    if not sources:
        raise UserError("the data has no pairs; give at least one")
    return EncodedPairs(sources, targets, vocabulary)


def id_batches(dataset: tf.data.Dataset, vocabulary: Vocabulary) -> tf.data.Dataset:
    """Returns batches of ids or texts as (x, y, weights): the batches of `as_dataset`, targets, and
    0 for padding.
    """
    encoders = {"inputs": vocabulary.encode_sources, "targets": vocabulary.encode_targets}
    sizes = {"inputs": vocabulary.sources.size, "targets": vocabulary.size}

    def as_triple(*element: Any) -> Any:
        batch = dict(element[0]) if len(element) == 1 else dict(zip(sizes, element, strict=True))
        for name, size in sizes.items():
            if batch[name].dtype == tf.string:
                texts = tf.ensure_shape(batch[name], [None])
                batch[name] = tf.numpy_function(_encoder(encoders[name]), [texts], tf.int64)
            batch[name] = ids = tf.ensure_shape(tf.cast(batch[name], tf.int64), [None, None])
            message = f"{name} have an id that is not in the vocabulary of {size}"
            tf.debugging.Assert(tf.reduce_all((ids >= 0) & (ids < size)), [message])
        return batch, batch["targets"], tf.cast(batch["targets"] != 0, tf.float32)

    if dataset.cardinality() == 0 or (
        dataset.cardinality() == tf.data.UNKNOWN_CARDINALITY and not [*dataset.take(1)]
    ):
        raise UserError("the data set has no batches; give at least one")
    try:
        return dataset.map(as_triple)
    except (LookupError, TypeError, ValueError):
        raise UserError(f"the data set has elements {dataset.element_spec}; {FORMS}") from None


def _encoder(encode: Callable) -> Callable:
    """Returns the function that encodes texts, UTF-8 [B], as padded ids."""
    return lambda texts: padded(
        encode([text.decode(errors="replace") for text in texts.tolist()])
    ).astype(np.int64)
