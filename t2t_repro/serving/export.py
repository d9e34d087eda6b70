"""Exports a SavedModel for TensorFlow Serving. The graph contains the tokenizer: its inputs and
outputs are raw text.

In shapes, B is the number of texts in a request, W the number of nonempty texts, S the source
length, n the number of hypotheses per text, and L the length of the longest output.
"""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_repro.data.vocabularies.graph import GraphVocabulary, graph_vocabulary
from t2t_repro.data.vocabularies.tags import graph_split_tag
from t2t_repro.data.vocabularies.text_rules import (
    EOS_ID,
    PAD_ID,
    WHITE_SPACE,
    graph_is_empty,
    graph_one_line,
    graph_output_length,
    graph_strip,
    graph_utf8,
)
from t2t_repro.decoding.batches import graph_run_in_batches
from t2t_repro.decoding.beam_search import Hypotheses
from t2t_repro.decoding.search import Sources, generate_outputs, target_log_probs
from t2t_repro.decoding.sentences import graph_split_sentences
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import first_line
from t2t_repro.hparam import DecodeHParams, refuse_decode_hparams
from t2t_repro.serving.versions import new_version


class Served(tf.Module):
    """A TensorFlow graph that translates texts as `translator` does, with the translator's
    tokenizer and search.

    The graph accepts any text: it replaces bytes that are not UTF-8 by U+FFFD, and cuts each source
    to max_input_size tokens or, if max_input_size is 0, to the model's max_length. It cuts a target
    to extra_length more tokens, the longest output of the search. It works through a large request
    in batches of at most batch_size tokens, as the translator does. With `long_lines` "sentences"
    instead of "truncate", the signatures "serving_default" and "nbest" translate each sentence of a
    text separately and join the translations, as t2t-decoder --long_lines=sentences does.

    If the translator has tags, the signatures whose inputs are texts also take the target language
    of each text.

    The translator's decode_hparams are fixed in the graph. Raises UserError if it samples, or if
    `Translator.check` refuses its decode_hparams for its model.
    """

    def __init__(self, translator: Translator, long_lines: str = "truncate") -> None:
        super().__init__()
        self._splits_sentences = long_lines == "sentences"
        params = translator.decode_hparams
        translator.check(params)
        refuse_decode_hparams(params, ["sampling_method"], "a served model always uses beam search")
        self._translator = translator
        self._best_params = dataclasses.replace(params, n=1)
        self._nbest_params = dataclasses.replace(
            params, n=params.n if params.n > 1 else params.beam_size
        )
        # In tokens; 0 for any length.
        self._longest_source = params.max_input_size or translator.max_length
        self._longest_target = self._longest_source and self._longest_source + params.extra_length
        # TensorFlow saves only variables that are attributes of this object.
        copies = getattr(translator.model, "non_trainable_variables", [])
        self._weights = [
            variable.value for variable in (*translator.model.trainable_variables, *copies)
        ]
        sources = translator.vocabulary.sources
        self._vocabulary = graph_vocabulary(translator.vocabulary)
        self._sources = self._vocabulary
        if sources is not translator.vocabulary:
            self._sources = graph_vocabulary(sources)
        texts = tf.TensorSpec([None], tf.string)
        ids = tf.TensorSpec([None, None], tf.int32)
        languages = [texts] if translator.tags else []
        signatures: dict[str, tuple[Callable[..., dict[str, Any]], list[tf.TensorSpec]]] = {
            "serving_default": (self.translate, [texts, *languages]),
            "nbest": (self.translate_nbest, [texts, *languages]),
            "tokens": (self.translate_tokens, [ids]),
            "score": (self.score, [texts, texts, *languages]),
        }
        self.functions = {
            name: tf.function(method, autograph=False, input_signature=specs)
            for name, (method, specs) in signatures.items()
        }
        """TensorFlow functions by signature name."""

    def translate(self, inputs: Any, target_language: Any = None) -> dict[str, Any]:
        """Translates texts, strings [B], each without a line break.

        If the translator has tags, `target_language`, strings [B], has a language for each text
        without a tag.

        Returns:
            "outputs": string [B], the translations; empty for empty inputs. "scores": float32 [B],
            log-probability in nats divided by the length penalty; 0 for empty inputs.
        """
        results = self._translate(inputs, target_language, self._best_params)
        return {name: values[:, 0] for name, values in results.items()}

    def translate_nbest(self, inputs: Any, target_language: Any = None) -> dict[str, Any]:
        """Returns the n best translations of texts, strings [B], best first: "outputs" and
        "scores", both [B, n].

        If a text has fewer than n translations, its row ends with empty outputs of score -inf. For
        an empty text, all outputs are empty and all scores are 0.
        """
        return self._translate(inputs, target_language, self._nbest_params)

    def translate_tokens(self, inputs: Any) -> dict[str, Any]:
        """Translates texts that are encoded as subword ids.

        Args:
            inputs: int32 [B, S]. Ids after the first 1, the end token, of a row are ignored. A row
                without an end token gets one. Ids that are not in the vocabulary are dropped.

        Returns:
            "outputs": int32 [B, L], ids of the translations, including end tokens, padded with 0.
            "scores": float32 [B], log-probability in nats divided by the length penalty.
        """
        has_ended = tf.cumsum(tf.cast(inputs == EOS_ID, tf.int32), axis=1) > 0
        is_known = (inputs > PAD_ID) & (inputs < self._translator.vocabulary.sources.size)
        ids = _with_ends(
            tf.ragged.boolean_mask(inputs, is_known & ~has_ended), self._longest_source
        )
        # The indices of rows with more than an end token: [W, 1]
        not_empty = tf.where(tf.reduce_any((ids != PAD_ID) & (ids != EOS_ID), axis=1))
        sources = tf.gather_nd(ids, not_empty)
        best = self._search(sources, _decode(self._sources, sources), self._best_params)
        shape = tf.stack([tf.shape(ids, tf.int64)[0], tf.shape(best.ids, tf.int64)[2]])
        return {
            "outputs": tf.scatter_nd(not_empty, best.ids[:, 0], shape),
            "scores": tf.scatter_nd(not_empty, best.scores[:, 0], shape[:1]),
        }

    def score(self, inputs: Any, targets: Any, target_language: Any = None) -> dict[str, Any]:
        """Scores each translation in `targets`, string [B], given its source text in `inputs`,
        string [B].

        Returns:
            "log_probs": float32 [B], log-probability of the target including its end token, in
            nats. "lengths": int32 [B], number of the target's scored tokens, counting the end
            token.
        """

        def log_probs(source_ids: Any, target_ids: Any) -> tuple[Any]:
            scores, _ = target_log_probs(self._translator.model, source_ids, target_ids)
            return (tf.reduce_sum(scores, axis=1),)

        source_ids = self._source_ids(*self._split_tags(graph_utf8(inputs), target_language))
        target_ids = _with_ends(
            self._vocabulary.tokenize(graph_strip(graph_utf8(targets))), self._longest_target
        )
        (sums,) = graph_run_in_batches(
            log_probs,
            [source_ids, target_ids],
            [tf.zeros(tf.shape(inputs))],
            self._best_params.batch_size,
        )
        lengths = tf.math.count_nonzero(target_ids, axis=1, dtype=tf.int32)
        return {"log_probs": sums, "lengths": lengths}

    def _translate(
        self, inputs: Any, target_language: Any, params: DecodeHParams
    ) -> dict[str, Any]:
        """Returns the translations of strings [B]: "outputs", string [B, n]; "scores", [B, n]."""
        tags, texts = self._split_tags(graph_utf8(inputs), target_language)
        # The indices of the nonempty texts: [W, 1]
        not_empty = tf.where(~graph_is_empty(texts))
        tags = tf.gather(tags, not_empty[:, 0])
        texts = tf.gather_nd(texts, not_empty)
        if self._splits_sentences:
            sentences = graph_split_sentences(texts)
            tags = tf.gather(tags, sentences.value_rowids())
            outputs, scores = self._outputs(tags, sentences.flat_values, params)
            outputs, scores = _joined(sentences, outputs, scores)
        else:
            outputs, scores = self._outputs(tags, texts, params)
        shape = tf.stack([tf.size(inputs, tf.int64), params.n])
        return {
            "outputs": tf.scatter_nd(not_empty, outputs, shape),
            "scores": tf.scatter_nd(not_empty, scores, shape),
        }

    def _split_tags(self, texts: Any, languages: Any) -> tuple[Any, Any]:
        """Returns the id of the tag of each text in strings [B], int32 [B, (0 or 1)], and the other
        text, strings [B].

        If `languages`, strings [B], are given, a nonempty text without a tag has that of its
        language.
        """
        id_of = self._translator.vocabulary.tags
        if not id_of:
            return tf.zeros([tf.size(texts), 0], tf.int32), texts
        tags, rests = graph_split_tag(texts)
        if languages is not None:
            names = list(self._translator.tags)
            needs_tag = (tags == "") & ~graph_is_empty(texts)
            tags = tf.where(needs_tag, tf.strings.join([">>", languages, "<<"]), tags)
            is_known = tf.reduce_any(tags[:, None] == ["", *names], axis=1)
            wrong = tf.boolean_mask(tags, ~is_known)
            message = (
                f"unknown or missing target_language; the tags are {', '.join(names)}; the first "
                "wrong one is"
            )
            tf.debugging.Assert(tf.equal(tf.size(wrong), 0), [message, wrong], 1)
        is_tag = tags[:, None] == list(id_of)  # [B, number of tags]
        ids = tf.where(is_tag, list(id_of.values()), PAD_ID)
        texts = tf.where(tf.reduce_any(is_tag, axis=1), rests, texts)
        return tf.ragged.boolean_mask(ids, is_tag), texts

    def _outputs(self, tags: Any, texts: Any, params: DecodeHParams) -> tuple[Any, Any]:
        """Returns the n best translations of nonempty texts, strings [W]: strings [W, n] and their
        scores [W, n].

        `tags` are the ids of their tags, int32 [W, (0 or 1)].
        """
        best = self._search(self._source_ids(tags, texts), texts, params)
        # The vocabulary needs one output per row: ids [W, n, L] --> ids [W * n, L] --> texts [W *
        # n] --> texts [W, n].
        ids = tf.reshape(best.ids, [tf.size(best.scores), tf.shape(best.ids)[2]])
        outputs = graph_one_line(_decode(self._vocabulary, ids))
        return tf.reshape(outputs, tf.shape(best.scores)), best.scores

    def _search(self, sources: Any, texts: Any, params: DecodeHParams) -> Hypotheses:
        """Returns the n best outputs of sources, int32 [W, S]. `texts`, strings [W], are the
        sources as text.
        """
        arrays = {"inputs": sources}
        rules = self._translator.rules(params)
        if rules:
            arrays["facts"] = rules.graph_facts(texts, self._vocabulary)
        count = tf.shape(sources)[0]
        results = Hypotheses(tf.zeros([count, params.n, 0], tf.int32), tf.zeros([count, params.n]))

        def search(*rows: Any) -> Hypotheses:
            batch = Sources(**dict(zip(arrays, rows, strict=True)))
            return generate_outputs(self._translator.model, params, batch, rules)

        inputs = list(arrays.values())
        return Hypotheses(*graph_run_in_batches(search, inputs, results, params.batch_size))

    def _source_ids(self, tags: Any, texts: Any) -> Any:
        """Returns the ids of tags, int32 [B, (0 or 1)], and of stripped texts, strings [B], as
        `_with_ends` does.
        """
        ids = tf.concat([tags, self._sources.tokenize(graph_strip(texts))], axis=1)
        return _with_ends(ids, self._longest_source)


