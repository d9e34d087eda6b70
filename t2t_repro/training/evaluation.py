"""Evaluates a model on the dev split: loss, accuracy and perplexity (Table 3), and scores of
decoded text.

It also measures how much the model uses the source. A decoder can learn a language model of the
target that hardly looks at the source. Its dev loss looks plausible, but its translations are poor.
"""

from __future__ import annotations

import copy
import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.dataset import Data
from t2t_repro.data.pipeline import batches_once, distinct_sources
from t2t_repro.data.records import Records
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import Stopped, UserError, counted, refuse_unknown
from t2t_repro.hparam import MAX_INT
from t2t_repro.metrics.score import Score
from t2t_repro.training.config import LOSS
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.step import IDS

EVAL_TOKENS = 4096
"""Maximum number of positions, counting padding, on each side (source or target) of an evaluation
batch.
"""
SOURCE_USE_TOKENS = 1024
"""The same maximum for the batch that measures the source use, which has at least two examples of
any length.
"""
MIN_SOURCE_USE = 0.1
"""Source use, in nats per target token, below which training warns that the model ignores its
source.
"""
EVAL_BEAM = 4
"""Maximum beam size in an evaluation. Parsing's beam of 21 is slow while the model has not learned
to end its outputs.
"""
SAMPLES = 5
"""Maximum number of lines in `Decoded.samples`."""


Line = tuple[str, str, str]
"""Source, reference and output of a decoded line, after `Problem.finish`."""


@dataclass(frozen=True)
class Decoded:
    scores: list[Score]
    """Scores of all decoded lines by the problem's metrics, the main score first."""
    lines: int
    """Number of decoded lines."""
    samples: list[Line]
    """The first decoded lines, at most `SAMPLES`."""
    corpora: dict[str, Decoded] = field(default_factory=dict)
    """The result of each corpus with lines, by name. Empty if the split has only one corpus."""

    def score_by(self, name: str) -> Score:
        """Returns the score of the metric `name`, e.g. "chrf". Raises UserError if the problem does
        not have it.
        """
        names = [score.name for score in self.scores]
        refuse_unknown("score of --best_by", name, [LOSS, *dict.fromkeys(names)])
        return self.scores[names.index(name)]


@dataclass(frozen=True)
class Evaluation:
    """How well a model predicts each target token from the source and the correct earlier ones, and
    how it decodes.
    """

    loss: float
    """Mean negative log-likelihood of the target tokens in nats, counting end tokens, without label
    smoothing.
    """
    accuracy: float
    """Fraction of the target tokens that are the model's most probable prediction, 0 .. 1."""
    batches: int = 0
    """Number of evaluated batches if the evaluation skipped other batches; 0 if it covered the
    whole split.
    """
    source_use: float | None = None
    """Rise of the loss if each target is paired with the source of another example; None if it was
    not measured.
    """
    decoded: Decoded | None = None
    """Decoded lines; None if the evaluation decoded none."""
    corpora: dict[str, Evaluation] = field(default_factory=dict)
    """Loss, accuracy and decoded lines of each evaluated corpus by name; empty if the split has
    only one corpus.
    """

    @property
    def perplexity(self) -> float:
        """exp(loss), the perplexity per subword. Comparable only between models with the same
        vocabulary.
        """
        return math.exp(min(self.loss, 700.0))

    @property
    def score(self) -> float:
        """The problem's main score; NaN if no lines were decoded or the score is undefined."""
        return self.decoded.scores[0].score if self.decoded else math.nan

    @property
    def score_text(self) -> str:
        """The main score for a message, e.g. ", BLEU 12.30 of 100 lines"; "" if no lines were
        decoded.
        """
        if not self.decoded:
            return ""
        return (
            f", {self.decoded.scores[0].label} {self.score:.2f} of "
            f"{counted(self.decoded.lines, 'line')}"
        )

    def describe(self, is_best: bool, best_by: str = LOSS) -> str:
        """Returns the text that t2t-trainer prints; `is_best` marks the best value of the measure
        `best_by` so far.
        """
        mark = " (best)" if is_best else ""
        loss = f"dev loss {self.loss:.4f}"
        scores = self.score_text
        if best_by == LOSS or not self.decoded:
            loss += mark
        else:
            score = self.decoded.score_by(best_by)
            if score.name != self.decoded.scores[0].name:
                scores += f", {score.label} {score.score:.2f}"
            scores += mark
        source_use = "" if self.source_use is None else f", source use {self.source_use:z.2f}"
        text = (
            f"{loss}, perplexity {self.perplexity:.3f} a token, accuracy {self.accuracy:.1%}"
            f"{source_use}{scores}"
        )
        for name, part in self.corpora.items():
            text += f"; {name}: dev loss {part.loss:.4f}{part.score_text}"
        return text


