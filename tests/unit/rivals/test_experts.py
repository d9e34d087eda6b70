"""Compares mixtures of experts with loops over positions and with the formulas of Shazeer et al.
(2017).
"""

import math
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from decoding_models import FAMILIES, INPUTS, TARGETS, small_model
from numpy_experts import experts_outputs, gates_in_groups, gates_of, mixture
from t2t_repro import registry
from t2t_repro.layers.dropout import Seeds, standard_normal
from t2t_repro.rivals import experts
from t2t_repro.rivals.experts import MIN_DEVIATION, Experts

RANDOM = np.random.default_rng(0)
X = RANDOM.normal(size=(3, 5, 4)).astype("float32")
IS_TOKEN = np.array([[True] * 5, [True] * 2 + [False] * 3, [False] * 5])
SEED = np.array([5, 6, 7], np.uint32)


def layer(count: int = 6, chosen: int = 2, **changes: Any) -> Experts:
    """Returns a layer whose gating network has random weights."""
    sizes = {
        "hidden_size": 4,
        "num_heads": 1,
        "filter_size": 7,
        "moe_num_experts": count,
        "moe_k": chosen,
    }
    result = Experts(registry.hparams_class("transformer_moe")(**sizes, **changes))
    random = np.random.default_rng(1)
    kernels = [result.gate_kernel, result.noise_kernel]
    kernels += [result.group_gate_kernel, result.group_noise_kernel] if result.groups else []
    for kernel in kernels:
        kernel.assign(random.normal(size=kernel.shape))
    return result


