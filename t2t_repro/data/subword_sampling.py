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
        names = self._records.numbers_in_split(numbers).tolist()
        source_ids, target_ids = self._records.read(numbers)
        source_lengths, target_lengths = self._records.lengths[:, numbers]
        sources = np.split(source_ids, np.cumsum(source_lengths)[:-1])
        targets = np.split(target_ids, np.cumsum(target_lengths)[:-1])
        self._pairs = {}
        for number, name, source, target in zip(
            numbers.tolist(), names, sources, targets, strict=True
        ):
            random = Random(f"{self._seed} {self._group.epoch} {name}")
            pair = self._sampled([source.tolist(), target.tolist()], random)
            self._pairs[number] = pair
            self.lengths[:, number] = list(map(len, pair))

    def _sampled(self, pair: list[list[int]], random: Random) -> list[list[int]]:
        """Returns new ids of a source and a target. A side that would be longer than max_length
        keeps its ids.
        """
        sampled = []
        for sampler, ids in zip(self._samplers, pair, strict=True):
            new_ids = sampler(ids, random)
            sampled.append(new_ids if len(new_ids) <= self._max_length else ids)
        return sampled

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the source ids of several examples, one example after another, and their target
        ids, as int32 arrays.
        """
        pairs = [self._pairs[number] for number in numbers.tolist()]
        source_ids = chain.from_iterable(source for source, _ in pairs)
        target_ids = chain.from_iterable(target for _, target in pairs)
        return np.fromiter(source_ids, np.int32), np.fromiter(target_ids, np.int32)
