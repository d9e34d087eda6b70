"""Subword sampling: in each epoch, the texts of an example are split into other pieces
(docs/training.md).
"""

from itertools import chain
from random import Random

import numpy as np

from t2t_repro.data.groups import Group
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams


class SampledRecords:
    """The records of a group, whose texts are encoded again.

    New ids depend only on the example, the epoch and the arguments.

    Raises UserError if the vocabulary cannot sample.
    """

    def __init__(self, group: Group, vocabulary: Vocabulary, hparams: HParams, seed: int) -> None:
        self.lengths = group.records.lengths.copy()
        """int32 [2, N], as in `Records`; the lengths of the new ids for the examples of the last
        `draw`.
        """
        self._group = group
        self._records = group.records
        self._max_length = hparams.max_length
        self._seed = seed
        settings = hparams.subword_alpha, hparams.subword_nbest_size
        self._samplers = [side.sampler(*settings) for side in (vocabulary.sources, vocabulary)]
        self._pairs: dict[int, list[list[int]]] = {}

    def draw(self, numbers: np.ndarray) -> None:
        """Encodes the examples with these numbers. `read` returns only the ids of these
        examples.
        """
        numbers = np.unique(numbers)
        epoch = self._group.epoch
        names = self._records.numbers_in_split(numbers)
        sides = [
            [row.tolist() for row in np.split(ids, np.cumsum(lengths)[:-1])]
            for ids, lengths in zip(
                self._records.read(numbers), self._records.lengths[:, numbers], strict=True
            )
        ]
        self._pairs = {
            number: self._sampled([source, target], f"{self._seed} {epoch} {name}")
            for number, name, source, target in zip(
                numbers.tolist(), names.tolist(), *sides, strict=True
            )
        }
        self.lengths[:, numbers] = [
            list(map(len, side)) for side in zip(*self._pairs.values(), strict=True)
        ]

    def _sampled(self, pair: list[list[int]], name: str) -> list[list[int]]:
        """Returns new ids of a source and a target. A side that would be longer than max_length
        keeps its ids.
        """
        random = Random(name)
        sampled = [sampler(ids, random) for sampler, ids in zip(self._samplers, pair, strict=True)]
        return [
            new if len(new) <= self._max_length else ids
            for new, ids in zip(sampled, pair, strict=True)
        ]

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of examples as `Records.read` does."""
        pairs = [self._pairs[number] for number in numbers.tolist()]
        source, target = (
            np.fromiter(chain.from_iterable(pair[side] for pair in pairs), np.int32)
            for side in (0, 1)
        )
        return source, target
