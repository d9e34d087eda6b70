"""Evaluates a model on the dev split: loss, accuracy and perplexity (Table 3), and scores of decoded text.

It also measures how much the model uses the source. A decoder can learn a language model of the target that hardly
looks at the source. Its dev loss looks plausible, but its translations are poor.
"""

from __future__ import annotations

import functools
import math
import random
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.pipeline import MicroBatch, batches_once, distinct_sources
from t2t_repro.data.records import Records
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import Stopped
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import Score
from t2t_repro.problem import Problem
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.step import IDS

EVAL_TOKENS = 4096
"""Maximum number of positions, counting padding, on each side (source or target) of an evaluation batch."""

SOURCE_USE_TOKENS = 1024
"""Maximum number of positions, counting padding, on each side of the batch that `Evaluator.source_use` evaluates. The
batch has at least two examples, even if they are longer."""

MIN_SOURCE_USE = 0.1
"""Source use, in nats per target token, below which training warns that the model ignores its source."""

EVAL_BEAM = 4
"""Maximum beam size in an evaluation. Parsing's beam of 21 is slow while the model has not learned to end its
outputs."""

SAMPLES = 5
"""Maximum number of lines in `Decoded.samples`."""

PROBE = 10
"""Number of lines that an evaluation with a time limit decodes in any case, to measure the speed."""

DECODE_SECONDS, DECODE_SHARE = 60.0, 0.1
"""Time limit of decoding in an evaluation: the larger of DECODE_SECONDS and the share DECODE_SHARE of the training time
between two evaluations."""


def decode_seconds(training_seconds: float) -> float:
    """Returns the time limit of decoding in an evaluation.

    Args:
        training_seconds: training time between two evaluations.
    """
    return max(DECODE_SECONDS, DECODE_SHARE * training_seconds)


@dataclass(frozen=True)
class Evaluation:
    """Loss and accuracy of predicting each target token from the source and the correct earlier target tokens."""

    loss: float
    """Mean negative log-likelihood of the target tokens in nats, counting end tokens, without label smoothing."""
    accuracy: float
    """Fraction of the target tokens that are the model's most probable prediction, 0 .. 1."""
    tokens: int
    """Number of target tokens, counting end tokens."""
    batches: int = 0
    """Number of evaluated batches if the evaluation skipped other batches; 0 if it covered the whole split."""

    @property
    def perplexity(self) -> float:
        """exp(loss), the perplexity per subword. Comparable only between models with the same vocabulary."""
        return math.exp(min(self.loss, 700.0))


def never() -> bool:
    """Returns False: the default `should_stop` of an evaluation, which lets the evaluation run to its end."""
    return False


