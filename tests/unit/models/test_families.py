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


@cache
def logits_of(family: str, seed: bool = False) -> np.ndarray:
    """Returns the logits of the family's model for `INPUTS` and `TARGETS`, with or without dropout."""
    return np.asarray(build(family)(INPUTS, TARGETS, SEED if seed else None))


@cache
def build(family: str) -> Any:
    """Returns a small model of the family, with dropout in training."""
    return small_model(replace(FAMILIES[family], layer_prepostprocess_dropout=0.3))


families = pytest.mark.parametrize("family", FAMILIES)


def test_each_family_is_tested() -> None:
    assert FAMILIES.keys() == MODEL_HPARAMS.keys()


@families
def test_a_position_sees_only_earlier_targets(family: str) -> None:
    logits = logits_of(family)
    assert logits.shape == (2, 4, VOCAB) and logits.dtype == np.float32
    for t in (0, 2):
        other = TARGETS.copy()
        other[:, t:] = 17
        changed = np.asarray(build(family)(INPUTS, other))
        np.testing.assert_array_equal(changed[:, : t + 1], logits[:, : t + 1])
        assert not np.allclose(changed[:, t + 1], logits[:, t + 1])


@families
@pytest.mark.parametrize("seed", [False, True])
def test_padding_and_other_examples_change_nothing(family: str, seed: bool) -> None:
    model, logits, one = build(family), logits_of(family, seed), SEED[1:] if seed else None
    np.testing.assert_allclose(model(INPUTS[1:, :3], TARGETS[1:, :2], one), logits[1:, :2], atol=1e-5)
    padded = model(np.pad(INPUTS[1:], ((0, 0), (0, 4))), np.pad(TARGETS[1:], ((0, 0), (0, 4))), one)
    np.testing.assert_allclose(padded[:, :2], logits[1:, :2], atol=1e-5)


@families
def test_an_empty_batch_has_no_logits(family: str) -> None:
    assert build(family)(INPUTS[:0], TARGETS[:0]).shape == (0, 4, VOCAB)


@families
def test_the_seed_decides_dropout(family: str) -> None:
    model, logits = build(family), logits_of(family, seed=True)
    np.testing.assert_array_equal(model(INPUTS, TARGETS, SEED), logits)
    assert not np.allclose(model(INPUTS, TARGETS, SEED + 1), logits, atol=1e-3)
    assert not np.allclose(logits_of(family), logits, atol=1e-3)


@families
def test_a_step_works_in_the_loop_of_a_search(family: str) -> None:
    # In a loop, the lengths and widths of the cache are unknown.
    model = build(family)
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