class Evaluator:
    """Evaluates a model, with its weights at the time of the call, on a split.

    Args:
        model: called as model(inputs, targets) -> logits.
        records: examples of the split.
        max_tokens: maximum number of positions, counting padding, on each side (source or target)
            of a batch.
        max_batches: number of batches to evaluate, spread evenly over each corpus's batches from
            short to long examples; 0 evaluates all batches.
        decoder: decodes lines of the split; None for no lines.
        max_length: examples with more tokens on a side are omitted, as in training. UserError if
            all are longer.
    """

    def __init__(
        self,
        model: Any,
        records: Records,
        max_tokens: int,
        max_batches: int = 0,
        decoder: DevDecoder | None = None,
        max_length: int = MAX_INT,
    ) -> None:
        self._records = records
        self._max_tokens = max_tokens
        self._max_batches = max_batches
        self._max_length = max_length
        self._decoder = decoder
        if records and records.lengths.max(axis=0).min() > max_length:
            raise UserError(
                f"all {len(records):,} dev pairs are longer than max_length={max_length} tokens; "
                "generate the data again with shorter text, or give a higher "
                "--hparams=max_length=N"
            )

        def sums(inputs: tf.Tensor, targets: tf.Tensor) -> tf.Tensor:
            """Returns a batch's loss, summed over its target tokens, its number of correctly
            predicted tokens, and its number of target tokens, float32 [3].
            """
            logits = model(inputs, targets)
            # If several tokens have the largest logit, as often in bfloat16, argmax predicts the
            # one of lowest id.
            predicted = tf.argmax(logits, axis=-1)
            is_token = targets != 0
            loss = smoothed_cross_entropy(logits, targets, 0.0)
            correct = tf.math.count_nonzero((predicted == targets) & is_token, dtype=tf.float32)
            tokens = tf.math.count_nonzero(is_token, dtype=tf.float32)
            return tf.stack([loss, correct, tokens])

        self._sums = tf.function(sums, autograph=False, input_signature=[IDS, IDS])

    def __call__(self, should_stop: Callable[[], bool] = lambda: False) -> Evaluation:
        """Evaluates the split. Raises `Stopped` if `should_stop`, called before each batch and
        line, returns True.
        """
        corpora = self._records.corpora
        batches = list(batches_once(self._records, self._max_tokens, self._max_length))
        num_sampled = 0
        if 0 < self._max_batches < len(batches):
            num_sampled = self._max_batches
            batches = [batches[number] for number in spread(len(batches), num_sampled)]
        sums = np.zeros([len(corpora), 3])
        for inputs, targets, examples in batches:
            if should_stop():
                raise Stopped("the evaluation was interrupted")
            # All examples of a batch belong to one corpus.
            earlier_corpora = [corpus for corpus in corpora if corpus.stop <= examples[0]]
            sums[len(earlier_corpora)] += self._sums(inputs, targets).numpy()
        source_use = self.source_use()
        decoded = self._decoder(should_stop) if self._decoder else None
        parts = {}
        if len(corpora) > 1:
            decoded_corpora = decoded.corpora if decoded else {}
            for corpus, corpus_sums in zip(corpora, sums, strict=True):
                if corpus_sums.any():  # else no batch of this corpus was evaluated
                    part = decoded_corpora.get(corpus.name)
                    parts[corpus.name] = Evaluation(*_means(corpus_sums), decoded=part)
        return Evaluation(*_means(sums.sum(axis=0)), num_sampled, source_use, decoded, parts)

    def source_use(self) -> float | None:
        """Returns the rise of the loss, in nats per target token, if each target gets the source of
        another example.

        A model that ignores its source has a source use of 0. To cost little, the measurement uses
        only one small batch, `distinct_sources`. Returns None if the split does not have two
        different sources.
        """
        batch = distinct_sources(
            self._records, min(self._max_tokens, SOURCE_USE_TOKENS), self._max_length
        )
        if batch is None:
            return None
        inputs, targets, _ = batch
        loss, _, tokens = map(float, self._sums(inputs, targets))
        loss_of_wrong_pairs, _, _ = map(float, self._sums(np.roll(inputs, 1, axis=0), targets))
        return (loss_of_wrong_pairs - loss) / tokens