def _joined(sentences: Any, outputs: Any, scores: Any) -> tuple[Any, Any]:
    """Joins the outputs of sentences, strings [W, (N)], as `long_lines.join_translations` does.

    `outputs` and `scores` have a row for each of the M sentences of all texts: [M, n]. Returns both
    as [W, n].
    """
    rows = sentences.value_rowids()
    count = sentences.nrows()
    is_last = rows != tf.concat([rows[1:], [-1]], axis=0)
    ends_in_space = tf.strings.regex_full_match(sentences.flat_values, f"(?s).*{WHITE_SPACE}")
    spaces = tf.where(ends_in_space & ~is_last, " ", "")[:, None]
    texts = tf.strings.unsorted_segment_join(outputs + spaces, rows, count)
    scores = tf.math.unsorted_segment_sum(scores, rows, count)
    return tf.where(tf.math.is_finite(scores), texts, ""), scores


def _with_ends(ids: Any, longest: int) -> Any:
    """Returns ragged ids [B, S] as int32 [B, S], with end tokens and padded with 0.

    Rows are cut to `longest` tokens, including the end token; 0 means any length.
    """
    if longest:
        ids = ids[:, : longest - 1]
    ends = tf.fill([ids.nrows(tf.int32), 1], EOS_ID)
    return tf.concat([ids, ends], axis=1).to_tensor(PAD_ID)


def _decode(vocabulary: GraphVocabulary, ids: Any) -> Any:
    """Returns the texts of ids [B, S] as strings [B]. Ignores the first end or padding id and all
    later ids.
    """
    return vocabulary.detokenize(tf.RaggedTensor.from_tensor(ids, graph_output_length(ids)))


def export(
    translator: Translator,
    export_dir: str | Path,
    add_files: Callable[[Path], None] = lambda folder: None,
    long_lines: str = "truncate",
) -> Path:
    """Writes a SavedModel to a new version, a numbered folder in `export_dir`. Returns the folder's
    path.

    With `long_lines` "sentences", each sentence of a text is translated separately; see `Served`.
    `add_files` adds files to the SavedModel's folder, before a server can see the folder. Raises
    UserError as `Served` does, or if another process is exporting; and OSError if the version
    cannot be written.
    """
    served = Served(translator, long_lines)
    with new_version(export_dir) as (temporary, version):
        try:
            tf.saved_model.save(served, str(temporary), signatures=served.functions)
            add_files(temporary)
        except tf.errors.OpError as error:  # TensorFlow cannot write a file, e.g. on a full disk.
            raise OSError(first_line(error)) from None
    return version
