"""Evaluation on the dev split: the loss, accuracy and perplexity of a model (Table 3), and scores of decoded text."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from t2t_repro.data.pipeline import MicroBatch, batches_once
from t2t_repro.data.records import Records
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import Stopped
from t2t_repro.metrics.score import Score
from t2t_repro.problem import Problem
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.step import IDS

SAMPLES = 5
"""Number of lines in `Decoded.samples`."""


@dataclass(frozen=True)
class Evaluation:
    """Accuracy and loss of a model that predicts each target token from the correct tokens before it."""

    loss: float
    """Negative log-likelihood in nats per target token, with the end token, without label smoothing."""
    accuracy: float
    """Share of the target tokens to which the model gave the highest probability, 0 .. 1."""
    tokens: int
    """Number of target tokens."""
    batches: int = 0
    """Number of evaluated batches; 0 if the whole split was evaluated."""

    @property
    def perplexity(self) -> float:
        """exp(loss), per subword; only comparable between models with the same vocabulary."""
        return math.exp(min(self.loss, 700.0))


def never() -> bool:
    """Returns False: do not stop."""
    return False


class Evaluator:
    """Measures how well a model predicts a split.

    Args:
        model: called as model(inputs, targets) -> logits.
        records: the split.
        max_tokens: maximum number of positions in a batch.
        max_batches: number of batches to evaluate, spread over short and long ones; 0 evaluates all.
    """

    def __init__(self, model: Any, records: Records, max_tokens: int, max_batches: int = 0) -> None:
        self._records, self._max_tokens, self._max_batches = records, max_tokens, max_batches

        def sums(inputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Returns the summed loss and the number of correct tokens of a batch."""
            logits = model(inputs, targets)
            # In bfloat16 several tokens often have the same logit; argmax takes the first.
            predicted = tf.argmax(logits, axis=-1, output_type=tf.int32)
            correct = tf.math.count_nonzero((predicted == targets) & (targets != 0))
            return smoothed_cross_entropy(logits, targets, 0.0), correct

        self._sums = tf.function(sums, autograph=False, input_signature=[IDS, IDS])

    def __call__(self, should_stop: Callable[[], bool] = never) -> Evaluation:
        """Measures the model as it is now.

        Args:
            should_stop: asked before each batch.

        Raises:
            Stopped: if `should_stop` returned True.
        """
        total, correct, tokens = 0.0, 0, 0
        batches, measured = self._batches()
        for inputs, targets in batches:
            if should_stop():
                raise Stopped("the evaluation was interrupted")
            batch_total, batch_correct = self._sums(inputs, targets)
            total += float(batch_total)
            correct += int(batch_correct)
            tokens += int((targets != 0).sum())
        return Evaluation(total / max(tokens, 1), correct / max(tokens, 1), tokens, measured)

    def _batches(self) -> tuple[Iterable[MicroBatch], int]:
        """Returns the batches to measure, and their number if others are skipped, else 0."""
        batches = batches_once(self._records, self._max_tokens)
        if not self._max_batches:
            return batches, 0
        all_batches = list(batches)
        sample = [all_batches[number] for number in spread(len(all_batches), self._max_batches)]
        return sample, len(sample) if len(sample) < len(all_batches) else 0


@dataclass(frozen=True)
class Sample:
    """A decoded line. Reference and output are as `Problem.finish` returns them."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Decoded:
    """The result of decoding lines of a split."""

    scores: list[Score]
    """The problem's scores of all lines; the first one is reported."""
    lines: int
    """Number of lines."""
    samples: list[Sample]
    """The first lines."""


class DevDecoder:
    """Decodes lines of a split as t2t-decoder would, and scores the text.

    Args:
        translator: the model, its vocabulary and how to search.
        problem: decides how outputs are finished and scored.
        records: the split, in the problem's direction.
        lines: number of lines to decode, spread evenly over the split; all if the split has fewer. A model that has not
            learned to end makes each output as long as the search allows, which is slow.

    Raises:
        UserError: if a record is damaged.
    """

    def __init__(self, translator: Translator, problem: Problem, records: Records, lines: int) -> None:
        self._translator, self._problem = translator, problem
        pairs = [records[number] for number in spread(len(records), lines)]
        decode = translator.vocabulary.decode
        self._sources = decode(source.tolist() for source, _ in pairs)
        # The targets are not always the text to score: in parsing they become trees first.
        self._references, _ = problem.finish(self._sources, decode(target.tolist() for _, target in pairs))

    def __call__(self, should_stop: Callable[[], bool] = never) -> Decoded:
        """Decodes with the model as it is now.

        Args:
            should_stop: asked after each batch.

        Raises:
            Stopped: if `should_stop` returned True.
        """

        def advance(count: int) -> None:
            if should_stop():
                raise Stopped("the evaluation was interrupted")

        translations = self._translator.translate(self._sources, advance=advance)
        outputs, _ = self._problem.finish(self._sources, [translation.text for translation in translations])
        lines = list(zip(self._sources, self._references, outputs, strict=True))
        samples = [Sample(*line) for line in lines[:SAMPLES]]
        return Decoded(self._problem.scores(outputs, self._references), len(lines), samples)


def spread(size: int, count: int) -> list[int]:
    """Returns `count` of the numbers 0 .. size - 1 in order, spread evenly; all if there are no more.

    The numbers are the same at each call.
    """
    count = min(size, count)
    # One number is drawn from each of `count` equal stretches. To take every n-th line would be biased if the text
    # alternates: numbers_ende alternates between small and large numbers.
    draw = random.Random(0)
    return [draw.randrange(size * stretch // count, size * (stretch + 1) // count) for stretch in range(count)]
