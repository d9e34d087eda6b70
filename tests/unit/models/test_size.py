"""Compares the formulas for parameters, operations and memory with real models, their graphs, and sums by hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, replace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from processes import Process
from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.models import size
from t2t_repro.models.transformer import Transformer

registry.import_built_in()
TINY = HParams(num_hidden_layers=2, hidden_size=16, filter_size=24, num_heads=2)
VARIANTS: dict[str, dict[str, Any]] = {
    "base": {},
    "three encoder layers and one decoder layer": {"num_encoder_layers": 3, "num_decoder_layers": 1},
    "pre-norm": {"norm_before": True},
    "learned positions": {"pos": "emb", "max_length": 9},
    "own d_k and d_v": {"attention_key_channels": 6, "attention_value_channels": 22},
    "three matrices": {"shared_embedding_and_softmax_weights": False},
    "two matrices": {"shared_embedding_and_softmax_weights": False, "shared_embedding": True},
    "relative": {"pos": "none", "self_attention_type": "dot_product_relative", "max_relative_position": 3},
    "target space": {"use_target_space_embedding": True},
    "a neighborhood within a block": {"self_attention_neighborhood": 5},
    "a neighborhood beyond a block": {"self_attention_neighborhood": 70},
}

TABLE_3: list[tuple[dict[str, Any], int]] = [
    ({}, 65),
    ({"num_heads": 1}, 65),
    ({"num_heads": 32}, 65),
    ({"attention_key_channels": 8 * 16}, 58),
    ({"attention_key_channels": 8 * 32}, 60),
    ({"num_hidden_layers": 2}, 36),
    ({"num_hidden_layers": 4}, 50),
    ({"num_hidden_layers": 8}, 80),
    ({"hidden_size": 256}, 28),
    ({"hidden_size": 1024}, 168),
    ({"filter_size": 1024}, 53),
    ({"filter_size": 4096}, 90),
]
"""Changes to the base model, and the number of parameters, in millions, that the paper's Table 3 prints."""


@contextmanager
def without_memory() -> Iterator[None]:
    """In the `with` block, models are built without memory for their weights."""
    with keras.StatelessScope(initialize_variables=False):
        yield
    # Otherwise, Keras would allocate these weights as soon as another test calls a Keras model for the first time.
    keras.utils.clear_session(free_memory=False)


def count_parameters(hparams: HParams, vocab_size: int) -> int:
    """Returns the number of a model's weights, without allocating them."""
    with without_memory():
        model = registry.model(hparams.model)(hparams, vocab_size)
    return sum(int(np.prod(variable.shape)) for variable in model.trainable_variables)


