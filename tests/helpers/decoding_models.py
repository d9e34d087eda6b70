"""Small models of all families, and checks of their decoding, which raise AssertionError if a model
fails.
"""

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.models.model import make_model

VOCAB = 20
SPACE = 3
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], np.int64)
TARGETS = np.array([[4, 5, 6, 1], [7, 1, 0, 0]], np.int64)
SEED = np.array([1, 2], np.uint32)
FAMILIES = {
    name: registry.hparams_class(name)(**sizes)
    for name, sizes in {
        "transformer": {
            "num_hidden_layers": 2,
            "hidden_size": 16,
            "filter_size": 24,
            "num_heads": 2,
        },
        "opennmt_transformer": {
            "model": "opennmt_transformer",
            "num_hidden_layers": 2,
            "hidden_size": 16,
            "filter_size": 24,
            "num_heads": 2,
        },
        "transformer_moe": {
            "num_hidden_layers": 2,
            "hidden_size": 16,
            "filter_size": 24,
            "num_heads": 2,
            "moe_num_experts": 4,
        },
        "gnmt": {"num_hidden_layers": 3, "hidden_size": 8},
        "convs2s": {
            "num_hidden_layers": 3,
            "num_decoder_layers": 2,
            "hidden_size": 16,
            "convolutions": "8x3*2+12x2",
            "max_length": 20,
        },
        "bytenet": {
            "num_hidden_layers": 3,
            "num_decoder_layers": 2,
            "hidden_size": 6,
            "norm_epsilon": 1e-3,
        },
        "moe": {
            "num_hidden_layers": 2,
            "hidden_size": 8,
            "cell_size": 12,
            "filter_size": 10,
            "moe_num_experts": 9,
            "moe_groups": 3,
            "attention_mechanism": "tanh_product",
        },
        "deep_att": {
            "num_encoder_layers": 3,
            "num_decoder_layers": 2,
            "hidden_size": 8,
            "embedding_size": 6,
            "shared_embedding_and_softmax_weights": False,
        },
    }.items()
}
"""hparams of a small model of each built-in family."""


def check_against_numpy(
    model: Any,
    numpy_model: Callable[[Any, np.ndarray, np.ndarray], tuple[np.ndarray, list[np.ndarray]]],
    atol: float = 1e-5,
) -> None:
    """Logits and attention weights are those of `numpy_model`, at once and by steps.

    Args:
        numpy_model: returns the logits [T, V] and each layer's attention weights, [T, S] or [H, T,
            S], of a model, for ids [S] and [T] without padding.
        atol: tolerance of the logits. That of the attention weights is a tenth of it.
    """
    memory = model.encode(INPUTS)
    logits, attention = model.decode(TARGETS, memory, return_attention=True)
    logits = np.asarray(logits)
    for row, (source, target) in enumerate(((5, 4), (3, 2))):
        expected, expected_weights = numpy_model(model, INPUTS[row, :source], TARGETS[row, :target])
        np.testing.assert_allclose(logits[row, :target], expected, atol=atol)
        for layer, values in zip(attention, expected_weights, strict=True):
            weights = np.asarray(layer["cross"])
            values = np.reshape(values, (-1, target, source))
            assert weights.shape == (2, len(values), 4, 5)
            np.testing.assert_allclose(weights[row, :, :target, :source], values, atol=atol / 10)
            np.testing.assert_array_equal(weights[row, :, :, source:], 0)
            assert np.ptp(values, axis=1).max() > 10 * atol, "the weights must depend on the query"
    check_steps(model)


def check_steps(model: Any, hypotheses: int = 2, length: int = 3, atol: float = 1e-5) -> None:
    """Decoding by steps, with hypotheses that are reordered, gives the logits and attention weights
    of `decode`.
    """
    random = np.random.default_rng(hypotheses)
    tokens = random.integers(1, VOCAB, (length, 2, hypotheses))
    parents = random.integers(0, hypotheses, (length, 2, hypotheses))
    memory = model.encode(tf.constant(INPUTS))
    cache = model.start(2 * hypotheses)
    repeated_memory = model.encode(np.repeat(INPUTS, hypotheses, axis=0))
    ids = np.zeros((2, hypotheses), np.int64)
    histories = np.zeros((2, hypotheses, 0), np.int64)
    for t in range(length):
        options = {"return_attention": True} if model.has_attention else {}
        arguments = tf.constant(ids), tf.constant(t), cache, memory
        logits, cache, *attention = model.decode_step(*arguments, **options)
        targets = np.pad(histories, ((0, 0), (0, 0), (0, 1)), constant_values=1).reshape(-1, t + 1)
        expected = model.decode(targets, repeated_memory, **options)
        expected_attention = expected[1] if model.has_attention else []
        expected = np.asarray(expected[0] if model.has_attention else expected)[:, t]
        np.testing.assert_allclose(logits, expected.reshape(2, hypotheses, VOCAB), atol=atol)
        for layer, expected_layer in zip(*attention or [[]], expected_attention, strict=True):
            last = np.asarray(expected_layer["cross"])[:, :, t]
            last = last.reshape(2, hypotheses, -1, INPUTS.shape[1])
            np.testing.assert_allclose(layer["cross"], last.transpose(0, 2, 1, 3), atol=atol)
        order = (parents[t] + hypotheses * np.arange(2)[:, None]).reshape(-1)
        cache = tf.nest.map_structure(lambda tensor, order=order: tf.gather(tensor, order), cache)
        ids = tokens[t]
        histories = np.take_along_axis(histories, parents[t][:, :, None], axis=1)
        histories = np.concatenate([histories, ids[:, :, None]], axis=2)


def small_model(hparams: HParams, precision: str = "float32", spread: float = 0.2) -> Any:
    """Returns a model with random weights. Calls with equal arguments return models with equal
    weights.

    Args:
        hparams: the model and its sizes.
        precision: dtype of weights and products.
        spread: standard deviation of random numbers that are added to all initial weights, so that
            no part of the model does almost nothing.
    """
    keras.utils.set_random_seed(1)
    model = make_model(hparams, VOCAB, SPACE, precision)
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(variable + random.normal(0, spread, variable.shape))
    return model
