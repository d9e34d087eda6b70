"""The interface of engines, which compute with a model: TensorFlow, or a faster library for CPUs."""  # noqa: E501

from __future__ import annotations

import abc
from collections.abc import Sequence

from t2t_repro.decoding.long_lines import Segment
from t2t_repro.decoding.translation import PairScore
from t2t_repro.hparam import DecodeHParams

Output = tuple[list[int], float]
"""Token ids of an output, and its score. The last id is the end token, unless the output reached
the length limit.
"""


def computation(precision: str, engine: str, quantization: str) -> str:
    """Returns how numbers are computed: TensorFlow's precision, or the engine and its type of
    weights, as one string.

    The string is part of the settings that journals and other files of unfinished work store.
    """
    return precision if engine == "tensorflow" else f"{engine} {quantization or precision}"


class Engine(abc.ABC):
    """Searches for outputs of sources, and scores given outputs. Everything else is the
    translator's task.
    """

    threads: int
    """Number of threads that may call the engine at the same time."""

    @abc.abstractmethod
    def check(self, decode_hparams: DecodeHParams) -> None:
        """Raises UserError if the engine or its model cannot use `decode_hparams`."""

    @abc.abstractmethod
    def search(
        self, segments: Sequence[Segment], decode_hparams: DecodeHParams, needs_scores: bool
    ) -> list[list[Output]]:
        """Returns at most n outputs of each segment, but at least one, the best first.

        If `needs_scores` is false, scores may be 0, to save time.
        """

    @abc.abstractmethod
    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[PairScore]:
        """Returns the scores of pairs (source ids, target ids)."""
