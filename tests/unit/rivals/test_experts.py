"""Compares mixtures of experts with loops over positions and with the formulas of Shazeer et al. (2017)."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from decoding_models import FAMILIES, INPUTS, TARGETS, small_model
from t2t_repro import registry
from t2t_repro.layers.auxiliary_loss import auxiliary_losses
from t2t_repro.layers.dropout import Seeds, standard_normal
from t2t_repro.rivals import experts
from t2t_repro.rivals.experts import MIN_DEVIATION, Experts

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(3, 5, 4)).astype("float32")
SEED = np.array([5, 6, 7], np.uint32)


def layer(count: int = 6, chosen: int = 2, **changes: Any) -> Experts:
    """Returns a layer whose gating network has random weights."""
    hparams = registry.hparams_class("transformer_moe")(
        hidden_size=4,
        num_heads=1,
        filter_size=7,
        moe_num_experts=count,
        moe_k=chosen,
        **changes,
    )
    mixture = Experts(hparams, "float32")
    random = np.random.default_rng(1)
    for kernel in (mixture.gate_kernel, mixture.noise_kernel):
        kernel.assign(random.normal(size=kernel.shape))
    return mixture


def expert(mixture: Experts, x: np.ndarray, number: int) -> np.ndarray:
    """Returns the output [D] of one expert for one vector x [D]."""
    return np.maximum(0, x @ np.asarray(mixture.kernels1)[number]) @ np.asarray(mixture.kernels2)[number]


def by_loop(mixture: Experts, x: np.ndarray, chosen: int) -> np.ndarray:
    """Returns the layer's output without noise, computed position by position (equations 1, 3 and 5)."""
    outputs = np.zeros_like(x)
    for place in np.ndindex(x.shape[:2]):
        logits = x[place] @ np.asarray(mixture.gate_kernel)
        best = np.argsort(-logits)[:chosen]
        gates = np.exp(logits[best]) / np.exp(logits[best]).sum()
        outputs[place] = sum(gate * expert(mixture, x[place], number) for gate, number in zip(gates, best, strict=True))
    return outputs


@pytest.mark.parametrize(("count", "chosen", "blocks"), [(6, 2, 1), (2, 1, 2), (5, 4, 64), (40, 3, 2)])
def test_it_computes_the_chosen_experts(count: int, chosen: int, blocks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(experts, "BLOCKS_PER_EXPERT", blocks)
    mixture = layer(count, chosen)
    for x in (X, X[:1, :1], X[:0], np.ones((20, 5, 4), np.float32)):  # in the last, the same experts get all positions
        np.testing.assert_allclose(mixture(x, None), by_loop(mixture, x, chosen), atol=1e-6)


def gate_with_noise(mixture: Experts, x: np.ndarray, is_token: np.ndarray) -> tuple[np.ndarray, float]:
    """Returns the gates of all experts [B, T, n] and the balancing loss, computed position by position."""
    noise = np.asarray(standard_normal((*x.shape[:2], mixture.count), Seeds(SEED)))
    gates, load = np.zeros((*x.shape[:2], mixture.count)), np.zeros(mixture.count)
    for place in np.ndindex(x.shape[:2]):
        clean = x[place] @ np.asarray(mixture.gate_kernel)
        deviation = np.log1p(np.exp(x[place] @ np.asarray(mixture.noise_kernel))) + MIN_DEVIATION
        noisy = clean + noise[place] * deviation
        best = np.argsort(-noisy)[: mixture.chosen]
        gates[(*place, best)] = np.exp(noisy[best]) / np.exp(noisy[best]).sum()
        for number in range(mixture.count) if is_token[place] else ():
            others = np.sort(np.delete(noisy, number))[::-1]
            distance = (clean[number] - others[mixture.chosen - 1]) / deviation[number]  # equation 9
            load[number] += 0.5 * (1 + math.erf(distance / math.sqrt(2)))
    importance = gates[is_token].sum(axis=0)
    variations = [(values.std() / values.mean()) ** 2 for values in (importance, load)]
    return gates, mixture.loss_weight * sum(variations)


def test_training_adds_noise_and_both_balancing_losses() -> None:
    mixture = layer(moe_loss_coef=0.3)
    is_token = np.array([[True] * 5, [True] * 2 + [False] * 3, [False] * 5])
    gates, loss = gate_with_noise(mixture, X, is_token)
    seeds = Seeds(SEED)
    seeds.is_token = is_token  # type: ignore[assignment]
    with auxiliary_losses() as losses:
        ours = mixture(X, seeds)
    outputs = np.array([[[expert(mixture, x, n) for n in range(6)] for x in row] for row in X])
    np.testing.assert_allclose(ours, np.einsum("btn,btnd->btd", gates, outputs), atol=1e-5)
    assert float(losses[0]) == pytest.approx(loss, rel=1e-4)
    assert len(losses) == 1


def test_gradients_are_finite_when_the_noise_vanishes() -> None:
    mixture = layer()
    mixture.noise_kernel.assign(np.full(mixture.noise_kernel.shape, -200.0))
    variables = [mixture.gate_kernel.value, mixture.noise_kernel.value]
    with tf.GradientTape() as tape, auxiliary_losses() as losses:
        outputs = mixture(abs(X), Seeds(SEED))
        loss = tf.reduce_sum(outputs) + losses[0]
    for gradient in tape.gradient(loss, variables):
        assert np.isfinite(gradient).all()


@pytest.mark.parametrize("name", ["moe", "transformer_moe"])
def test_each_stack_adds_a_balancing_loss_that_ignores_padding(name: str) -> None:
    model = small_model(FAMILIES[name])
    with auxiliary_losses() as losses:
        model(INPUTS, TARGETS, SEED[:2])
        model(np.pad(INPUTS, ((0, 0), (0, 2))), np.pad(TARGETS, ((0, 0), (0, 3))), SEED[:2])
        model(INPUTS, TARGETS)  # outside training, there are no losses
    assert len(losses) == 4 and min(losses) > 0
    np.testing.assert_allclose(losses[2:], losses[:2], rtol=1e-4)
