"""All layers and models are ordinary Keras layers: symbolic calls, dtype policies, configurations,
files.
"""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import tree

from decoding_models import FAMILIES, INPUTS, TARGETS, VOCAB
from t2t_repro.keras import Transformer
from t2t_repro.models.transformer import (
    CrossAttention,
    DecoderLayer,
    Embedding,
    EncoderLayer,
    FeedForward,
    KeysValues,
    LayerNorm,
    Parts,
    Residual,
    SelfAttention,
    Sinusoids,
    Sizes,
)
from t2t_repro.models.variants import (
    LearnedPositions,
    MarianSinusoids,
    PreNormResidual,
    RelativePositions,
    RelativeSelfAttention,
    RestrictedSelfAttention,
)

PAGE = Path(__file__).parents[3] / "docs" / "write_your_own_model.md"
SIZES = Sizes(8, 12, heads=2, key_width=4, value_width=4)

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(2, 2, 5, 8)).astype("float32")
SPLIT = RANDOM.normal(size=(2, 2, 5, 4)).astype("float32")
MEMORY = KeysValues(SPLIT, SPLIT + 1)
BIAS = np.where(INPUTS == 0, np.float32(-1e9), np.float32(0))[:, None, None]

EXACT = (
    "norm",
    "residual",
    "pre-norm",
    "embedding",
    "sinusoids",
    "marian",
    "learned positions",
)  # they compute in float32

LAYERS: dict[str, tuple[Callable[..., Any], tuple]] = {
    "norm": (partial(LayerNorm, 8), (X,)),
    "residual": (partial(Residual, SIZES), (X, Y)),
    "pre-norm": (partial(PreNormResidual, SIZES), (X, Y)),
    "feed-forward": (partial(FeedForward, SIZES), (X,)),
    "self-attention": (partial(SelfAttention, SIZES), (X, BIAS)),
    "restricted": (partial(RestrictedSelfAttention, SIZES, neighborhood=3), (X, BIAS)),
    "relative": (partial(RelativeSelfAttention, SIZES, max_distance=2), (X,)),
    "cross-attention": (partial(CrossAttention, SIZES), (X, MEMORY, BIAS)),
    "encoder layer": (partial(EncoderLayer, SIZES, Parts()), (X, BIAS)),
    "decoder layer": (partial(DecoderLayer, SIZES, Parts()), (X, MEMORY, BIAS)),
    "embedding": (partial(Embedding, VOCAB, 8), (INPUTS,)),
    "sinusoids": (partial(Sinusoids, 8), (X,)),
    "marian": (partial(MarianSinusoids, 8), (X,)),
    "learned positions": (partial(LearnedPositions, 8, 4), (X,)),
    "relative positions": (partial(RelativePositions, 2, 4), (SPLIT, SPLIT)),
    "transformer": (partial(Transformer, FAMILIES["transformer"], VOCAB), (INPUTS, TARGETS)),
}
SAVED = LAYERS.keys() - {"encoder layer", "decoder layer"}
"""Layers that can be saved. The others are made from classes of parts."""


def made(name: str, dtype: str = "float32") -> tuple[Any, tuple]:
    """Returns a layer of the table with random weights, and the arguments of a call."""
    keras.utils.set_random_seed(1)
    make, arguments = LAYERS[name]
    layer = make(dtype=dtype)
    random = np.random.default_rng(1)
    layer.set_weights([value + random.normal(0, 0.2, value.shape) for value in layer.get_weights()])
    return layer, tree.map_structure(tf.convert_to_tensor, arguments)


def symbolic(x: Any) -> Any:
    """Returns an input like `x`, of any batch size and length."""
    lengths = (None, *x.shape[2:]) if len(x.shape) == 3 or x.dtype == "int64" else x.shape[1:]
    return keras.Input(lengths, dtype=keras.backend.standardize_dtype(x.dtype))


def first(results: Any) -> Any:
    """Returns the output of a layer, without attention weights and cache."""
    return tree.flatten(results)[0]


def assert_close(results: Any, expected: Any, rtol: float = 1e-6) -> None:
    for result, value in zip(tree.flatten(results), tree.flatten(expected), strict=True):
        np.testing.assert_allclose(
            tf.cast(result, "float32"), tf.cast(value, "float32"), rtol=rtol, atol=rtol
        )


@pytest.mark.parametrize("name", LAYERS)
def test_a_functional_model_in_16_bits_has_all_weights_and_can_be_saved(
    name: str, tmp_path: Path
) -> None:
    layer, arguments = made(name, "mixed_float16")
    inputs = tree.map_structure(symbolic, arguments)
    outputs = [first(layer(*arguments))]
    model = keras.Model(tree.flatten(inputs), first(layer(*inputs)))
    assert len(model.trainable_weights) == len(layer.weights)
    assert {weight.dtype for weight in layer.weights} <= {"float32"}
    for output, symbol in zip(outputs, tree.flatten(model.outputs), strict=True):
        is_16_bit = name == "relative positions"
        assert symbol.dtype == output.dtype == ("float16" if is_16_bit else "float32")
        sizes = zip(symbol.shape, output.shape, strict=True)
        assert all(size in (None, length) for size, length in sizes)
        assert np.isfinite(output).all()
    outer = keras.layers.Lambda(lambda unused: first(layer(*arguments)), dtype="mixed_bfloat16")
    assert_close(outer(np.zeros((2, 1))), outputs, rtol=0)
    if name in EXACT:
        assert_close(first(made(name)[0](*arguments)), outputs, rtol=0)
    if name in SAVED:
        model.save(tmp_path / "model.keras")
        copy = keras.models.load_model(tmp_path / "model.keras")
        weights = [(weight.path, weight.shape) for weight in model.weights]
        assert [(weight.path, weight.shape) for weight in copy.weights] == weights
        assert_close(copy(tree.flatten(arguments)), outputs)
        twin = type(layer).from_config(json.loads(json.dumps(layer.get_config())))
        assert (twin.name, twin.dtype_policy) == (layer.name, layer.dtype_policy)
        assert [w.shape for w in twin.weights] == [w.shape for w in layer.weights]
    layer.trainable = False
    assert not model.trainable_weights


def test_a_functional_transformer_trains_with_dropout_and_predicts_without(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    warnings: list[Any] = []
    monkeypatch.setattr(tf.get_logger(), "handle", warnings.append)
    layer, data = made("transformer")
    inputs = list(map(symbolic, data))
    model = keras.Model(inputs, layer(*inputs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(keras.optimizers.Adam(0.01), loss, run_eagerly=True)
    losses = model.fit([*data], TARGETS, epochs=9, verbose=0).history["loss"]
    assert losses[-1] < losses[0]
    assert_close(model([*data]), layer(*data))

    @tf.function
    def logits() -> Any:
        return layer(*data, training=True)

    assert not np.allclose(logits(), logits()) and not warnings
    assert not np.allclose(*(model([*data], training=True) for _ in range(2)))


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_the_encoder_on_the_page_does_not_depend_on_padding(dtype: str) -> None:
    program = PAGE.read_text("utf-8").split("```python\n")[2].split("```")[0]
    names: dict[str, Any] = {}
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(dtype)
    try:
        exec(program, names)
    finally:
        keras.config.set_dtype_policy(before)
    padded, unpadded = (names["model"](np.array([[5, 6, 1, *zeros]])) for zeros in ([0, 0], []))
    assert_close(padded, unpadded, 1e-5 if dtype == "float32" else 2e-2)
