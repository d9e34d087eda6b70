"""Tests the functions that layers share: splits with few operations, weights that are zeros, and packed kernels."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.layers import base
from t2t_repro.layers.base import Layer, packed_kernels, parts, zero_weights

X = np.random.default_rng(0).normal(size=(2, 3, 12)).astype("float32")


def operations(function: tf.types.experimental.PolymorphicFunction) -> list[str]:
    """Returns the types of the operations in a function's graph, except its inputs and outputs."""
    types = [operation.type for operation in function.get_concrete_function().graph.get_operations()]
    return [kind for kind in types if kind not in ("Placeholder", "Identity", "NoOp")]


@pytest.mark.parametrize("widths", [(4, 4, 4), (2, 2, 8), (5, 7)])
def test_parts_have_the_given_widths(widths: tuple[int, ...]) -> None:
    for part, width, end in zip(parts(tf.constant(X), widths), widths, np.cumsum(widths), strict=True):
        np.testing.assert_array_equal(part, X[..., end - width : end])


def test_equal_parts_need_two_operations() -> None:
    cut = tf.function(lambda x: parts(x, (4, 4, 4)), input_signature=[tf.TensorSpec(X.shape)], autograph=False)
    assert operations(cut) == ["Const", "Split"]


@pytest.mark.parametrize("error", [None, ValueError])
def test_weights_are_zeros_only_inside_zero_weights(error: type[Exception] | None) -> None:
    layer = Layer("float32", "layer")
    if error:
        with pytest.raises(error), zero_weights():
            raise error
    else:
        with zero_weights():
            assert not np.any(layer.kernel("zeros", 3, 4))
            assert not np.any(layer.add_weight(shape=(2,), initializer="ones", name="no_ones"))
    assert np.all(layer.kernel("random", 3, 4))
    assert np.all(layer.add_weight(shape=(2,), initializer="ones", name="ones"))


@pytest.mark.parametrize(
    ("precision", "length", "size", "is_packed"),
    [
        ("float32", 1, 48, True),
        ("float32", 1, 49, False),
        ("float32", None, 48, False),
        ("bfloat16", None, 48, True),
        ("bfloat16", None, 49, False),
    ],
)
def test_a_bias_is_added_to_products_with_large_kernels(
    monkeypatch: pytest.MonkeyPatch, precision: str, length: int | None, size: int, is_packed: bool
) -> None:
    monkeypatch.setattr(base, "LARGE_KERNEL", size)
    layer = Layer(precision, "layer")
    kernel = layer.kernel("kernel", 12, 4)

    def product(x: tf.Tensor) -> tf.Tensor:
        with packed_kernels(lambda width, dtype: tf.constant([1.0, 2.0, 3.0, 4.0], dtype)):
            biased = layer.product(x, kernel)
        return biased - layer.product(x, kernel)

    signature = [tf.TensorSpec([None, length, 12])]
    bias = tf.function(product, input_signature=signature, autograph=False)(X[:, :1])
    np.testing.assert_allclose(tf.cast(bias, "float32")[0, 0], np.arange(1, 5) * is_packed, atol=0.05)
