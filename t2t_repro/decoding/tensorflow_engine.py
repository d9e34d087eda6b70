"""The engine that runs a model with TensorFlow.

Shapes: B batch, n hypotheses, L longest output.
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.batches import padded, unpadded
from t2t_repro.decoding.beam_search import MISSING
from t2t_repro.decoding.engine import Engine, Output
from t2t_repro.decoding.ensemble import Ensemble
from t2t_repro.decoding.long_lines import Segment
from t2t_repro.decoding.rules import Rules
from t2t_repro.decoding.sampling import random_numbers
from t2t_repro.decoding.search import Sources, generate_outputs, target_log_probs
from t2t_repro.decoding.translation import PairScore
from t2t_repro.errors import UserError, refuse_unknown
from t2t_repro.hparam import DecodeHParams
from t2t_repro.layers.base import Layer, float32
from t2t_repro.models.model import as_decoding_model
from t2t_repro.models.transformer import Embedding
from t2t_repro.models.variants import BiasedSoftmax

PRECISIONS = ("float32", "bfloat16")
"""Dtypes of the weights and of matrix products. (Training has other precisions, with all weights in
float32.)
"""


class TensorFlowEngine(Engine):
    """Runs `model`. `rules` returns the rules that outputs must obey with some decode hparams, or
    None.
    """

    def __init__(self, model: Any, rules: Callable[[DecodeHParams], Rules | None]) -> None:
        self._model = model
        self._rules = rules
        # 0 means automatic, before `devices.set_threads` has set a number.
        self.threads = max(tf.config.threading.get_inter_op_parallelism_threads(), 1)
        self._search_graphs: dict[Any, Any] = {}
        self._lock = threading.Lock()
        self._score_graph = tf.function(
            lambda inputs, targets: target_log_probs(model, inputs, targets),
            autograph=False,
            input_signature=[tf.TensorSpec([None, None], tf.int32)] * 2,
        )

    def check(self, decode_hparams: DecodeHParams) -> None:
        """Raises UserError if the model cannot use `decode_hparams`."""
        as_decoding_model(self._model, "score with it (t2t-decoder --score_file)")
        if decode_hparams.coverage_penalty and not self._model.has_attention:
            raise UserError(
                f"model {self._model.name!r} has no attention for coverage_penalty; omit it"
            )

    def search(
        self, segments: Sequence[Segment], decode_hparams: DecodeHParams, needs_scores: bool
    ) -> list[list[Output]]:
        """Returns the outputs of each segment with their scores."""
        arrays = Sources(inputs=padded([segment.ids for segment in segments]))
        if any(segment.prefix_ids for segment in segments):
            arrays["prefix"] = padded([segment.prefix_ids for segment in segments])
        if rules := self._rules(decode_hparams):
            arrays["facts"] = rules.facts([segment.string for segment in segments])
        if decode_hparams.is_random:
            # At least the longest limit in `generate_outputs`. Longer arrays begin with the same
            # random numbers.
            limit = sum(array.shape[1] for array in arrays.values()) + decode_hparams.extra_length
            limit += rules.min_extra if rules else 0
            arrays["random"] = np.stack(
                [
                    random_numbers(
                        decode_hparams.sampling_seed,
                        segment.line_number,
                        segment.number,
                        limit,
                        decode_hparams.n,
                    )
                    for segment in segments
                ]
            )
        best = self._search_graph(decode_hparams, arrays)(arrays)
        all_ids = best.ids.numpy().tolist()
        all_scores = best.scores.numpy().tolist()
        outputs = []
        for rows, scores in zip(all_ids, all_scores, strict=True):
            # A small vocabulary or length limit allows fewer than n outputs. The first one exists
            # even if the model has diverged: its score is then -inf.
            outputs.append(
                [
                    (unpadded(row), score)
                    for place, (row, score) in enumerate(zip(rows, scores, strict=True))
                    if place == 0 or score > MISSING
                ]
            )
        return outputs

    def _search_graph(self, decode_hparams: DecodeHParams, arrays: Sources) -> Any:
        """Returns `generate_outputs` as a graph that takes `arrays`.

        Calls with equal search settings and equal names of arrays share a graph.
        """
        changed = dataclasses.replace(
            decode_hparams, batch_size=1, sampling_seed=0, max_input_size=0
        )
        key = (changed, *arrays)
        with self._lock:
            if key not in self._search_graphs:
                # TensorFlow warns of a function that is traced often. It counts the traces of each
                # partial separately.
                rules = self._rules(decode_hparams)
                search = functools.partial(
                    generate_outputs, self._model, decode_hparams, rules=rules
                )
                specs = {
                    name: tf.TensorSpec([None] * array.ndim, array.dtype, name)
                    for name, array in arrays.items()
                }
                self._search_graphs[key] = tf.function(
                    search, autograph=False, input_signature=[specs]
                )
        return self._search_graphs[key]

    def score(self, pairs: Sequence[tuple[Sequence[int], Sequence[int]]]) -> list[PairScore]:
        """Returns the scores of pairs."""
        sources, targets = zip(*pairs, strict=True)
        log_probs, attention = self._score_graph(padded(sources), padded(targets))
        rows = zip(log_probs.numpy().tolist(), attention.numpy().tolist(), targets, strict=True)
        return [
            PairScore(tuple(row_log_probs[: len(target)]), tuple(row_attention[: len(target)]))
            for row_log_probs, row_attention, target in rows
        ]


def load(
    folders: Sequence[ModelFolder],
    checkpoints: Sequence[str],
    decode_hparams: DecodeHParams,
    precision: str,
) -> Any:
    """Returns the model of one folder, or the ensemble of the models of several folders, for
    decoding only.
    """
    refuse_unknown("precision", precision, PRECISIONS)
    devices.require_precision(precision)
    pairs = zip(folders, checkpoints, strict=True)
    models = [folder.decoding_model(checkpoint, precision) for folder, checkpoint in pairs]
    for model in models:
        if isinstance(model, Layer):
            transpose_softmax(model)
    return models[0] if len(models) == 1 else Ensemble(models)


class TransposedSoftmax(Layer):
    """The projection before the softmax, with its matrix as [D, V] in place of [V, D].

    Without a transpose in each step of decoding, greedy search takes 8% less time.
    """

    def __init__(self, softmax: Embedding) -> None:
        super().__init__(dtype=softmax.dtype_policy)
        shape = softmax.table.shape[::-1]
        dtype = softmax.table.dtype
        self.matrix = self.add_weight(shape, "zeros", dtype=dtype, trainable=False, name="matrix")
        self.matrix.assign(tf.transpose(softmax.table))

    def logits(self, x: tf.Tensor) -> tf.Tensor:
        """Returns the logits of all V tokens, float32 [..., V], for decoder outputs x [..., D]."""
        return float32(self.product(x, self.matrix))


def transpose_softmax(model: Any) -> None:
    """Stores the matrix before the softmax of a built-in model as `TransposedSoftmax`."""
    owner = model.softmax if isinstance(model.softmax, BiasedSoftmax) else model
    if isinstance(owner.softmax, Embedding):
        owner.softmax = TransposedSoftmax(owner.softmax)
