"""How good a model is on text it was not trained on: how well it predicts it (Table 3), and how well it decodes it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from t2t_repro.data.pipeline import MicroBatch, batches_once
from t2t_repro.data.records import Records
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import Stopped
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import Score
from t2t_repro.problem import Problem
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.step import IDS

SAMPLES = 5
"""Lines that `Decoded` shows."""


@dataclass(frozen=True)
class Evaluation:
    """How well a model predicts each target token, given the right ones before it.

    Attributes:
        loss: negative log-likelihood in nats per target token, the end token counted, without label smoothing.
        accuracy: share of the target tokens that the model held for the likeliest, 0 .. 1.
        tokens: target tokens.
        batches: how many were measured where that was not the whole split; 0 where it was.
    """

    loss: float
    accuracy: float
    tokens: int
    batches: int = 0

    @property
    def perplexity(self) -> float:
        """exp(loss): per subword, so it compares with that of the same vocabulary only."""
        return math.exp(min(self.loss, 700.0))


def never() -> bool:
    """Whether to stop: no."""
    return False


class Evaluator:
    """Measures a model on all records of a split.

    Args:
        model: called as model(inputs, targets) -> logits.
        records: the split.
        max_tokens: positions that are evaluated together.
        max_batches: measure so many batches only, short and long ones; 0 is all.
    """

    def __init__(self, model: Any, records: Records, max_tokens: int, max_batches: int = 0) -> None:
        self._records, self._max_tokens, self._max_batches = records, max_tokens, max_batches

        def sums(inputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """The loss and the number of right tokens, of all target tokens together."""
            logits = model(inputs, targets)
            # The largest logit alone would do but for ties, of which bfloat16 has many: all of them would be right.
            likeliest = tf.argmax(logits, axis=-1, output_type=tf.int32)
            right = tf.math.count_nonzero((likeliest == targets) & (targets != 0))
            return smoothed_cross_entropy(logits, targets, 0.0), right

        self._sums = tf.function(sums, autograph=False, input_signature=[IDS, IDS])

    def __call__(self, stops: Callable[[], bool] = never) -> Evaluation:
        """Measures the model as it is now.

        Raises:
            Stopped: `stops` said so, which is asked before each batch.
        """
        total, right, tokens = 0.0, 0, 0
        batches, measured = self._batches()
        for inputs, targets in batches:
            if stops():
                raise Stopped("the evaluation was left")
            batch_total, batch_right = self._sums(inputs, targets)
            total += float(batch_total)
            right += int(batch_right)
            tokens += int((targets != 0).sum())
        return Evaluation(total / max(tokens, 1), right / max(tokens, 1), tokens, measured)

    def _batches(self) -> tuple[Iterable[MicroBatch], int]:
        """The batches to measure, and how many they are where others are left out."""
        batches = batches_once(self._records, self._max_tokens)
        if not self._max_batches:
            return batches, 0
        every = list(batches)
        chosen = [every[number] for number in spread(len(every), self._max_batches)]
        return chosen, len(chosen) if len(chosen) < len(every) else 0


@dataclass(frozen=True)
class Sample:
    """A line that was decoded; reference and output are as `Problem.finish` gives them."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Decoded:
    """What came of decoding.

    Attributes:
        scores: the problem's measures of all lines, the one to report first.
        lines: how many there were.
        samples: the first few lines.
    """

    scores: list[Score]
    lines: int
    samples: list[Sample]


class DevDecoder:
    """Decodes lines of a split as t2t-decoder would, no right token given, and scores the text.

    Args:
        model: a model with encode, start and decode_step, such as the Transformer.
        vocabulary: what the records were made with.
        problem: says how outputs are finished and scored.
        records: the split, in the problem's direction.
        lines: how many to decode, 1 or more, spread evenly over the split; all where it has no more. A line costs as
            many steps of the search as its output has tokens, and that of a model which has not learned yet to end is
            as long as the search lets it be.
        search: how to decode; by default as the problem says.
        max_length: longest source, in tokens, that the model is trained on; longer ones are cut as by t2t-decoder.

    Raises:
        UserError: a record is damaged.
    """

    def __init__(
        self,
        model: Any,
        vocabulary: Vocabulary,
        problem: Problem,
        records: Records,
        lines: int,
        search: DecodeHParams | None = None,
        max_length: int = 0,
    ) -> None:
        self._problem = problem
        self._translator = Translator(model, vocabulary, search or problem.decode_hparams, max_length)
        pairs = [records[number] for number in spread(len(records), lines)]
        self._sources = vocabulary.decode(source.tolist() for source, _ in pairs)
        # Targets are what the model is to write, which is not always what is scored: a parser's are made trees first.
        targets = vocabulary.decode(target.tolist() for _, target in pairs)
        self._references, _ = problem.finish(self._sources, targets)

    def __call__(self, stops: Callable[[], bool] = never) -> Decoded:
        """Decodes with the model as it is now.

        Raises:
            Stopped: `stops` said so, which is asked after each batch.
        """

        def advance(count: int) -> None:
            if stops():
                raise Stopped("the evaluation was left")

        translations = self._translator.translate(self._sources, advance=advance)
        outputs, _ = self._problem.finish(self._sources, [translation.text for translation in translations])
        lines = list(zip(self._sources, self._references, outputs, strict=True))
        samples = [Sample(*line) for line in lines[:SAMPLES]]
        return Decoded(self._problem.scores(outputs, self._references), len(lines), samples)


def spread(size: int, count: int) -> list[int]:
    """`count` of the numbers 0 .. size - 1 in order, spread evenly; all where there are no more. The same each time."""
    count = min(size, count)
    # One from each of `count` equal stretches, drawn: text that alternates, as numbers_ende does between small and
    # large ones, would give every n-th line all of one kind.
    draw = random.Random(0)
    return [draw.randrange(size * part // count, size * (part + 1) // count) for part in range(count)]