class Evaluator:
    """Computes a model's loss and accuracy on a split.

    Args:
        model: called as model(inputs, targets) -> logits.
        records: examples of the split.
        max_tokens: maximum number of positions, counting padding, on each side (source or target) of a batch.
        max_batches: number of batches to evaluate, spread evenly over the batches from short to long examples; 0
            evaluates all batches.
    """

    def __init__(self, model: Any, records: Records, max_tokens: int, max_batches: int = 0) -> None:
        self._records, self._max_tokens, self._max_batches = records, max_tokens, max_batches

        def sums(inputs: tf.Tensor, targets: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
            """Returns a batch's loss, summed over its target tokens, and its number of correctly predicted tokens."""
            logits = model(inputs, targets)
            # If several tokens have the largest logit, as often in bfloat16, argmax predicts the one of lowest id.
            predicted = tf.argmax(logits, axis=-1)
            correct = tf.math.count_nonzero((predicted == targets) & (targets != 0))
            return smoothed_cross_entropy(logits, targets, 0.0), correct

        self._sums = tf.function(sums, autograph=False, input_signature=[IDS, IDS])

    def __call__(self, should_stop: Callable[[], bool] = never) -> Evaluation:
        """Returns the loss and accuracy of the model with its current weights.

        Args:
            should_stop: function that is called before each batch. If it returns True, the evaluation stops.

        Raises:
            Stopped: if `should_stop` returned True.
        """
        total, correct, tokens = 0.0, 0, 0
        batches, measured = self._batches()
        for inputs, targets, _ in batches:
            if should_stop():
                raise Stopped("the evaluation was interrupted")
            batch_total, batch_correct = self._sums(inputs, targets)
            total += float(batch_total)
            correct += int(batch_correct)
            tokens += int((targets != 0).sum())
        return Evaluation(total / max(tokens, 1), correct / max(tokens, 1), tokens, measured)

    def source_use(self) -> float | None:
        """Returns how much the loss rises if each target is paired with the source of another example.

        A model that ignores its source has a source use of 0. To cost little, the measurement uses only one small
        batch, `distinct_sources`.

        Returns:
            Rise of the loss in nats per target token; None if the split does not have two different sources.
        """
        if self._distinct_sources is None:
            return None
        inputs, targets, _ = self._distinct_sources
        correct_pairs, _ = self._sums(inputs, targets)
        wrong_pairs, _ = self._sums(np.roll(inputs, 1, axis=0), targets)
        return (float(wrong_pairs) - float(correct_pairs)) / int((targets != 0).sum())

    @functools.cached_property
    def _distinct_sources(self) -> MicroBatch | None:
        return distinct_sources(self._records, min(self._max_tokens, SOURCE_USE_TOKENS))

    def _batches(self) -> tuple[Iterable[MicroBatch], int]:
        """Returns the batches to evaluate, and their number if other batches are skipped, else 0."""
        batches = batches_once(self._records, self._max_tokens)
        if not self._max_batches:
            return batches, 0
        all_batches = list(batches)
        sample = [all_batches[number] for number in spread(len(all_batches), self._max_batches)]
        return sample, len(sample) if len(sample) < len(all_batches) else 0


@dataclass(frozen=True)
class Sample:
    """A decoded line. `Problem.finish` has been applied to the reference and to the model's output."""

    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Decoded:
    """The result of decoding lines of a split."""

    scores: list[Score]
    """Scores of all decoded lines by the problem's metrics, the main score first."""
    lines: int
    """Number of decoded lines."""
    all_lines: int
    """Number of lines that the evaluation would have decoded without a time limit."""
    samples: list[Sample]
    """The first decoded lines, at most `SAMPLES`."""


def dev_decode_hparams(problem: Problem) -> DecodeHParams:
    """Returns the settings with which an evaluation decodes: those of the problem, with a beam of at most 4."""
    return replace(problem.decode_hparams, beam_size=min(problem.decode_hparams.beam_size, EVAL_BEAM))


class DevDecoder:
    """Decodes lines of a split as t2t-decoder would, and scores the outputs.

    Args:
        translator: the model, its vocabulary and the decode hparams.
        problem: the problem, whose `finish` and `scores` are applied to the outputs.
        records: examples of the split. If the problem is reversed, `Records` has already swapped sources and targets.
        lines: number of lines to decode, spread evenly over the split. If the split has fewer, all its lines are
            decoded. While a model has not learned to end its outputs, each output has the maximum length, and decoding
            is slow.

    Raises:
        UserError: if a record is damaged.
    """

    def __init__(self, translator: Translator, problem: Problem, records: Records, lines: int) -> None:
        self._translator, self._problem = translator, problem
        pairs = [records[number] for number in spread(len(records), lines)]
        vocabulary = translator.vocabulary
        self._sources = vocabulary.sources.decode(source.tolist() for source, _ in pairs)
        # Outputs and references are compared after `finish`. In parsing, for example, `finish` makes trees.
        self._references, _ = problem.finish(self._sources, vocabulary.decode(target.tolist() for _, target in pairs))
        # The samples are decoded first, so that each evaluation shows the same lines. The other lines have a random
        # order, so that the decoded lines are spread over the split even if a time limit ends the decoding early.
        # Every run has the same order.
        order = list(range(len(pairs)))
        later_lines = order[SAMPLES:]
        random.Random(0).shuffle(later_lines)
        self._order = [*order[:SAMPLES], *later_lines]
        self._seconds_per_line: float | None = None
        """Seconds to decode a line, measured on the latest batch; None before the first call with a time limit."""

    def __call__(self, should_stop: Callable[[], bool] = never, seconds: float = math.inf) -> Decoded:
        """Returns the scores of the lines, decoded with the model's current weights, and the first decoded lines.

        Args:
            should_stop: function that is called after each decoded line. If it returns True, the decoding stops.
            seconds: approximate time limit. If it is too short for all lines, fewer lines are decoded and scored.

        Raises:
            Stopped: if `should_stop` returned True.
        """

        def advance(count: int) -> None:
            if should_stop():
                raise Stopped("the evaluation was interrupted")

        start = time.monotonic()
        texts: dict[int, str] = {}
        while numbers := self._next_lines(len(texts), seconds - (time.monotonic() - start)):
            chunk_start = time.monotonic()
            translations = self._translator.translate([self._sources[number] for number in numbers], advance=advance)
            texts |= {number: translation.text for number, translation in zip(numbers, translations, strict=True)}
            if seconds < math.inf:
                self._seconds_per_line = (time.monotonic() - chunk_start) / len(numbers)
        return self._scored(sorted(texts), texts)

    def keep(self, lines: int) -> None:
        """Restricts later calls to the lines that an earlier call decoded. `lines` is the number of these lines."""
        self._order = self._order[:lines]

    def _next_lines(self, done: int, seconds: float) -> list[int]:
        """Returns the numbers of the lines to decode next, in the order of the split; empty if none is to be decoded.

        Args:
            done: number of lines that this call has decoded already.
            seconds: seconds left until the time limit; infinite without a limit.
        """
        left = len(self._order) - done
        if seconds == math.inf:
            count = left
        elif self._seconds_per_line is None:
            count = min(left, PROBE)
        else:
            count = min(left, max(int(min(seconds / self._seconds_per_line, left)), 0 if done else PROBE))
            if done and count < min(left, PROBE):  # decodes no more, because a very small batch wastes time
                count = 0
        return sorted(self._order[done : done + count])

    def _scored(self, numbers: list[int], texts: dict[int, str]) -> Decoded:
        """Scores the outputs `texts`, by line number, of the lines `numbers`. Returns scores, counts and samples."""
        sources, references = ([side[number] for number in numbers] for side in (self._sources, self._references))
        outputs, _ = self._problem.finish(sources, [texts[number] for number in numbers])
        samples = [Sample(*line) for line in zip(sources[:SAMPLES], references, outputs, strict=False)]
        return Decoded(self._problem.scores(outputs, references), len(numbers), len(self._order), samples)


def dev_decoder(model: Any, folder: ModelFolder, records: Records, lines: int) -> DevDecoder:
    """Returns a `DevDecoder` of a folder's model; `records` and `lines` are its arguments."""
    problem, max_length = folder.problem, folder.hparams.max_length
    translator = Translator(model, folder.vocabulary, dev_decode_hparams(problem), max_length, problem.tree_symbols)
    return DevDecoder(translator, problem, records, lines)


def spread(size: int, count: int) -> list[int]:
    """Returns `count` increasing integers, spread evenly over 0 .. size - 1; all `size` if `count` is larger.

    The integers are random, but calls with the same arguments return the same integers.
    """
    count = min(size, count)
    # Draws one number from each of `count` intervals of equal size. Every n-th number would be a biased sample of text
    # that alternates. For example, numbers_ende alternates between small and large numbers.
    generator = random.Random(0)
    return [generator.randrange(size * index // count, size * (index + 1) // count) for index in range(count)]
