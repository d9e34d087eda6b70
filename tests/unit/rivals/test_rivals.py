"""Tests that hold for every built-in model: gradients, dropout, steps in a graph, 16 bits, and
hparams.
"""

from dataclasses import replace
from functools import cache
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from decoding_models import FAMILIES, INPUTS, SEED, TARGETS, VOCAB, small_model
from t2t_repro import registry
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams, override
from t2t_repro.models.model import make_model
from t2t_repro.training.loss import smoothed_cross_entropy

families = pytest.mark.parametrize("name", FAMILIES)


@cache
def build(name: str) -> Any:
    """Returns a small model with dropout in training."""
    return small_model(replace(FAMILIES[name], layer_prepostprocess_dropout=0.3))


def test_each_built_in_model_is_tested_and_its_hparams_name_it() -> None:
    built_in = {
        name
        for name, model in registry._models._objects.items()
        if model.__module__.startswith("t2t_repro.")
    }
    assert FAMILIES.keys() == built_in
    for name, hparams in FAMILIES.items():
        assert hparams.model == name


@families
def test_every_weight_has_a_gradient_and_dropout_depends_on_the_seed_and_not_on_padding(
    name: str,
) -> None:
    model = build(name)
    with tf.GradientTape() as tape:
        logits = model(INPUTS, TARGETS, SEED)
        loss = smoothed_cross_entropy(logits, TARGETS, 0.1) + sum(model.losses)
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    assert all(np.any(tf.convert_to_tensor(gradient)) for gradient in gradients)
    twice = (np.pad(ids[[1, 1]], ((0, 0), (0, 4))) for ids in (INPUTS, TARGETS))
    same, other = np.asarray(model(*twice, np.array([SEED[1], 9], np.uint32)))
    np.testing.assert_allclose(same[:2], logits[1, :2], atol=1e-5)
    assert not np.allclose(other[:2], same[:2], atol=1e-3)


@families
def test_bfloat16_is_close_to_float32_also_in_the_loop_of_a_search(name: str) -> None:
    exact = build(name)
    model = small_model(FAMILIES[name], "bfloat16")
    for variable, other in zip(model.trainable_variables, exact.trainable_variables, strict=True):
        variable.assign(other.value)
        other.assign(variable.value)
    expected = np.asarray(exact(INPUTS, TARGETS))
    logits = np.asarray(model(INPUTS, TARGETS))
    assert logits.dtype == np.float32 and 0 < np.abs(logits - expected).max() < 0.2

    # In a loop, the lengths and widths of the cache are unknown.
    start = model.start(2)
    memory = model.encode(INPUTS)
    ids = np.zeros((2, 1), np.int64)
    unknown = [
        tf.TensorSpec([None] * len(tensor.shape), tensor.dtype) for tensor in tf.nest.flatten(start)
    ]

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int64), unknown], autograph=False)
    def step(ids: Any, cache: Any) -> Any:
        logits, cache = model.decode_step(ids, 0, tf.nest.pack_sequence_as(start, cache), memory)
        return [logits, *tf.nest.flatten(cache)]

    first, *cache = step(ids, tf.nest.flatten(start))
    np.testing.assert_allclose(first[:, 0], expected[:, 0], atol=0.2)
    # The states of LSTMs are float32 in every precision; other caches have the dtype of the
    # products.
    is_recurrent = name in ("gnmt", "moe", "deep_att")
    assert {tensor.dtype for tensor in cache} == {tf.float32 if is_recurrent else tf.bfloat16}


@pytest.mark.parametrize(
    ("name", "changes", "words"),
    [
        ("gnmt", "num_heads=4", "num_heads=4 has no effect in the model gnmt"),
        ("bytenet", "kernel_height=1001", "kernel_height=1001"),
        (
            "deep_att",
            "shared_embedding_and_softmax_weights=true",
            "embedding_size=6 differs from hidden_size=8",
        ),
        ("moe", "cell_size=-1", "cell_size=-1"),
        ("moe", "output_factor=0", "output_factor=0.0"),
        ("transformer_moe", "moe_k=4", "less than moe_num_experts=4"),
        ("moe", "moe_groups=2", "must divide moe_num_experts=9"),
        ("moe", "moe_num_experts=6", "must exceed moe_k=2"),
        ("transformer_moe", "moe_loss_coef=-1", "moe_loss_coef=-1.0"),
        (
            "convs2s",
            "output_embedding_size=8",
            "output_embedding_size=8 differs from hidden_size=16",
        ),
        (
            "convs2s",
            "kernel_height=5",
            "kernel_height=5 has no effect with convolutions=8x3*2+12x2",
        ),
        ("convs2s", "num_encoder_layers=5", "describes 3 layers, but the larger stack has 5"),
        *(
            ("convs2s", f"convolutions={text}", "must be WIDTHxKERNEL or WIDTHxKERNEL*LAYERS")
            for text in ("8x3*2+", "8x3*0", "8x3*1001", "1048577x3*3", "8x1001*3")
        ),
    ],
)
def test_hparams_that_contradict_the_model_are_refused(name: str, changes: str, words: str) -> None:
    with pytest.raises(UserError, match=words.replace("*", r"\*").replace("+", r"\+")):
        override(FAMILIES[name], changes)


def test_another_model_gets_the_hparams_that_it_has() -> None:
    gnmt = FAMILIES["gnmt"]
    moe = registry.override_hparams(gnmt, "moe_num_experts=8,hidden_size=4", model="moe")
    assert (moe.model, moe.moe_num_experts, moe.hidden_size) == ("moe", 8, 4)  # type: ignore[attr-defined]
    assert registry.override_hparams(gnmt, "model=moe,moe_num_experts=8,hidden_size=4") == moe
    with pytest.raises(UserError, match="moe_num_experts=8 has no effect in the model gnmt"):
        registry.override_hparams(moe, "", model="gnmt")
    model = make_model(HParams(model="bytenet", num_hidden_layers=1, hidden_size=8), VOCAB)
    assert model.hparams.kernel_height == 3  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["deep_att", "gnmt", "moe"])
def test_uniform_initial_weights_are_all_those_that_are_random(name: str) -> None:
    def weights(seed: int, hparams: HParams) -> dict[str, np.ndarray]:
        keras.utils.set_random_seed(seed)
        return {
            weight.path: np.asarray(weight)
            for weight in make_model(hparams, VOCAB).trainable_variables
        }

    first, second = (weights(seed, FAMILIES[name]) for seed in (1, 2))
    uniform = weights(1, replace(FAMILIES[name], initializer="uniform", initializer_gain=0.4))
    for path, value in weights(
        1, FAMILIES[name]
    ).items():  # the next model has the default distribution again
        np.testing.assert_array_equal(value, first[path])
    drawn = []
    for path, value in uniform.items():
        if np.array_equal(first[path], second[path]):
            np.testing.assert_array_equal(value, first[path])
        else:
            drawn.append(value.ravel())
    values = np.concatenate(drawn)
    assert np.abs(values).max() <= 0.04 and np.std(values) == pytest.approx(0.04 / 3**0.5, rel=0.05)
