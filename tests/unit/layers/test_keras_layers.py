"""All layers and models are ordinary Keras layers: symbolic calls, dtype policies, configurations, files."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import tree

from decoding_models import FAMILIES, INPUTS, SEED, TARGETS, VOCAB
from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import CrossAttention, KeysValues, SelfAttention
from t2t_repro.layers.base import Layer
from t2t_repro.layers.dropout import Seeds
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.feed_forward import FeedForward
from t2t_repro.layers.masks import padding_bias
from t2t_repro.layers.position import LearnedPositions, Sinusoids
from t2t_repro.layers.relative import RelativePositions
from t2t_repro.layers.residual import LayerNorm, Residual
from t2t_repro.models.transformer import DecoderLayer, EncoderLayer, Transformer
from t2t_repro.rivals import attentive_lstm, bytenet, convs2s, deep_att, lstm
from t2t_repro.rivals.experts import Experts

PAGE = Path(__file__).parents[3] / "docs" / "write_your_own_model.md"
HPARAMS = HParams(hidden_size=8, filter_size=12, num_heads=2, attention_dropout=0.1, relu_dropout=0.1)
PRE_NORM = HParams(hidden_size=8, norm_before=True)
NEAR = HParams(hidden_size=8, num_heads=2, self_attention_neighborhood=3)
RELATIVE = HParams(hidden_size=8, self_attention_type="dot_product_relative", max_relative_position=2)
POLICIES = ("float32", "mixed_bfloat16", "mixed_float16")

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(2, 2, 5, 8)).astype("float32")
"""Vectors [2, 5, 8]."""
HEADS = RANDOM.normal(size=(2, 2, 5, 4)).astype("float32")
IS_PADDING = np.array([[False] * 5, [False] * 3 + [True] * 2])
IS_TOKEN = (~IS_PADDING[..., None]).astype("float32")
MEMORY = KeysValues(HEADS, HEADS + 1)
BIAS = np.where(IS_PADDING, np.float32(-1e9), np.float32(0))

EXACT = ("norm", "residual", "residual, norm before", "embedding", "sinusoids", "learned positions")
"""Layers that compute in float32 in every precision."""

Call = tuple[Callable[..., Any], tuple, tuple]
LAYERS: dict[str, Call] = {
    "norm": (partial(LayerNorm, HPARAMS), (X,), (2, 5, 8)),
    "residual": (partial(Residual, HPARAMS), (X, Y), (2, 5, 8)),
    "residual, norm before": (partial(Residual, PRE_NORM), (X, Y), (2, 5, 8)),
    "feed-forward": (partial(FeedForward, HPARAMS), (X,), (2, 5, 8)),
    "self-attention": (partial(SelfAttention, HPARAMS), (X, BIAS[:, None, None]), (2, 5, 8)),
    "masked": (partial(SelfAttention, HPARAMS, is_masked=True), (X,), (2, 5, 8)),
    "restricted": (partial(SelfAttention, NEAR), (X, BIAS[:, None, None]), (2, 5, 8)),
    "relative": (partial(SelfAttention, RELATIVE), (X,), (2, 5, 8)),
    "cross-attention": (partial(CrossAttention, HPARAMS), (X, MEMORY, BIAS[:, None, None]), (2, 5, 8)),
    "encoder layer": (partial(EncoderLayer, HPARAMS), (X, BIAS[:, None, None]), (2, 5, 8)),
    "decoder layer": (partial(DecoderLayer, HPARAMS), (X, MEMORY, BIAS[:, None, None]), (2, 5, 8)),
    "encoder layer with experts": (
        partial(EncoderLayer, FAMILIES["transformer_moe"], Experts),
        (np.tile(X, 2),),
        (2, 5, 16),
    ),
    "embedding": (partial(Embedding, VOCAB, 8), (INPUTS,), (2, 5, 8)),
    "sinusoids": (partial(Sinusoids, 8), (X,), (1, 5, 8)),
    "learned positions": (partial(LearnedPositions, 8, 4), (X,), (1, 5, 8)),
    "relative positions": (partial(RelativePositions, RELATIVE, 8), (HEADS, HEADS), (5, 5, 1)),
    "LSTM": (partial(lstm.LSTM, HPARAMS, 8, 6), (X, IS_PADDING), (2, 5, 8)),
    "additive attention": (
        partial(attentive_lstm.AdditiveAttention, 8, 4, 1.0),
        (X, attentive_lstm.Memory(BIAS, X, HEADS[:, 0])),
        ((2, 5, 4), (2, 5, 5)),
    ),
    "experts": (partial(Experts, FAMILIES["transformer_moe"]), (np.tile(X, 2),), (2, 5, 16)),
    "linear": (partial(bytenet.Linear, 8, 3, 1.0), (X,), (2, 5, 3)),
    "bytenet block": (
        partial(bytenet.ResidualBlock, 1, FAMILIES["bytenet"], is_masked=True),
        (np.tile(X, 2)[..., :12], IS_TOKEN),
        (2, 5, 12),
    ),
    "normalized linear": (partial(convs2s.NormalizedLinear, 8, 3, 1.0), (X,), (2, 5, 3)),
    "convs2s encoder layer": (
        partial(convs2s.EncoderLayer, 8, 6, 3, HPARAMS), (X, IS_TOKEN), (2, 5, 6)
    ),
    "convs2s decoder layer": (
        partial(convs2s.DecoderLayer, 8, 6, 3, HPARAMS),
        (X, Y, convs2s.Memory(BIAS[:, None], X, Y)),
        (2, 5, 6),
    ),
    "deep_att column": (
        partial(deep_att.Column, FAMILIES["deep_att"], True),
        (X[..., :6], IS_PADDING),
        ((2, 5, 8), (2, 5, 32)),
    ),
    "deep_att encoder": (
        partial(deep_att.Encoder, FAMILIES["deep_att"]), (X[..., :6], IS_PADDING), (2, 5, 20)
    ),
}  # fmt: skip
LAYERS |= {
    name: (partial(registry.model(name), hparams, VOCAB), (INPUTS, TARGETS), (2, 4, VOCAB))
    for name, hparams in FAMILIES.items()
}
"""For each layer and model: its constructor without dtype and name, arguments of a call, and shapes of the outputs."""
HAS_DTYPE_OF_PRODUCTS = {"additive attention": ("values",), "convs2s decoder layer": ("keys", "values")}
"""Fields of the memory."""


def made(name: str, dtype: str = "float32") -> tuple[Any, tuple]:
    """Returns a layer of the table with random weights, and the arguments of a call."""
    keras.utils.set_random_seed(1)
    make, arguments, _ = LAYERS[name]
    layer, random = make(dtype=dtype), np.random.default_rng(1)
    layer.set_weights([value + random.normal(0, 0.2, value.shape) for value in layer.get_weights()])
    *others, memory = arguments = tree.map_structure(tf.convert_to_tensor, arguments)
    if hasattr(memory, "bias"):  # its tensors have the dtype of the products
        casts = {part: tf.cast(getattr(memory, part), layer.compute_dtype) for part in HAS_DTYPE_OF_PRODUCTS[name]}
        arguments = *others, memory._replace(**casts)
    return layer, arguments


def functional(layer: Any, arguments: tuple) -> keras.Model:
    """Returns a functional model of a layer, for any batch size and length."""

    def symbolic(x: Any) -> Any:
        lengths = (None, *x.shape[2:]) if len(x.shape) == 3 or x.dtype == "int64" else x.shape[1:]
        return keras.Input(lengths, dtype=keras.backend.standardize_dtype(x.dtype))

    inputs = tree.map_structure(symbolic, arguments)
    return keras.Model(tree.flatten(inputs), layer(*inputs))


def assert_close(results: Any, expected: Any, rtol: float = 1e-6) -> None:
    for result, value in zip(tree.flatten(results), tree.flatten(expected), strict=True):
        np.testing.assert_allclose(tf.cast(result, "float32"), tf.cast(value, "float32"), rtol=rtol, atol=rtol)


@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in LAYERS for dtype in POLICIES[2 * (name in FAMILIES) :]]
)
def test_outputs_and_weights_are_float32_in_every_precision(name: str, dtype: str) -> None:
    layer, arguments = made(name, dtype)
    outputs = layer(*arguments)
    assert [tuple(output.shape) for output in tree.flatten(outputs)] in ([LAYERS[name][2]], [*LAYERS[name][2]])
    assert {weight.dtype for weight in layer.weights} <= {"float32"}
    expected = layer.compute_dtype if name == "relative positions" else "float32"
    assert all(output.dtype == expected and np.isfinite(output).all() for output in tree.flatten(outputs))


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_made_from_the_configuration_in_json_has_the_same_weights_and_outputs(name: str) -> None:
    layer, arguments = made(name, "mixed_bfloat16")
    copy = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
    facts = [
        (layer.name, layer.dtype_policy.name, [(w.path, w.shape) for w in layer.weights]) for layer in (layer, copy)
    ]
    assert facts[0] == facts[1]
    copy.set_weights(layer.get_weights())
    assert_close(copy(*arguments), layer(*arguments))


@pytest.mark.parametrize("name", [*LAYERS][: 1 - len(FAMILIES)])
def test_a_functional_model_has_all_weights_and_can_be_saved(name: str, tmp_path: Path) -> None:
    layer, arguments = made(name, "mixed_float16")
    model, outputs = functional(layer, arguments), tree.flatten(layer(*arguments))
    assert len(model.trainable_weights) == len(layer.weights)
    for output, symbolic in zip(outputs, tree.flatten(model.outputs), strict=True):
        assert symbolic.dtype == output.dtype
        assert len(symbolic.shape) == len(output.shape)
        assert all(size in (None, length) for size, length in zip(symbolic.shape, output.shape, strict=True))
    model.save(tmp_path / "model.keras")
    assert_close(keras.models.load_model(tmp_path / "model.keras")(tree.flatten(arguments)), outputs)


@pytest.mark.parametrize("name", [name for name in LAYERS if name not in ("sinusoids", "residual, norm before")])
def test_all_weights_have_gradients_and_can_be_frozen(name: str) -> None:
    layer, arguments = made(name, "mixed_bfloat16")
    seeds = {"seeds": Seeds(SEED)} if "seeds" in layer.call_signature_parameters else {}
    seeds = {"seed": SEED} if "seed" in layer.call_signature_parameters else seeds
    with tf.GradientTape() as tape:
        loss = sum(tf.reduce_sum(tf.cast(y, "float32") ** 2) for y in tree.flatten(layer(*arguments, **seeds)))
    gradients = tape.gradient(loss, [weight.value for weight in layer.trainable_weights])
    unused = [w.path for w, g in zip(layer.trainable_weights, gradients, strict=True) if g is None]
    # Attention's keys have no kernel in this call, because the memory has the keys.
    assert all(path.endswith(("/kv", "/key_kernel")) for path in unused)
    layer.trainable = False
    assert layer.weights and not layer.trainable_weights


@pytest.mark.parametrize("name", [*LAYERS][: -len(FAMILIES)])
def test_weights_in_float32_stay_exact_inside_a_model_in_mixed_precision(name: str) -> None:
    layer, arguments = made(name)
    expected = layer(*arguments)
    if name in EXACT:
        layer, _ = made(name, "mixed_float16")

    class Outer(keras.Model):
        def call(self, unused: Any) -> Any:
            return layer(*arguments)

    assert_close(Outer(dtype="mixed_float16")(np.zeros((2, 1))), expected, rtol=0)


@pytest.mark.parametrize("dtype", POLICIES)
@pytest.mark.parametrize("name", ["self-attention", "restricted", "encoder layer"])
def test_masks_hide_padding_in_every_precision(name: str, dtype: str) -> None:
    layer, _ = made(name, dtype)
    padded = np.array(X)
    padded[:, 3:] = 100
    mask = padding_bias(tf.constant([[5, 6, 1, 0, 0]] * 2))
    assert_close(layer(padded, mask)[:, :3], layer(X[:, :3]), rtol=1e-5 if dtype == "float32" else 2e-2)


def test_a_functional_transformer_trains_with_dropout_and_predicts_without() -> None:
    keras.utils.set_random_seed(1)
    inputs = [keras.Input((None,), dtype="int64") for _ in range(2)]
    model = keras.Model(inputs, Transformer(replace(FAMILIES["transformer"], num_hidden_layers=1), VOCAB)(*inputs))
    data = [INPUTS, TARGETS]
    model.compile("adam", keras.losses.SparseCategoricalCrossentropy(from_logits=True), jit_compile=False)
    assert model.count_params() == sum(w.size for w in map(np.asarray, model.trainable_weights))
    losses = model.fit(data, TARGETS, epochs=3, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    first, second = model(data, training=True), model(data, training=True)
    assert not np.allclose(first, second) and not np.allclose(first[0, 0], first[1, 0])
    assert_close(model(data), model.layers[-1](*data))


def test_the_encoder_on_the_page_does_not_depend_on_padding() -> None:
    program = re.search(r"```python\n(import keras\n.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    assert program
    names: dict[str, Any] = {}
    exec(program[1], names)
    assert_close(names["model"](np.array([[5, 6, 1, 0, 0]])), names["model"](np.array([[5, 6, 1]])), rtol=1e-5)


def test_a_users_subclass_is_saved_without_a_configuration_of_its_own(tmp_path: Path) -> None:
    class Scaled(Layer):
        def __init__(self, hparams: HParams, factor: float = 2.0, **options: Any) -> None:
            super().__init__(**options)
            self.inner, self.factor = FeedForward(hparams, name="inner"), factor

        def call(self, x: Any) -> Any:
            return self.inner(x) * self.factor

    x = keras.Input((None, 8))
    model = keras.Model(x, Scaled(HPARAMS, 3.0)(x))
    model.save(tmp_path / "model.keras")
    assert_close(keras.models.load_model(tmp_path / "model.keras")(X), model(X))


def test_a_graph_of_a_model_has_no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    warnings: list[Any] = []
    monkeypatch.setattr(tf.get_logger(), "handle", warnings.append)
    model = Transformer(FAMILIES["transformer"], VOCAB)

    def logits(inputs: Any, targets: Any) -> Any:
        return model(inputs, targets)

    assert_close(tf.function(logits)(INPUTS, TARGETS), model(INPUTS, TARGETS), rtol=1e-4)
    assert not warnings
