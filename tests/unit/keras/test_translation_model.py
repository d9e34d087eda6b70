"""Tests that a `TranslationModel` trains, translates and is saved as the programs do it, with the
means of Keras.
"""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.checkpoints.checkpoint import initial_weights
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding import Translator
from t2t_repro.decoding.batches import padded
from t2t_repro.keras import TranslationModel
from t2t_repro.keras.batches import EncodedPairs
from t2t_repro.models.model import make_model
from t2t_repro.training.evaluation import Evaluator
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import TrainStep

PAGE = Path(__file__).parents[3] / "docs" / "write_your_own_model.md"
SOURCES = ["the dog", "a cat", "the cat sat", "a dog sat on the cat", "on the", "a"]
TARGETS = ["a dog", "the cat", "sat the cat", "the dog", "on", "a cat sat on"]
DATA = SOURCES, TARGETS
SIZES = {
    "num_hidden_layers": 1,
    "hidden_size": 16,
    "filter_size": 16,
    "num_heads": 2,
    "batch_size": 20,
    "train_steps": 9,
    "learning_rate_schedule": "constant",
    "learning_rate_constant": 0.03,
}
ALL_LOSSES = {"num_hidden_layers": 2, "rdrop_alpha": 1.0, "frozen": "embedding"}
pytestmark = pytest.mark.usefixtures("no_graphs")
Make = Callable[..., TranslationModel]
Slices = tf.data.Dataset.from_tensor_slices


@pytest.fixture(scope="module")
def make(tiny_vocabulary: Vocabulary) -> Make:
    """Returns the function that makes a small model, ready to train."""

    def make(
        dtype: str = "float32", vocabulary: Vocabulary = tiny_vocabulary, **hparams: Any
    ) -> TranslationModel:
        model = TranslationModel.from_preset(
            "transformer_tiny", vocabulary, dtype=dtype, **SIZES | hparams
        )
        model.compile()
        return model

    return make


@pytest.fixture(scope="module")
def trained(make: Make) -> TranslationModel:
    """Returns a model after an epoch. Tests must not train it."""
    model = make()
    model.fit(*DATA, verbose=0)
    return model


def losses(model: TranslationModel, data: Any = DATA, **options: Any) -> list[float]:
    return model.fit(data, verbose=0, **options).history["loss"]


def weights(model: TranslationModel) -> dict[str, np.ndarray]:
    return {weight.path: weight.numpy() for weight in model.weights}


def test_a_file_of_keras_continues_the_training(
    make: Make, trained: TranslationModel, tmp_path: Path
) -> None:
    trained.save(tmp_path / "x.keras")
    loaded = keras.models.load_model(tmp_path / "x.keras")
    other = make()
    np.testing.assert_equal(weights(loaded), weights(trained))
    state = [variable.numpy() for variable in trained.optimizer.variables]
    np.testing.assert_equal([variable.numpy() for variable in loaded.optimizer.variables], state)
    assert loaded.evaluate(DATA, verbose=0) == trained.evaluate(DATA, verbose=0)
    before = other.generate(SOURCES, extra_length=2)
    other.set_weights(loaded.get_weights())
    assert (
        loaded.generate(SOURCES, extra_length=2)
        == other.generate(SOURCES, extra_length=2)
        != before
    )
    loaded.save(tmp_path / "y.keras")
    assert losses(loaded) == losses(keras.models.load_model(tmp_path / "y.keras"))


