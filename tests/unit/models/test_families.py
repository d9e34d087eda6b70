"""Tests that hold for every built-in family of models: what affects which logits, and steps in a search."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from decoding_models import FAMILIES, INPUTS, SEED, TARGETS, VOCAB, small_model
from t2t_repro.model_hparams import MODEL_HPARAMS

WIDER_DECODER: dict[str, Any] = {
    "shared_embedding_and_softmax_weights": False, "output_embedding_size": 10, "num_decoder_layers": 3,
}  # fmt: skip
MODELS = FAMILIES | {"convs2s, wider decoder": replace(FAMILIES["convs2s"], **WIDER_DECODER)}
models = pytest.mark.parametrize("name", MODELS)


@cache
def build(name: str) -> Any:
    """Returns a small model with dropout in training."""
    return small_model(replace(MODELS[name], layer_prepostprocess_dropout=0.3))


@cache
def logits_of(name: str, has_dropout: bool = False) -> np.ndarray:
    """Returns the logits of a model for `INPUTS` and `TARGETS`."""
    return np.asarray(build(name)(INPUTS, TARGETS, SEED if has_dropout else None))


def test_each_family_is_tested() -> None:
    assert FAMILIES.keys() == MODEL_HPARAMS.keys()


@models
def test_a_position_sees_only_earlier_targets(name: str) -> None:
    logits = logits_of(name)
    assert logits.shape == (2, 4, VOCAB) and logits.dtype == np.float32
    for t in (0, 2):
        other = TARGETS.copy()
        other[:, t:] = 17
        changed = np.asarray(build(name)(INPUTS, other))
        np.testing.assert_array_equal(changed[:, : t + 1], logits[:, : t + 1])
        assert not np.allclose(changed[:, t + 1], logits[:, t + 1])


@models
@pytest.mark.parametrize("has_dropout", [False, True])
def test_padding_and_other_examples_change_nothing(name: str, has_dropout: bool) -> None:
    model, logits, one = build(name), logits_of(name, has_dropout), SEED[1:] if has_dropout else None
    np.testing.assert_allclose(model(INPUTS[1:, :3], TARGETS[1:, :2], one), logits[1:, :2], atol=1e-5)
    padded = model(np.pad(INPUTS[1:], ((0, 0), (0, 4))), np.pad(TARGETS[1:], ((0, 0), (0, 4))), one)
    np.testing.assert_allclose(padded[:, :2], logits[1:, :2], atol=1e-5)


@models
def test_an_empty_batch_has_no_logits(name: str) -> None:
    assert build(name)(INPUTS[:0], TARGETS[:0]).shape == (0, 4, VOCAB)


@models
def test_the_seed_decides_dropout(name: str) -> None:
    model, logits = build(name), logits_of(name, has_dropout=True)
    np.testing.assert_array_equal(model(INPUTS, TARGETS, SEED), logits)
    assert not np.allclose(model(INPUTS, TARGETS, SEED + 1), logits, atol=1e-3)
    assert not np.allclose(logits_of(name), logits, atol=1e-3)
    np.testing.assert_array_equal(model(INPUTS, TARGETS), logits_of(name))


@models
def test_a_step_works_in_the_loop_of_a_search(name: str) -> None:
    # In a loop, the lengths and widths of the cache are unknown.
    model = build(name)
    start = model.start(2)
    unknown = [tf.TensorSpec([None] * len(tensor.shape), tensor.dtype) for tensor in tf.nest.flatten(start)]

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64), unknown], autograph=False)
    def step(ids: Any, cache: Any) -> Any:
        logits, cache = model.decode_step(ids, 0, tf.nest.pack_sequence_as(start, cache), memory)
        return [logits, *tf.nest.flatten(cache)]

    memory, ids = model.encode(INPUTS), np.zeros((2, 1), np.int64)
    expected, expected_cache = model.decode_step(ids, 0, start, memory)
    results = step(ids, tf.nest.flatten(start))
    for actual, value in zip(results, [expected, *tf.nest.flatten(expected_cache)], strict=True):
        np.testing.assert_allclose(actual, value, atol=1e-5)