@pytest.mark.parametrize(
    ("count", "chosen", "blocks"), [(6, 2, 1), (2, 1, 2), (5, 4, 64), (40, 3, 2)]
)
def test_it_computes_the_chosen_experts(
    count: int, chosen: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(experts, "BLOCKS_PER_EXPERT", blocks)
    ours = layer(count, chosen)
    weights = [np.asarray(weight) for weight in (ours.gate_kernel, ours.kernels1, ours.kernels2)]
    for x in (
        X,
        X[:1, :1],
        X[:0],
        np.ones((20, 5, 4), np.float32),
    ):  # in the last, the same experts get all positions
        expected = mixture(*weights, chosen, x.reshape(-1, 4)).reshape(x.shape)
        np.testing.assert_allclose(ours(x), expected, atol=1e-6)


def load_of(clean: np.ndarray, noise: np.ndarray, deviation: np.ndarray, k: int) -> np.ndarray:
    """Returns the probability that each of c is among the k highest if only its noise is drawn
    again (equation 9).
    """
    noisy = clean + noise * deviation
    highest = [np.sort(np.delete(noisy, number))[-k] for number in range(len(clean))]
    return 0.5 * (1 + np.vectorize(math.erf)((clean - highest) / deviation / math.sqrt(2)))


def gate_with_noise(ours: Experts) -> tuple[np.ndarray, float]:
    """Returns the gates of all experts [B, T, n] for X, and the balancing loss, computed position
    by position.
    """
    noise = np.asarray(standard_normal((*X.shape[:2], ours.count), Seeds(SEED)))
    gates = np.zeros((*X.shape[:2], ours.count))
    load = np.zeros(ours.count)
    for place in np.ndindex(X.shape[:2]):
        clean = X[place] @ np.asarray(ours.gate_kernel)
        deviation = np.log1p(np.exp(X[place] @ np.asarray(ours.noise_kernel))) + MIN_DEVIATION
        noisy = clean + noise[place] * deviation
        gates[place] = gates_of(noisy, ours.chosen)
        load += load_of(clean, noise[place], deviation, ours.chosen) if IS_TOKEN[place] else 0
    importance = gates[IS_TOKEN].sum(axis=0)
    variations = [(values.std() / values.mean()) ** 2 for values in (importance, load)]
    return gates, ours.loss_weight * sum(variations)


def test_training_adds_noise_and_both_balancing_losses() -> None:
    trained = layer(moe_loss_coef=0.3)
    gates, loss = gate_with_noise(trained)
    ours = trained(X, IS_TOKEN, seeds=Seeds(SEED))
    kernels = np.asarray(trained.kernels1), np.asarray(trained.kernels2)
    outputs = np.array([[experts_outputs(*kernels, x) for x in row] for row in X])
    np.testing.assert_allclose(ours, np.einsum("btn,btnd->btd", gates, outputs), atol=1e-5)
    assert float(sum(trained.losses)) == pytest.approx(loss, rel=1e-4)


def test_groups_have_the_gates_and_losses_of_appendix_b() -> None:
    ours = layer(12, 2, moe_groups=4, moe_loss_coef=0.3)
    kernels = ours.group_gate_kernel, ours.gate_kernel, ours.group_noise_kernel, ours.noise_kernel
    group_gate, gate, group_noise, noise = map(np.asarray, kernels)
    outputs = np.array(
        [
            [experts_outputs(np.asarray(ours.kernels1), np.asarray(ours.kernels2), x) for x in row]
            for row in X
        ]
    )
    gates = np.array([[gates_in_groups(x @ group_gate, x @ gate, 2) for x in row] for row in X])
    np.testing.assert_allclose(ours(X), np.einsum("btn,btnd->btd", gates, outputs), atol=1e-5)

    outputs_in_training = ours(X, IS_TOKEN, seeds=Seeds(SEED))
    draws = Seeds(SEED)
    group_draws = np.asarray(standard_normal((3, 5, 4), draws))
    inner_draws = np.asarray(standard_normal((3, 5, 2, 3), draws))
    importance = np.zeros(12)
    group_load = np.zeros(4)
    inner_load = np.zeros((4, 3))
    positions = np.zeros(4)
    for place in np.ndindex(3, 5):
        x = X[place]
        group_deviation, deviation = (
            np.log1p(np.exp(x @ kernel)) + MIN_DEVIATION for kernel in (group_noise, noise)
        )
        group_logits = x @ group_gate + group_draws[place] * group_deviation
        logits = np.zeros(12)
        for rank, group in enumerate(np.argsort(-group_logits)[:2]):
            part = slice(3 * group, 3 * group + 3)
            logits[part] = (x @ gate)[part] + inner_draws[place][rank] * deviation[part]
            if IS_TOKEN[place]:
                inner_load[group] += load_of(
                    (x @ gate)[part], inner_draws[place][rank], deviation[part], 2
                )
                positions[group] += 1
        gates = gates_in_groups(group_logits, logits, 2)
        np.testing.assert_allclose(outputs_in_training[place], gates @ outputs[place], atol=1e-5)
        if IS_TOKEN[place]:
            importance += gates
            group_load += load_of(x @ group_gate, group_draws[place], group_deviation, 2)
    load = (inner_load * (group_load / positions)[:, None]).ravel()
    variations = [(values.std() / values.mean()) ** 2 for values in (importance, load)]
    assert float(ours.losses[0]) == pytest.approx(0.3 * sum(variations), rel=1e-4)


@pytest.mark.parametrize("groups", [0, 4])
def test_gradients_are_finite_when_the_noise_vanishes(groups: int) -> None:
    ours = layer(12, moe_groups=groups)
    for kernel in [ours.noise_kernel, ours.group_noise_kernel] if groups else [ours.noise_kernel]:
        kernel.assign(np.full(kernel.shape, -200.0))
    variables = [variable.value for variable in ours.trainable_variables]
    for is_token in (
        None,
        np.arange(15).reshape(3, 5) == 0,
    ):  # a single token does not choose all groups
        with tf.GradientTape() as tape:
            outputs = ours(abs(X), is_token, seeds=Seeds(SEED))
            loss = tf.reduce_sum(outputs) + ours.losses[0]
        for gradient in tape.gradient(loss, variables):
            assert np.isfinite(tf.convert_to_tensor(gradient)).all()  # those of experts are sparse


@pytest.mark.parametrize("name", ["moe", "transformer_moe"])
def test_each_stack_adds_a_balancing_loss_that_ignores_padding(name: str) -> None:
    model = small_model(FAMILIES[name])
    model(INPUTS, TARGETS, SEED[:2])
    losses = model.losses
    model(np.pad(INPUTS, ((0, 0), (0, 2))), np.pad(TARGETS, ((0, 0), (0, 3))), SEED[:2])
    assert len(losses) == 2 and min(losses) > 0
    np.testing.assert_allclose(model.losses, losses, rtol=1e-4)
    model(INPUTS, TARGETS)  # outside training, there are no losses
    assert not model.losses