def test_a_model_folder_translates_as_the_model(
    make: Make, tiny_vocabulary: Vocabulary, tmp_path: Path
) -> None:
    sources = sentencepiece.train(["der Hund", "eine Katze"], 280)
    both = tiny_vocabulary.with_sources(sources)
    folder = tmp_path / "M"
    options: Any = {"vocabulary": both, "shared_embedding_and_softmax_weights": False}
    model = make(frozen="target_embedding", **options)
    untrained = make(**options)
    assert len(model.non_trainable_weights) == 1
    model.set_weights([np.flip(weight) for weight in model.get_weights()])
    model.save_to_preset(folder)
    first, second, plain = (
        np.array(model({"inputs": ID, "targets": ID}, training=t)) for t in (True, True, False)
    )
    assert (first == second).all() and not np.allclose(first, plain)
    translations = Translator.from_dir(str(folder)).translate(SOURCES, beam_size=3, extra_length=2)
    copy = TranslationModel.from_preset(folder)
    for other in (model, copy):
        assert other.generate(SOURCES, beam_size=3, extra_length=2) == [
            text.text for text in translations
        ]
    assert copy.generate(SOURCES[0], beam_size=3, extra_length=2) == translations[0].text
    np.testing.assert_equal(weights(copy), weights(model))
    for other in (copy, TranslationModel.from_config(model.get_config())):
        assert other.vocabulary.fingerprint == both.fingerprint
        assert other.vocabulary.sources.fingerprint == sources.fingerprint
    _, checkpoint = initial_weights(untrained.model, both, str(folder))  # of --warm_start_from
    assert checkpoint.weights.keys() == weights(model).keys()
    with pytest.raises(ValueError, match="M: exists"):
        model.save_to_preset(folder)


def test_all_forms_of_data_train_the_same(make: Make, tiny_vocabulary: Vocabulary) -> None:
    model = make(layer_prepostprocess_dropout=0.0, batch_size=1000)
    initial = model.get_weights()
    ids = tuple(padded(tiny_vocabulary.encode(texts)) for texts in DATA)
    data_sets = [
        Slices(data).batch(6)
        for data in (DATA, ids, dict(zip(("inputs", "targets"), ids, strict=True)))
    ]
    results = []
    for data in (DATA, [np.array(side) for side in DATA], *data_sets):
        model.set_weights(initial)
        model.compile()
        results.append([*losses(model, data), *model.evaluate(data, verbose=0)])
        np.testing.assert_allclose(results[-1], results[0], 1e-5)
    assert model.predict(DATA, verbose=0).shape == (*ids[1].shape, tiny_vocabulary.size)


def test_evaluation_is_that_of_the_trainer(
    trained: TranslationModel, tiny_vocabulary: Vocabulary
) -> None:
    with mock.patch.object(Evaluator, "source_use", return_value=None):
        evaluation = Evaluator(trained.model, EncodedPairs(*DATA, tiny_vocabulary), 4096)()
    metrics = trained.evaluate(Slices(DATA).batch(4), verbose=0, return_dict=True)
    assert metrics == pytest.approx(
        {name: getattr(evaluation, name) for name in ("loss", "accuracy", "perplexity")}
    )


@pytest.fixture
def user_model() -> Iterator[None]:
    with mock.patch.dict(registry._models._objects), mock.patch.dict(registry._hparams._objects):
        exec(PAGE.read_text("utf-8").split("```python\n")[1].split("```")[0], {})
        yield


@pytest.mark.parametrize(
    ("name", "changes"), [("transformer_moe_tiny", ALL_LOSSES), ("recurrent_tiny", {})]
)
@pytest.mark.usefixtures("user_model")
def test_all_models_and_losses_train(
    tiny_vocabulary: Vocabulary, tmp_path: Path, name: str, changes: Any
) -> None:
    model = TranslationModel.from_preset(name, tiny_vocabulary, **SIZES | changes)
    keras.utils.set_random_seed(1)
    trained = make_model(model.hparams, tiny_vocabulary.size)
    step = TrainStep(
        trained, make_optimizer(model.hparams), model.hparams, tf.distribute.get_strategy()
    )
    batches = Pipeline(EncodedPairs(*DATA, tiny_vocabulary), model.hparams, 1, 0, 1).batches(0, 2)
    expected = [
        TrainStep.read(step(b.micro_batches, b.target_tokens, (1, b.step))).loss for b in batches
    ]
    model.compile()
    assert losses(model, steps_per_epoch=1, epochs=2) == pytest.approx(expected, rel=1e-5)
    model.save(tmp_path / "x.keras")
    loaded = weights(keras.models.load_model(tmp_path / "x.keras"))
    for weight in trained.trainable_variables:
        np.testing.assert_allclose(
            loaded[weight.path], weight.numpy(), atol=1e-4, err_msg=weight.path
        )


