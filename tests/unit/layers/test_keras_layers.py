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
from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import CrossAttention, KeysValues, SelfAttention
from t2t_repro.layers.embedding import Embedding
from t2t_repro.layers.feed_forward import FeedForward
from t2t_repro.layers.position import LearnedPositions, Sinusoids
from t2t_repro.layers.relative import RelativePositions
from t2t_repro.layers.residual import LayerNorm, Residual
from t2t_repro.models.transformer import DecoderLayer, EncoderLayer
from t2t_repro.rivals.experts import Experts

PAGE = Path(__file__).parents[3] / "docs" / "write_your_own_model.md"
HPARAMS = HParams(
    hidden_size=8, filter_size=12, num_heads=2, attention_dropout=0.1, relu_dropout=0.1
)
PRE_NORM = HParams(hidden_size=8, norm_before=True)
NEAR = HParams(hidden_size=8, num_heads=2, self_attention_neighborhood=3)
RELATIVE = HParams(
    hidden_size=8, self_attention_type="dot_product_relative", max_relative_position=2
)

RANDOM = np.random.default_rng(0)
X, Y = RANDOM.normal(size=(2, 2, 5, 8)).astype("float32")
WIDE = np.tile(X, 2)
HEADS = RANDOM.normal(size=(2, 2, 5, 4)).astype("float32")
MEMORY = KeysValues(HEADS, HEADS + 1)
BIAS = np.where(INPUTS == 0, np.float32(-1e9), np.float32(0))[:, None, None]

EXACT = (
    "norm",
    "residual",
    "pre-norm",
    "embedding",
    "sinusoids",
    "learned positions",
)  # they compute in float32

LAYERS: dict[str, tuple[Callable[..., Any], tuple]] = {
    "norm": (partial(LayerNorm, HPARAMS), (X,)),
    "residual": (partial(Residual, HPARAMS), (X, Y)),
    "pre-norm": (partial(Residual, PRE_NORM), (X, Y)),
    "feed-forward": (partial(FeedForward, HPARAMS), (X,)),
    "self-attention": (partial(SelfAttention, HPARAMS), (X, BIAS)),
    "restricted": (partial(SelfAttention, NEAR), (X, BIAS)),
    "relative": (partial(SelfAttention, RELATIVE), (X,)),
    "cross-attention": (partial(CrossAttention, HPARAMS), (X, MEMORY, BIAS)),
    "encoder layer": (partial(EncoderLayer, HPARAMS), (X, BIAS)),
    "decoder layer": (partial(DecoderLayer, HPARAMS), (X, MEMORY, BIAS)),
    "encoder layer with experts": (
        partial(EncoderLayer, FAMILIES["transformer_moe"], Experts),
        (WIDE,),
    ),
    "embedding": (partial(Embedding, VOCAB, 8), (INPUTS,)),
    "sinusoids": (partial(Sinusoids, 8), (X,)),
    "learned positions": (partial(LearnedPositions, 8, 4), (X,)),
    "relative positions": (partial(RelativePositions, RELATIVE, 8), (HEADS, HEADS)),
}
MODELS = {
    name: (partial(registry.model(name), hparams, VOCAB), (INPUTS, TARGETS))
    for name, hparams in FAMILIES.items()
}


def made(name: str, dtype: str = "float32") -> tuple[Any, tuple]:
    """Returns a layer of the table with random weights, and the arguments of a call."""
    keras.utils.set_random_seed(1)
    make, arguments = (LAYERS | MODELS)[name]
    layer, random = make(dtype=dtype), np.random.default_rng(1)
    layer.set_weights([value + random.normal(0, 0.2, value.shape) for value in layer.get_weights()])
    return layer, tree.map_structure(tf.convert_to_tensor, arguments)


def symbolic(x: Any) -> Any:
    """Returns an input like `x`, of any batch size and length."""
    lengths = (None, *x.shape[2:]) if len(x.shape) == 3 or x.dtype == "int64" else x.shape[1:]
    return keras.Input(lengths, dtype=keras.backend.standardize_dtype(x.dtype))


def assert_close(results: Any, expected: Any, rtol: float = 1e-6) -> None:
    for result, value in zip(tree.flatten(results), tree.flatten(expected), strict=True):
        np.testing.assert_allclose(
            tf.cast(result, "float32"), tf.cast(value, "float32"), rtol=rtol, atol=rtol
        )


@pytest.mark.parametrize("name", [*LAYERS, *MODELS])
def test_a_functional_model_in_16_bits_has_all_weights_and_can_be_saved(
    name: str, tmp_path: Path
) -> None:
    layer, arguments = made(name, "mixed_float16")
    inputs, outputs = tree.map_structure(symbolic, arguments), tree.flatten(layer(*arguments))
    model = keras.Model(tree.flatten(inputs), layer(*inputs))
    assert len(model.trainable_weights) == len(layer.weights) and {
        w.dtype for w in layer.weights
    } <= {"float32"}
    for output, symbol in zip(outputs, tree.flatten(model.outputs), strict=True):
        assert (
            symbol.dtype
            == output.dtype
            == ("float16" if name == "relative positions" else "float32")
        )
        assert all(
            size in (None, length) for size, length in zip(symbol.shape, output.shape, strict=True)
        )
        assert np.isfinite(output).all()
    outer = keras.layers.Lambda(lambda unused: layer(*arguments), dtype="mixed_bfloat16")
    assert_close(outer(np.zeros((2, 1))), outputs, rtol=0)
    if name in EXACT:
        assert_close(made(name)[0](*arguments), outputs, rtol=0)
    model.save(tmp_path / "model.keras")
    copy = keras.models.load_model(tmp_path / "model.keras")
    assert [(w.path, w.shape) for w in copy.weights] == [(w.path, w.shape) for w in model.weights]
    assert_close(copy(tree.flatten(arguments)), outputs)
    for part in layer._flatten_layers():
        twin = type(part).from_config(json.loads(json.dumps(part.get_config())))
        assert (twin.name, twin.dtype_policy) == (part.name, part.dtype_policy)
        assert [w.shape for w in twin.weights] == [w.shape for w in part.weights]
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
    exec(program.replace("EncoderLayer(hparams)", f"EncoderLayer(hparams, dtype='{dtype}')"), names)
    padded, unpadded = (names["model"](np.array([[5, 6, 1, *zeros]])) for zeros in ([0, 0], []))
    assert_close(padded, unpadded, 1e-5 if dtype == "float32" else 2e-2)
