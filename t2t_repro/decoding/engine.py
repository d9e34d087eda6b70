"""The interface of engines, which compute with a model, and the register of engines.

TensorFlow is the built-in engine. Another one, such as a faster library for CPUs, registers itself.
"""

import abc
from collections.abc import Sequence

from t2t_repro.decoding.long_lines import Segment
from t2t_repro.decoding.translation import PairScore
from t2t_repro.hparam import DecodeHParams
from t2t_repro.registry import Registry

Output = tuple[list[int], float]
"""Token ids of an output, and its score. The last id is the end token, unless the output reached
the length limit.
"""

ENGINES = Registry("engine")
"""The functions that load engines, by name.

Their arguments are model folders, the path of a checkpoint for each, `DecodeHParams`, and the
precision: the type of the weights, by the engine's own name for it. They return an `Engine`, and
raise UserError if it does not support these.
"""
register_engine = ENGINES.register
"""Decorator that registers a function of `ENGINES`; see `Registry.register`."""


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
