"""Tests the Transformer with experts: where the experts are, its losses, decoding step by step, and its size."""

from __future__ import annotations

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from decoding_models import FAMILIES, INPUTS, TARGETS, check_steps
from t2t_repro.errors import UserError
from t2t_repro.hparam import override
from t2t_repro.layers.auxiliary_loss import auxiliary_losses
from t2t_repro.models import size
from t2t_repro.rivals.experts import Experts
from t2t_repro.rivals.transformer_moe import TransformerMoe

HPARAMS = FAMILIES["transformer_moe"]


@pytest.fixture(scope="module")
def model() -> TransformerMoe:
    keras.utils.set_random_seed(1)
    moe = TransformerMoe(HPARAMS, 20)
    for layer in (moe.encoder[1], moe.decoder[1]):
        layer.feed_forward.gate_kernel.assign(np.random.default_rng(2).normal(size=(16, 4)))
    return moe


def test_the_middle_layer_of_each_stack_has_experts(model: TransformerMoe) -> None:
    for stack in (model.encoder, model.decoder):
        assert [isinstance(layer.feed_forward, Experts) for layer in stack] == [False, True, False]


def test_decoding_step_by_step_returns_the_logits_of_all_positions(model: TransformerMoe) -> None:
    check_steps(model)


def test_each_stack_adds_a_balancing_loss_that_ignores_padding(model: TransformerMoe) -> None:
    seed = np.array([1, 2], np.uint32)
    longer = np.pad(INPUTS, ((0, 0), (0, 2))), np.pad(TARGETS, ((0, 0), (0, 3)))
    with auxiliary_losses() as losses:
        model(INPUTS, TARGETS, seed)
        model(*longer, seed)
    assert len(losses) == 4 and float(losses[0]) > 0
    np.testing.assert_allclose(losses[2:], losses[:2], rtol=1e-4)
    with auxiliary_losses() as losses:
        model(INPUTS, TARGETS)
    assert losses == []


@pytest.mark.parametrize(
    ("stacks", "source_vocab"), [({}, 0), ({"num_encoder_layers": 1, "num_decoder_layers": 2}, 11)]
)
def test_parameters_equal_those_of_the_model(stacks: dict[str, int], source_vocab: int) -> None:
    hparams = replace(HPARAMS, shared_embedding_and_softmax_weights=not source_vocab, **stacks)
    model = TransformerMoe(hparams, 20, source_vocab_size=source_vocab)
    count = sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)
    assert size.parameters(hparams, 20, source_vocab) == count


def test_operations_grow_with_the_experts_that_are_used_and_not_with_those_that_exist() -> None:
    plain = replace(HPARAMS, model="transformer", moe_num_experts=0)
    positions, width, inner = 5 + 7, 16, 24
    for k, count in ((1, 4), (2, 4), (3, 8)):
        hparams = replace(HPARAMS, moe_k=k, moe_num_experts=count, batch_size=7)
        added = positions * (2 * (k - 1) * width * inner + 2 * width * count)
        expected = size.step_flops(replace(plain, batch_size=7), 20, 5, 7) + 6 * added
        assert size.step_flops(hparams, 20, 5, 7) == expected


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ("moe_k=4", "moe_k=4 must be at least 1 and less than moe_num_experts=4"),
        ("moe_k=0", "moe_k=0 must be at least 1"),
        ("moe_num_experts=0", "less than moe_num_experts=0"),
        ("moe_loss_coef=-1", "moe_loss_coef=-1.0 must be 0 or more"),
        ("model=transformer", "moe_num_experts=4 has no effect in the model transformer; omit it, or choose an"),
    ],
)
def test_wrong_hparams_are_refused(changes: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        override(HPARAMS, changes)


def test_the_search_graph_has_static_ranks(model: TransformerMoe) -> None:
    step = tf.function(model.decode_step, autograph=False)
    memory, cache = model.encode(INPUTS), model.start(6)
    logits, _ = step(np.zeros((2, 3), np.int64), 0, cache, memory)
    assert logits.shape == (2, 3, 20)
