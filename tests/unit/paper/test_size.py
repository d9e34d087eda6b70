"""Compares counted parameters and operations with real models, with the graph of a step, and with a sum by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import keras
import pytest
import tensorflow as tf

from decoding_models import FAMILIES, INPUTS, SEED, TARGETS, VOCAB, count_multiplications, small_model
from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.models.model import make_model, parameter_count
from t2t_repro.paper import size

TINY = FAMILIES["transformer"]


@pytest.mark.parametrize(
    ("hparams_set", "vocab_size", "expected"),
    [
        ("transformer_base", 37_000, 63_045_632),
        ("transformer_big", 37_000, 214_171_648),
        ("bytenet", 323, 273_494_723),
        ("convs2s_ende", 40_000, 208_390_272),
        ("deep_att", 32_000, 139_905_536),
        ("gnmt", 32_000, 280_826_880),
        ("moe", 32_000, 8_695_226_880),
    ],
)
def test_sets_have_the_known_numbers_of_parameters(hparams_set: str, vocab_size: int, expected: int) -> None:
    registry.import_built_in()
    assert size.parameters(registry.hparams(hparams_set), vocab_size) == expected


@pytest.mark.parametrize("name", FAMILIES)
def test_parameters_equal_those_of_a_model_with_values(name: str) -> None:
    hparams = replace(FAMILIES[name], shared_embedding_and_softmax_weights=False)
    assert size.parameters(hparams, VOCAB, 30) == parameter_count(make_model(hparams, VOCAB, source_vocab_size=30))


def test_counting_allocates_no_memory_now_or_later() -> None:
    width = 2**20
    assert size.parameters(replace(TINY, hidden_size=width, filter_size=width), VOCAB) > 4 * 2 * width * width
    with keras.StatelessScope():  # at its end, Keras allocates all variables that wait for it
        pass


@registry.register_model("sized")
def _sized(hparams: HParams, vocab_size: int, target_space_id: int, precision: str) -> Any:
    class Sized(keras.Model):
        def __init__(self) -> None:
            super().__init__()
            self.embedding, self.dense = keras.layers.Embedding(vocab_size, 3), keras.layers.Dense(vocab_size)

        def call(self, inputs: Any, targets: Any) -> Any:
            return self.dense(self.embedding(targets))

    return Sized()


def test_parameters_of_a_users_keras_model_are_counted() -> None:
    assert size.parameters(HParams(model="sized"), 7) == 7 * 3 + 3 * 7 + 7


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


def flops_of_step(hparams: HParams, source_length: int, target_length: int) -> int:
    """Returns the number of operations in all matrix products of a step's graph without loops, forward and backward."""
    model, sentences = make_model(hparams, VOCAB), hparams.batch_size // target_length

    @tf.function(autograph=False)
    def step() -> Any:
        with tf.GradientTape() as tape:
            logits = model(tf.ones([sentences, source_length], tf.int32), tf.ones([sentences, target_length], tf.int32))
            loss = tf.reduce_sum(logits * logits)
        return tape.gradient(loss, [variable.value for variable in model.trainable_variables])

    total = 0
    for operation in step.get_concrete_function().graph.get_operations():
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


@pytest.mark.parametrize(("family", "lengths"), [("convs2s", (5, 7)), ("bytenet", (15, 9))])
def test_a_steps_graph_has_three_times_the_products_of_its_forward_pass(family: str, lengths: tuple[int, int]) -> None:
    hparams = replace(FAMILIES[family], batch_size=2 * lengths[1])
    assert size.step_flops(hparams, VOCAB, *lengths) == flops_of_step(hparams, *lengths)


@pytest.mark.parametrize("family", ["gnmt", "deep_att", "moe", "transformer_moe"])
def test_products_are_counted_in_loops_and_for_the_experts_of_each_position(
    family: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = small_model(FAMILIES[family])
    counts = count_multiplications(monkeypatch)
    model(INPUTS[:1], TARGETS[:1], SEED[:1])
    expected = sum(counts)
    monkeypatch.undo()
    assert size.multiplications(model.hparams, VOCAB, INPUTS.shape[1], TARGETS.shape[1]) == expected
