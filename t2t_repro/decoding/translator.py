"""Text in, text out: tokenise, sort, batch, search, restore the order, detokenise.

Shapes: B batch, S source length, n hypotheses, L longest output.
"""

from __future__ import annotations

import dataclasses
import string
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.decoding.beam_search import Hypotheses, beam_search
from t2t_repro.hparam import DecodeHParams
from t2t_repro.model_folder import ModelFolder


@dataclass(frozen=True)
class Translation:
    """An output of the model.

    Attributes:
        text: one line.
        score: log P / length penalty, in nats; 0 for an empty input, whose output is empty.
    """

    text: str
    score: float


class Translator:
    """Translates text with a trained model, which it holds ready.

    Args:
        model: a model with encode, start and decode_step, such as the Transformer.
        vocabulary: its vocabulary.
        decode_hparams: how to search.
    """

    def __init__(self, model: Any, vocabulary: Vocabulary, decode_hparams: DecodeHParams) -> None:
        self.model, self.vocabulary, self.decode_hparams = model, vocabulary, decode_hparams
        self._search = tf.function(
            self.search, autograph=False, input_signature=[tf.TensorSpec([None, None], tf.int32)]
        )

    @classmethod
    def from_dir(cls, output_dir: str, checkpoint_path: str = "", **decode_hparams: Any) -> Translator:
        """A translator with the model of a folder that t2t-trainer made.

        Args:
            checkpoint_path: see `ModelFolder.checkpoint`.
            decode_hparams: fields of `DecodeHParams` that differ from the problem's defaults.

        Raises:
            UserError: no such folder or checkpoint, or files in it that do not belong together.
        """
        folder = ModelFolder(output_dir)
        model = folder.model(folder.checkpoint(checkpoint_path))
        return cls(model, folder.vocabulary, dataclasses.replace(folder.problem.decode_hparams, **decode_hparams))

    def search(self, inputs: tf.Tensor) -> Hypotheses:
        """The best output of each source; the served graph runs this too.

        Args:
            inputs: int32 [B, S], each row ended by the end token and padded with 0.

        Returns:
            Hypotheses with n = 1.
        """
        params = self.decode_hparams
        lengths = tf.math.count_nonzero(inputs, axis=1, dtype=tf.int32)
        return beam_search(
            self.model.decode_step,
            self.model.start(tf.shape(inputs)[0] * params.beam_size),
            self.model.encode(inputs),
            limits=lengths + params.extra_length,
            beam_size=params.beam_size,
            alpha=params.alpha,
        )

    def translate(self, texts: Sequence[str], advance: Callable[[int], None] = lambda count: None) -> list[Translation]:
        """The translation of each text, in their order; that of an empty one is empty.

        Args:
            texts: one line each.
            advance: called with the number of texts that are newly done.
        """
        translations = [Translation("", 0.0)] * len(texts)
        sources = self.vocabulary.encode(texts)
        wanted = [number for number, text in enumerate(texts) if text.strip(string.whitespace)]
        advance(len(texts) - len(wanted))
        for numbers in batches(wanted, [len(source) for source in sources], self.decode_hparams.batch_size):
            inputs = np.zeros((len(numbers), max(len(sources[number]) for number in numbers)), np.int32)
            for row, number in zip(inputs, numbers, strict=True):
                row[: len(sources[number])] = sources[number]
            best = self._search(inputs)
            outputs = self.vocabulary.decode(best.ids[:, 0].numpy().tolist())
            for number, text, score in zip(numbers, outputs, best.scores[:, 0].numpy().tolist(), strict=True):
                # A model may emit the byte of a line end; lines out must be as many as lines in.
                translations[number] = Translation(text.replace("\n", " "), score)
            advance(len(numbers))
        return translations


def batches(numbers: Sequence[int], lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """Cuts `numbers`, longest first, into batches of at most `batch_size` positions, padding included.

    Args:
        lengths: tokens of each number's source.
    """
    batch: list[int] = []
    for number in sorted(numbers, key=lambda number: -lengths[number]):
        if batch and (len(batch) + 1) * lengths[batch[0]] > batch_size:
            yield batch
            batch = []
        batch.append(number)
    if batch:
        yield batch
