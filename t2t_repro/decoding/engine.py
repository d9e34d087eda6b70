"""The interface of engines, which compute with a model: TensorFlow, or a faster library for CPUs."""

from __future__ import annotations

import abc
from collections.abc import Sequence

from t2t_repro.decoding.long_lines import Segment
from t2t_repro.decoding.translation import PairScore
from t2t_repro.hparam import DecodeHParams

Output = tuple[list[int], float]
"""Token ids of an output, and its score. The last id is the end token, unless the output reached the length limit."""


def computation(precision: str, engine: str, quantization: str) -> str:
    """Returns how numbers are computed: TensorFlow's precision, or another engine's name and type of weights."""
    return precision if engine == "tensorflow" else f"{engine} {quantization or 'float32'}"


class Engine(abc.ABC):
    """Searches for outputs of sources, and scores given outputs. Everything else is the translator's task."""

    threads: int
    """Number of threads that may call the engine at the same time; 0 for that of TensorFlow."""

    @abc.abstractmethod
    def check(self, decode_hparams: DecodeHParams) -> None:
        """Raises UserError if the engine or its model cannot use `decode_hparams`."""

    @abc.abstractmethod
    def search(self, segments: Sequence[Segment], decode_hparams: DecodeHParams) -> list[list[Output]]:
        """Returns at most n outputs of each segment, but at least one, the best first."""

    @abc.abstractmethod
    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[PairScore]:
        """Returns the scores of pairs (source ids, target ids)."""

    def longest_source(self, length: int) -> int:
        """Returns the number of tokens to which sources are cut if the user wants at most `length`; 0 for no limit."""
        return length