@pytest.mark.parametrize(
    "hparams", [{}, {"optimizer": "momentum", "optimizer_momentum_nesterov": True}]
)
def test_a_run_that_is_resumed_is_one_run(
    make: Make, hparams: dict[str, Any], tmp_path: Path
) -> None:
    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)
    first = losses(make(**hparams), callbacks=[backup])
    resumed = make(**hparams)
    whole = make(**hparams)
    assert first + losses(resumed, epochs=2, callbacks=[backup]) == losses(whole, epochs=2)
    np.testing.assert_equal(weights(resumed), weights(whole))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_trains_float32_weights(make: Make, dtype: str) -> None:
    model = make(dtype)
    reference = make()
    [loss] = losses(model, steps_per_epoch=1)
    [expected] = losses(reference, steps_per_epoch=1)
    assert loss == pytest.approx(expected, rel=0.01) and loss != expected
    assert {weight.dtype for weight in model.weights} == {
        "float32"
    } and model.origin.precision == dtype


def test_an_overflow_in_float16_skips_the_step(make: Make) -> None:
    model = make("mixed_float16")
    model.compile(
        keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1e38)
    )
    losses(model, steps_per_epoch=1)
    np.testing.assert_equal(weights(model), weights(make()))
    assert float(model.optimizer.dynamic_scale.numpy()) < 9e37


def test_own_loss_and_metrics_see_no_padding(make: Make, tmp_path: Path) -> None:
    model = make(layer_prepostprocess_dropout=0.0, label_smoothing=0.0)
    loss = keras.losses.SparseCategoricalCrossentropy(
        from_logits=True, reduction="mean_with_sample_weight"
    )
    data = Slices(DATA).batch(6)
    expected = model.evaluate(data, verbose=0, return_dict=True)
    model.compile(
        "sgd", loss, metrics=None, weighted_metrics=[keras.metrics.SparseCategoricalAccuracy("own")]
    )
    results = model.evaluate(data, verbose=0, return_dict=True)
    assert results == pytest.approx(
        {"loss": expected["loss"], "own": expected["accuracy"]}, rel=1e-5
    )
    model.save(tmp_path / "x.keras")
    assert keras.models.load_model(tmp_path / "x.keras").evaluate(data, verbose=0) == pytest.approx(
        [*results.values()]
    )


ID = np.array([[3, 4, 1]])
IDS = Slices((ID, ID))
BAD: dict[str, tuple[str, Callable[[TranslationModel], Any]]] = {
    "None": ("None", lambda model: model.fit([None, "a"], ["a", "b"])),
    "batch size": ("batch_size", lambda model: model.fit(*DATA, batch_size=2)),
    "no pairs": ("no pairs", lambda model: model.fit([], [])),
    "no batch": ("no batches", lambda model: model.fit(IDS.batch(1).take(0))),
    "filtered": ("no batches", lambda model: model.fit(IDS.batch(1).filter(lambda *ids: False))),
    "ids without batches": ("padded ids", lambda model: model.fit(IDS)),
    "one text": ("two lists", lambda model: model.fit("a")),
    "one list": ("two lists", lambda model: model.fit(["a", "b"])),
    "unknown id": ("290", lambda model: model.fit(Slices((ID + 289, ID)).batch(1), verbose=0)),
    "negative id": ("290", lambda model: model.evaluate(Slices((ID, -ID)).batch(1), verbose=0)),
    "beam": ("beam_size", lambda model: model.generate("a", beam_size=0)),
    "no folder": ("vocabulary", lambda model: model.from_preset("transformer_tiny")),
    "policy": (
        "float16",
        lambda model: model.from_preset("transformer_tiny", model.vocabulary, dtype="float16"),
    ),
    "configuration": (
        "model",
        lambda model: model.from_config(model.get_config() | {"hparams": {"model": "x"}}),
    ),
}


@pytest.mark.parametrize(("part", "call"), BAD.values(), ids=BAD)
def test_a_mistake_raises_an_error_of_python(
    trained: TranslationModel, part: str, call: Callable[..., Any]
) -> None:
    with pytest.raises((TypeError, ValueError)) as raised:
        call(trained)
    assert part in str(raised.value) and "\n" not in str(raised.value)