def _means(sums: np.ndarray) -> tuple[float, float]:
    """Returns the mean loss and the accuracy, for sums of the loss, of correctly predicted tokens
    and of target tokens.
    """
    loss, correct, tokens = sums.tolist()
    return loss / max(tokens, 1), correct / max(tokens, 1)


class DevDecoder:
    """Decodes lines of a split as t2t-decoder would, but with a beam of at most `EVAL_BEAM`, and
    scores the outputs.

    Args:
        model: the model, which must be able to decode.
        folder: the model folder. Its problem's `finish` and `scores` are applied to the outputs.
        records: examples of the split. If the problem is reversed, `Records` has already swapped
            sources and targets.
        lines: number of lines of each corpus to decode, spread evenly over the corpus; a smaller
            corpus is decoded as a whole. While a model has not learned to end its outputs, each
            output has the maximum length, and decoding is slow.
    """

    def __init__(self, model: Any, folder: ModelFolder, records: Records, lines: int) -> None:
        self._problem = folder.problem
        vocabulary = folder.vocabulary
        max_length = folder.hparams.max_length
        search = self._problem.decode_hparams
        search = replace(search, beam_size=min(search.beam_size, EVAL_BEAM))
        self.translator = Translator(
            model, vocabulary, search, max_length, self._problem.output_rules, folder.tags
        )
        self._corpora = records.corpora
        is_short = records.lengths.max(axis=0) <= max_length
        pairs = []
        self._counts = []
        """Number of lines of each corpus."""
        for corpus in self._corpora:
            short = corpus.start + np.flatnonzero(is_short[corpus.start : corpus.stop])
            numbers = short[spread(len(short), lines)].tolist()
            pairs += [records[number] for number in numbers]
            self._counts.append(len(numbers))
        self._sources = vocabulary.decode_sources([source.tolist() for source, _ in pairs])
        # Outputs and references are compared after `finish`. In parsing, for example, `finish`
        # makes trees.
        targets = vocabulary.decode(target.tolist() for _, target in pairs)
        self._references, _ = self._problem.finish(self._sources, targets)

    def __call__(self, should_stop: Callable[[], bool] = lambda: False) -> Decoded:
        """Decodes with the model's current weights. Raises `Stopped` if `should_stop` returns True
        after a line.
        """

        def advance(count: int) -> None:
            if should_stop():
                raise Stopped("the evaluation was interrupted")

        translations = self.translator.translate(self._sources, advance=advance)
        texts = [translation.text for translation in translations]
        outputs, _ = self._problem.finish(self._sources, texts)
        lines = iter(zip(self._sources, self._references, outputs, strict=True))
        parts = [list(itertools.islice(lines, count)) for count in self._counts]
        # The first line of each corpus, then the second one of each, and so on.
        in_turns = itertools.chain(*itertools.zip_longest(*parts))
        samples = [line for line in in_turns if line]
        scores = self._problem.scores(outputs, self._references)
        corpora = self._scored(parts) if len(parts) > 1 else {}
        return Decoded(scores, len(outputs), samples[:SAMPLES], corpora)

    def _scored(self, parts: list[list[Line]]) -> dict[str, Decoded]:
        """Returns the result of each corpus with lines, scored as its target language."""
        results = {}
        for corpus, lines in zip(self._corpora, parts, strict=True):
            if lines:
                problem = copy.copy(self._problem)
                problem.target_language = corpus.target_language or problem.target_language
                _, references, outputs = zip(*lines, strict=True)
                scores = problem.scores(outputs, references)
                results[corpus.name] = Decoded(scores, len(lines), lines[:SAMPLES])
        return results


def refuse_missing_score(data: Data, name: str) -> None:
    """Raises UserError if the problem of the data does not have the score `name`. Reads a pair of
    the dev split.
    """
    if name != LOSS:
        source, target = data.records["dev"][0]
        sources = data.vocabulary.decode_sources([source.tolist()])
        targets = data.vocabulary.decode([target.tolist()])
        references, _ = data.problem.finish(sources, list(targets))
        Decoded(data.problem.scores(references, references), 1, []).score_by(name)


def spread(size: int, count: int) -> list[int]:
    """Returns `count` increasing integers, spread evenly over 0 .. size - 1; all `size` if `count`
    is larger.

    The integers are random, but calls with the same arguments return the same integers.
    """
    count = min(size, count)
    # Draws one number from each of `count` intervals of equal size. Every n-th number would be a
    # biased sample of text that alternates. For example, numbers_ende alternates between small and
    # large numbers.
    generator = random.Random(0)
    return [
        generator.randrange(size * index // count, size * (index + 1) // count)
        for index in range(count)
    ]
