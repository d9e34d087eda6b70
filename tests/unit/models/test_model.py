"""Tests the check of registered models, and the interface that `KerasModel` adds to a Keras model."""  # noqa: E501

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from decoding_models import INPUTS, SEED, TARGETS, VOCAB, check_steps
from t2t_repro import registry
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.models.model import (
    KerasModel,
    as_decoding_model,
    make_model,
    model_without_values,
    parameter_count,
)

ROOT = Path(__file__).parents[3]
PAGE = ROOT / "docs" / "write_your_own_model.md"
HPARAMS = HParams(
    hidden_size=8, num_heads=2, num_hidden_layers=1, filter_size=8, layer_prepostprocess_dropout=0.5
)


def make(factory: Any, precision: str = "float32") -> Any:
    """Registers a class or function as a model, and returns the model that `make_model` makes with
    it.
    """
    with mock.patch.dict(registry._models._objects, {"mine": factory}):
        return make_model(replace(HPARAMS, model="mine"), VOCAB, 0, precision)


@pytest.fixture(scope="module")
def recurrent_class() -> Any:
    """Returns the class of the example model in docs/write_your_own_model.md."""
    source, _ = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    variables: dict[str, Any] = {}
    with mock.patch.dict(registry._models._objects), mock.patch.dict(registry._hparams._objects):
        exec(compile(source, str(PAGE), "exec"), variables)
    return variables["Recurrent"]


class Plain(keras.Model):
    """A model without methods for decoding. Its first call creates the weights. Dropout is on if
    Keras is training.
    """

    def __init__(
        self, hparams: HParams, vocab_size: int, target_space_id: int, precision: str
    ) -> None:
        super().__init__()
        self.embedding = keras.layers.Embedding(vocab_size, hparams.hidden_size)
        self.dropout = keras.layers.Dropout(0.5)
        self.logits = keras.layers.Dense(vocab_size)

    def call(self, inputs: Any, targets: Any, training: bool = False) -> Any:
        previous = ops.pad(targets, ((0, 0), (1, 0)))[:, :-1]
        return self.logits(self.dropout(self.embedding(previous)))


def test_variables_have_the_same_names_in_every_model(recurrent_class: Any) -> None:
    for factory, example in (
        (recurrent_class, "recurrent/rnn_1/gru_cell_1/kernel"),
        (Plain, "plain/dense/kernel"),
    ):
        names = [
            [variable.path for variable in make(factory).trainable_variables] for _ in range(2)
        ]
        assert names[0] == names[1] and example in names[0]


def test_a_model_that_cannot_decode_is_counted() -> None:
    model = make(Plain)
    assert parameter_count(model) == VOCAB * 8 + 8 * VOCAB + VOCAB
    with pytest.raises(
        UserError,
        match=r"'mine' has no method encode, so it cannot decode; score with it, or add enc",
    ):
        as_decoding_model(model, "score with it")


def test_a_model_with_a_variable_that_is_made_from_a_tensor_is_counted() -> None:
    with mock.patch.dict(registry._models._objects, {"mine": Ready}):
        model = model_without_values(replace(HPARAMS, model="mine"), VOCAB)
    assert parameter_count(model) == VOCAB * 8 + 8 * VOCAB + VOCAB + 2


def test_the_example_decodes_by_steps_in_16_bits_and_its_dropout_follows_the_seed(
    recurrent_class: Any,
) -> None:
    def mixed(*arguments: Any) -> Any:
        return recurrent_class(*arguments[:3], "mixed_bfloat16")

    mixed.hparams_class = recurrent_class.hparams_class  # type: ignore[attr-defined]
    model = make(mixed)
    assert not as_decoding_model(model, "").has_attention
    check_steps(model, atol=0.05)
    assert model.start(2).dtype == tf.bfloat16
    assert (
        model(INPUTS, TARGETS).dtype
        == model.decode(TARGETS, model.encode(INPUTS)).dtype
        == tf.float32
    )
    assert {variable.dtype for variable in model.trainable_variables} == {"float32"}
    for other, is_repeatable in ((model, True), (make(Plain), False)):
        plain, first, second = (
            np.asarray(other(INPUTS, TARGETS, *seed)) for seed in ((), (SEED,), (SEED,))
        )
        assert not np.allclose(first, plain)
        assert np.array_equal(first, second) == is_repeatable


class Embedded(Plain):
    """A small model. Models that `make_model` must refuse are derived from it, each with one
    mistake.
    """

    more: tuple[Any, ...] = ()

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.last = [make_layer() for make_layer in self.more]

    def call(self, inputs: Any, targets: Any) -> Any:
        x = self.logits(self.embedding(targets))
        for layer in self.last:
            x = layer(x)
        return x


class Ready(Embedded):
    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.ready = keras.Variable(ops.ones(2), name="ready")


class OneArgument(Embedded):
    def call(self, inputs: Any) -> Any:
        return inputs


class Probabilities(Embedded):
    def call(self, inputs: Any, targets: Any) -> Any:
        return ops.max(super().call(inputs, targets), axis=-1)


class Averaging(Embedded):
    more = (keras.layers.BatchNormalization,)


class SameNames(Embedded):
    more = (partial(keras.layers.Dense, VOCAB, name="same"),) * 2


class Failing(Embedded):
    def call(self, inputs: Any, targets: Any) -> Any:
        return self.logits(ops.reshape(self.embedding(targets), (7,)))


class Misfit(Embedded):
    def __init__(self, hparams: Any, *arguments: Any) -> None:
        super().__init__(hparams, *arguments)
        self.experts = hparams.num_experts


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (OneArgument, r"model 'mine' has no method call\(inputs, targets\)"),
        (
            Probabilities,
            r"call returned shape \[1, 2\] for 2 target tokens; return logits .* here \[1, 2, 20\]",
        ),
        (
            Averaging,
            r"weight averaging/batch_normalization/moving_mean is not trained.*; make it trainable, or use",  # noqa: E501
        ),
        (
            SameNames,
            r"two variables are named same_names/same/kernel; give their layers different names",
        ),
        (
            Misfit,
            r"does not fit the hparams set \(.*test_model.py:\d+: AttributeError: .*num_experts.*\); correct it",  # noqa: E501
        ),
        (
            lambda hparams: None,
            r"does not fit the hparams set \(.*: TypeError: .*\); correct it there",
        ),
        (
            Failing,
            r"'mine' fails at its first call \(.*test_model.py:\d+: \w+: [^\n]*16 values[^\n]*\); correct it",  # noqa: E501
        ),
        (Embedded, "model 'mine' has no bfloat16 weights; make its layers with dtype=precision"),
    ],
)
def test_a_wrong_model_is_refused_with_what_is_missing(factory: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        make(factory, "bfloat16" if factory is Embedded else "float32")


def test_a_model_whose_methods_return_attention_on_request_has_attention() -> None:
    class Attentive(Embedded):
        def encode(self, inputs: Any) -> Any: ...
        def start(self, hypotheses: Any) -> Any: ...
        def decode(self, targets: Any, memory: Any, return_attention: Any = False) -> Any: ...
        def decode_step(
            self, ids: Any, t: Any, cache: Any, memory: Any, return_attention: Any = False
        ) -> Any: ...

    model = make(Attentive)
    assert isinstance(model, KerasModel) and model.has_attention and not model.missing_methods
