"""A SavedModel for TensorFlow Serving: raw text in, raw text out, tokeniser inside.

Shapes: B batch, W texts of it that are not empty, S source length, T target length, n hypotheses, L longest output.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf
import tensorflow_text

from t2t_repro.data.text_rules import EOS_ID, PAD_ID, graph_is_empty, graph_one_line, graph_output_length
from t2t_repro.decoding.beam_search import Hypotheses
from t2t_repro.decoding.search import generate_outputs, target_log_probs
from t2t_repro.decoding.translator import Translator
from t2t_repro.serving.versions import new_version


class Served(tf.Module):
    """The translator as a graph: the same search, between the same subwords as TensorFlow operations.

    Texts that are not UTF-8 are read with U+FFFD where they are not, and of texts longer than `max_input_size` or
    max_length the end is left out: nothing in a request makes the others fail.

    Args:
        translator: what to serve; how it searches is fixed in the graph.

    Raises:
        UserError: a beam larger than the vocabulary.
    """

    def __init__(self, translator: Translator) -> None:
        super().__init__()
        params = translator.checked(translator.decode_hparams)
        self._translator = translator
        self._best = dataclasses.replace(params, return_beams=False, n=1)
        self._several = dataclasses.replace(params, n=params.n or params.beam_size)
        self._longest = params.max_input_size or translator.max_length
        # What the graph reads has to hang on this object to be saved with it.
        self._weights = [variable.value for variable in translator.model.trainable_variables]
        self._tokenizer = tensorflow_text.SentencepieceTokenizer(
            model=translator.vocabulary.model, out_type=tf.int32, add_eos=False
        )
        texts, ids = tf.TensorSpec([None], tf.string), tf.TensorSpec([None, None], tf.int32)
        offered: list[tuple[str, Callable[..., dict[str, Any]], list[Any]]] = [
            ("serving_default", self.translate, [texts]),
            ("nbest", self.translate_nbest, [texts]),
            ("tokens", self.translate_tokens, [ids]),
            ("score", self.score, [texts, texts]),
        ]
        self.functions = {
            name: tf.function(call, autograph=False, input_signature=spec) for name, call, spec in offered
        }
        """What a server offers, by the signature's name."""

    def translate(self, inputs: Any) -> dict[str, Any]:
        """Translates raw strings.

        Args:
            inputs: string [B], UTF-8, one line each.

        Returns:
            "outputs", string [B], the translations, empty for empty inputs; "scores", float32 [B], log P / length
            penalty in nats, 0 for empty inputs.
        """
        return {name: values[:, 0] for name, values in self._texts(inputs, self._best).items()}

    def translate_nbest(self, inputs: Any) -> dict[str, Any]:
        """The n best translations of raw strings, best first.

        Args:
            inputs: string [B], UTF-8, one line each.

        Returns:
            "outputs", string [B, n]; "scores", float32 [B, n], 0 for empty inputs, -inf where there are fewer.
        """
        return self._texts(inputs, self._several)

    def translate_tokens(self, inputs: Any) -> dict[str, Any]:
        """Translates subwords.

        Args:
            inputs: int32 [B, S], each row ended by the end token, 1; what follows it is padding, whatever it is. Ids
                that the vocabulary has not are left out.

        Returns:
            "outputs", int32 [B, L], ended alike and padded with 0; "scores", float32 [B].
        """
        ends = tf.cast(inputs == EOS_ID, tf.int32)
        is_token = (inputs > PAD_ID) & (inputs < self._translator.vocabulary.size)
        kept = is_token & (tf.cumsum(ends, axis=1, exclusive=True) == 0)
        inputs = tf.ragged.boolean_mask(inputs, kept).to_tensor(PAD_ID)
        if self._longest:
            last = tf.where(inputs[:, self._longest - 1 :] == PAD_ID, PAD_ID, EOS_ID)[:, :1]
            inputs = tf.concat([inputs[:, : self._longest - 1], last], axis=1)
        wanted = tf.where(tf.reduce_any((inputs != PAD_ID) & (inputs != EOS_ID), axis=1))
        found = self._search(tf.gather_nd(inputs, wanted), self._best)
        shape = tf.stack([tf.shape(inputs)[0], tf.shape(found.ids)[2]])
        return {
            "outputs": tf.tensor_scatter_nd_update(tf.fill(shape, PAD_ID), wanted, found.ids[:, 0]),
            "scores": tf.tensor_scatter_nd_update(tf.zeros(shape[0]), wanted, found.scores[:, 0]),
        }

    def score(self, inputs: Any, targets: Any) -> dict[str, Any]:
        """How likely the model finds given translations.

        Args:
            inputs: string [B], sources.
            targets: string [B], a translation of each.

        Returns:
            "log_probs", float32 [B], log P of the target with its end, in nats; "lengths", int32 [B], its tokens.
        """
        sources, given = (self._encoded(utf8(texts)) for texts in (inputs, targets))
        log_probs, _ = target_log_probs(self._translator.model, sources, given)
        return {
            "log_probs": tf.reduce_sum(log_probs, axis=1),
            "lengths": tf.math.count_nonzero(given, axis=1, dtype=tf.int32),
        }

    def _texts(self, inputs: Any, params: Any) -> dict[str, Any]:
        """Strings [B] -> "outputs" string [B, n] and "scores" float32 [B, n]."""
        texts = utf8(inputs)
        wanted = tf.where(~graph_is_empty(texts))  # [W, 1]
        best = self._search(self._encoded(tf.gather_nd(texts, wanted)), params)
        lengths = graph_output_length(best.ids)
        rows, count, longest = tf.unstack(tf.shape(best.ids))
        ids = tf.RaggedTensor.from_tensor(tf.reshape(best.ids, [rows * count, longest]), tf.reshape(lengths, [-1]))
        found = tf.reshape(graph_one_line(self._tokenizer.detokenize(ids)), [rows, params.num_best])
        shape = tf.stack([tf.shape(inputs)[0], params.num_best])
        return {
            "outputs": tf.tensor_scatter_nd_update(tf.fill(shape, ""), wanted, tf.reshape(found, [rows, count])),
            "scores": tf.tensor_scatter_nd_update(tf.zeros(shape), wanted, best.scores),
        }

    def _encoded(self, texts: Any) -> Any:
        """Strings [B] -> int32 [B, S], the longest cut, each ended by the end token and padded with 0."""
        ids = self._tokenizer.tokenize(texts)
        if self._longest:
            ids = ids[:, : self._longest - 1]
        ends = tf.fill([tf.shape(texts)[0], 1], EOS_ID)
        return tf.concat([ids, ends], axis=1).to_tensor(PAD_ID)

    def _search(self, sources: Any, params: Any) -> Hypotheses:
        return generate_outputs(self._translator.model, params, sources)


def utf8(texts: Any) -> Any:
    """Strings with U+FFFD in place of bytes that are not UTF-8."""
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8", errors="replace")


def export(
    translator: Translator, export_dir: str | Path, add_files: Callable[[Path], None] = lambda folder: None
) -> Path:
    """Writes a SavedModel to a new numbered folder under `export_dir`, as TensorFlow Serving expects it.

    It is written beside and renamed, so that a server never sees half of one.

    Args:
        add_files: called with the folder before it gets its number.

    Returns:
        The new folder, numbered one higher than the highest there, from 1.

    Raises:
        UserError: the disk is full, the folder cannot be written, or a beam is larger than the vocabulary.
    """
    served = Served(translator)
    with new_version(export_dir) as (beside, target):
        try:
            tf.saved_model.save(served, str(beside), signatures=served.functions)
            add_files(beside)
        except tf.errors.OpError as error:  # of TensorFlow's own files
            raise OSError(str(error).strip().splitlines()[0]) from None
    return target