def flops_of_graph(hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of operations in all matrix products of a training step's graph, forward and backward."""
    sentences = hparams.batch_size // target_length
    model = registry.model(hparams.model)(hparams, vocab_size)

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            logits = model(tf.ones([sentences, source_length], tf.int32), tf.ones([sentences, target_length], tf.int32))
            loss = tf.reduce_sum(logits * logits)
        return tape.gradient(loss, [variable.value for variable in model.trainable_variables])

    total = 0
    for operation in step.get_concrete_function().graph.get_operations():
        assert "Einsum" not in operation.type
        if "MatMul" in operation.type:
            transposed = "transpose_a" if operation.type == "MatMul" else "adj_x"
            summed = operation.inputs[0].shape[-2 if operation.get_attr(transposed) else -1]
            total += 2 * operation.outputs[0].shape.num_elements() * summed
        if "Conv2D" in operation.type:
            is_forward, of_kernel = operation.type == "Conv2D", "Filter" in operation.type
            kernel = (operation.outputs[0] if of_kernel else operation.inputs[1]).shape
            outputs = (operation.outputs[0] if is_forward else operation.inputs[2]).shape
            total += 2 * outputs.num_elements() * kernel[:-1].num_elements()
    return total


CONVS2S = registry.hparams_class("convs2s")(
    num_hidden_layers=3, hidden_size=16, convolutions="8x3*2+12x2", max_length=9
)
VARIANTS_OF_CONVS2S: dict[str, dict[str, Any]] = {
    "ConvS2S": {},
    "ConvS2S with a smaller encoder": {"num_encoder_layers": 2},
    "ConvS2S with a smaller decoder": {"num_decoder_layers": 1},
    "ConvS2S with three matrices": {"shared_embedding_and_softmax_weights": False, "output_embedding_size": 10},
    "ConvS2S with two matrices": {"shared_embedding_and_softmax_weights": False, "shared_embedding": True},
}
BYTENET = registry.hparams_class("bytenet")(num_hidden_layers=7, num_decoder_layers=2, hidden_size=6)
VARIANTS_OF_BYTENET: dict[str, dict[str, Any]] = {
    "ByteNet": {},
    "ByteNet with kernel width 2": {"kernel_height": 2},
    "ByteNet with three matrices": {"shared_embedding_and_softmax_weights": False},
    "ByteNet with two matrices": {"shared_embedding_and_softmax_weights": False, "shared_embedding": True},
}

VOCAB_SIZES = {"transformer_base": 41_100, "transformer_big": 36_000}
SETS = {name: (registry.hparams(name), VOCAB_SIZES.get(name, 50)) for name in sorted(registry._hparams._objects)}
SETS |= {name: (replace(TINY, **changes), 20) for name, changes in VARIANTS.items()}
SETS |= {name: (replace(CONVS2S, **changes), 20) for name, changes in VARIANTS_OF_CONVS2S.items()}
SETS |= {name: (replace(BYTENET, **changes), 20) for name, changes in VARIANTS_OF_BYTENET.items()}


@pytest.mark.parametrize(("hparams", "vocab_size"), SETS.values(), ids=SETS.keys())
def test_parameters_equal_those_of_the_model(hparams: HParams, vocab_size: int) -> None:
    assert size.parameters(hparams, vocab_size) == count_parameters(hparams, vocab_size)


def test_parameters_of_the_paper() -> None:
    base, big = registry.hparams("transformer_base"), registry.hparams("transformer_big")
    assert size.parameters(base, 37_000) == 63_045_632
    assert round(size.parameters(big, 36_000) / 1e6) == 213
    for changes, millions in TABLE_3:
        assert round(size.parameters(replace(base, **changes), 41_100) / 1e6) == millions, changes


@pytest.mark.parametrize(
    ("variant", "lengths"),
    [
        ("base", (5, 7)),
        ("three encoder layers and one decoder layer", (5, 7)),
        ("own d_k and d_v", (7, 5)),
        ("three matrices", (5, 7)),
        ("a neighborhood within a block", (5, 7)),
        ("a neighborhood within a block", (40, 70)),
        ("a neighborhood beyond a block", (40, 71)),
    ],
)
def test_operations_equal_those_of_the_graph(variant: str, lengths: tuple[int, int]) -> None:
    hparams = replace(TINY, batch_size=2 * lengths[1], **VARIANTS[variant])
    assert size.step_flops(hparams, 20, *lengths) == flops_of_graph(hparams, 20, *lengths)


@pytest.mark.parametrize("variant", VARIANTS_OF_CONVS2S)
def test_operations_of_convs2s_equal_those_of_the_graph(variant: str) -> None:
    hparams = replace(CONVS2S, batch_size=2 * 7, **VARIANTS_OF_CONVS2S[variant])
    assert size.step_flops(hparams, 20, 5, 7) == flops_of_graph(hparams, 20, 5, 7)


@pytest.mark.parametrize("lengths", [(5, 7), (30, 18)])
def test_operations_of_bytenet_equal_those_of_the_graph(lengths: tuple[int, int]) -> None:
    hparams = replace(BYTENET, batch_size=2 * lengths[1])
    assert size.step_flops(hparams, 20, *lengths) == flops_of_graph(hparams, 20, *lengths)


def test_relative_self_attention_has_two_more_products_for_each_connection() -> None:
    relative = replace(TINY, **VARIANTS["relative"])
    source, target, channels = 5, 7, TINY.key_channels + TINY.value_channels
    products = TINY.num_hidden_layers * (source**2 + target**2) * channels
    difference = size.step_flops(relative, 20, source, target) - size.step_flops(TINY, 20, source, target)
    assert difference == round(2 * 3 * products * TINY.batch_size / target)
    vectors = products // TINY.num_heads  # one for each pair of positions, for all heads and examples
    for examples in (1, 3):
        activations, plain = (size.activations(hparams, 20, (examples, source, target)) for hparams in (relative, TINY))
        assert activations - plain == 4 * vectors


def test_separate_vocabularies_have_an_embedding_each() -> None:
    hparams = replace(TINY, shared_embedding_and_softmax_weights=False)
    with without_memory():
        model = Transformer(hparams, 20, source_vocab_size=30)
    assert size.parameters(hparams, 20, 30) == sum(int(np.prod(weight.shape)) for weight in model.trainable_variables)


def test_operations_equal_a_sum_by_hand() -> None:
    hparams = HParams(
        num_hidden_layers=1, hidden_size=4, filter_size=10, num_heads=1, attention_key_channels=2,
        attention_value_channels=6, batch_size=10,
    )  # fmt: skip
    encoder = [
        (3, 4, 2), (3, 4, 2), (3, 4, 6),  # (m, k, n) of the products [m, k] x [k, n] that project q, k, v
        (3, 2, 3), (3, 3, 6), (3, 6, 4),  # q k^T, weights times v, output projection
        (3, 4, 10), (3, 10, 4),  # feed-forward network
    ]  # fmt: skip
    decoder = [
        (5, 4, 2), (5, 4, 2), (5, 4, 6), (5, 2, 5), (5, 5, 6), (5, 6, 4),
        (5, 4, 2), (3, 4, 2), (3, 4, 6), (5, 2, 3), (5, 3, 6), (5, 6, 4),
        (5, 4, 10), (5, 10, 4),
        (5, 4, 11),  # logits of the 11 entries of the vocabulary
    ]  # fmt: skip
    forward = sum(2 * m * k * n for m, k, n in encoder + decoder)
    assert size.step_flops(hparams, 11, 3, 5) == 2 * 3 * forward
    assert size.step_flops(replace(hparams, batch_size=1000), 11, 3, 5) == 200 * 3 * forward


NO_HEADS = {"num_heads": 8, "filter_size": 2048}  # the defaults, for models that do not use them


MEMORY_CASES: dict[str, tuple[dict[str, Any], int, size.Shape, str]] = {
    "logits": ({}, 8000, (20, 10, 50), "float32"),
    "attention": ({"num_hidden_layers": 3}, 10, (3, 500, 60), "float32"),
    "feed-forward in 16 bits": ({"filter_size": 4096, "relu_dropout": 0.1}, 10, (20, 50, 60), "mixed_bfloat16"),
    "ConvS2S": ({"model": "convs2s", "hidden_size": 256, **NO_HEADS}, 10, (20, 50, 60), "float32"),
}
"""Changes to the hparams, vocabulary size, shape of the micro-batch and precision of each measured step."""


def memory_hparams(name: str) -> HParams:
    return replace(TINY, **{"num_heads": 8, "num_hidden_layers": 1, "hidden_size": 64, **MEMORY_CASES[name][0]})


@pytest.fixture(scope="module")
def peaks() -> dict[str, int]:
    """Returns the peak memory of the step of each case, in bytes, as TensorFlow counts it."""
    cases = [(asdict(memory_hparams(name)), *case[1:]) for name, case in MEMORY_CASES.items()]
    environment = {**os.environ, "TF_CPU_ALLOCATOR_USE_BFC": "1", "CUDA_VISIBLE_DEVICES": ""}
    result = Process("import step_memory; step_memory.main()", ["script", json.dumps(cases)], environment).result()
    assert result.returncode == 0, result.stderr[-3000:]
    return dict(zip(MEMORY_CASES, map(int, result.stdout.split()), strict=True))


@pytest.mark.parametrize("name", MEMORY_CASES)
def test_the_memory_estimate_is_close_to_tensorflows_count(name: str, peaks: dict[str, int]) -> None:
    hparams, (_, vocab_size, shape, precision) = memory_hparams(name), MEMORY_CASES[name]
    count = size.parameters(hparams, vocab_size)
    estimated = size.step_memory(hparams, count, vocab_size, [shape], precision)
    assert 0.65 < peaks[name] / (estimated.gradients + estimated.activations) < 1.3


def test_memory_grows_with_micro_batches_and_accumulation() -> None:
    one, two = (size.step_memory(TINY, 1234, 100, [(3, 5, 7)] * count) for count in (1, 2))
    weights = 4 * 1234
    assert one.weights == two.weights == weights and one.moments == two.moments == 2 * weights
    assert two.activations == 2 * one.activations == 2 * size.activations(TINY, 100, (3, 5, 7))
    assert two.gradients - one.gradients == one.gradients - weights == 3 * 4 * 100 * 16
    more = size.step_memory(TINY, 1234, 100, [(3, 5, 7)], accumulates=True)
    assert more.gradients == one.gradients + weights
    assert more.total == more.weights + more.moments + more.gradients + more.activations
    assert size.activations(TINY, 100, (0, 0, 0)) == 0


UNTIED = {"shared_embedding_and_softmax_weights": False}


@pytest.mark.parametrize(
    ("changes", "width"), [({"model": "bytenet"}, 32), ({"model": "deep_att", "embedding_size": 24, **UNTIED}, 24)]
)
def test_gradients_of_embeddings_have_the_embeddings_width(changes: dict[str, Any], width: int) -> None:
    memory = size.step_memory(replace(TINY, **NO_HEADS, **changes), 1234, 100, [(3, 5, 7)])
    assert memory.gradients - memory.weights == 3 * 4 * 100 * width
