"""Tests that a `TranslationModel` trains, translates and is saved as the programs do it, with the means of Keras."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.checkpoints.checkpoint import initial_weights
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding import Translator
from t2t_repro.keras import TranslationModel
from t2t_repro.keras.batches import EncodedPairs
from t2t_repro.keras.metrics import Perplexity, TokenAccuracy
from t2t_repro.models.model import make_model
from t2t_repro.training.evaluation import Evaluator
from t2t_repro.training.optimizer import adam
from t2t_repro.training.step import TrainStep

SOURCES = ["the dog", "a cat", "the cat sat", "a dog sat on the cat", "on the", "a"]
TARGETS = ["a dog", "the cat", "sat the cat", "the dog", "on", "a cat sat on"]
SIZES = {
    "num_hidden_layers": 1, "hidden_size": 16, "filter_size": 16, "num_heads": 2, "batch_size": 20, "train_steps": 9,
}  # fmt: skip
pytestmark = pytest.mark.usefixtures("no_graphs")
Make = Callable[..., TranslationModel]
Slices = tf.data.Dataset.from_tensor_slices


@pytest.fixture(scope="module")
def make(tiny_vocabulary: Vocabulary) -> Make:
    """Returns the function that makes a small model."""

    def make(dtype: str = "float32", vocabulary: Vocabulary = tiny_vocabulary, **hparams: Any) -> TranslationModel:
        return TranslationModel.from_preset("transformer_tiny", vocabulary, dtype=dtype, **SIZES | hparams)

    return make


@pytest.fixture(scope="module")
def trained(make: Make) -> TranslationModel:
    """Returns a model after an epoch. Tests must not train it."""
    model = make()
    model.compile()
    model.fit(SOURCES, TARGETS, verbose=0)
    return model


def losses(model: TranslationModel, data: Any, **options: Any) -> list[float]:
    return model.fit(data, verbose=0, **options).history["loss"]


def weights(model: TranslationModel) -> dict[str, np.ndarray]:
    return {weight.path: weight.numpy() for weight in model.weights}


def test_a_file_of_keras_continues_the_training(trained: TranslationModel, tmp_path: Path) -> None:
    trained.save(tmp_path / "x.keras")
    first, second = (keras.models.load_model(tmp_path / "x.keras") for _ in range(2))
    np.testing.assert_equal(weights(first), weights(trained))
    assert first.generate(SOURCES) == trained.generate(SOURCES)
    state = [variable.numpy() for variable in trained.optimizer.variables]
    np.testing.assert_equal([variable.numpy() for variable in first.optimizer.variables], state)
    first.save(tmp_path / "y.keras")
    data = (SOURCES, TARGETS)
    assert losses(second, data) == losses(keras.models.load_model(tmp_path / "y.keras"), data)
    assert first.evaluate(data, verbose=0) == trained.evaluate(data, verbose=0)


def test_files_have_both_vocabularies(make: Make, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    sources = sentencepiece.train(["der Hund", "eine Katze"], 280)
    both = tiny_vocabulary.with_sources(sources)
    model = make(vocabulary=both, shared_embedding_and_softmax_weights=False)
    model.save_to_preset(tmp_path / "M")
    for copy in (TranslationModel.from_preset(tmp_path / "M"), TranslationModel.from_config(model.get_config())):
        assert copy.vocabulary.fingerprint == both.fingerprint
        assert copy.vocabulary.sources.fingerprint == sources.fingerprint
        assert weights(copy).keys() == weights(model).keys()


@pytest.mark.parametrize("frozen", ["", "embedding"])
def test_a_model_folder_translates_as_the_model(make: Make, tmp_path: Path, frozen: str) -> None:
    model = make(frozen=frozen)
    assert len(model.non_trainable_weights) == bool(frozen)
    model.save_to_preset(tmp_path / "M")
    translations = Translator.from_dir(str(tmp_path / "M")).translate(SOURCES, beam_size=3)
    copy = TranslationModel.from_preset(tmp_path / "M")
    for other in (model, copy):
        assert other.generate(SOURCES, beam_size=3) == [translation.text for translation in translations]
    assert copy.generate(SOURCES[0], beam_size=3) == translations[0].text
    np.testing.assert_equal(weights(copy), weights(model))
    _, checkpoint = initial_weights(make().model, model.vocabulary, str(tmp_path / "M"))  # of --warm_start_from
    assert checkpoint.weights.keys() == weights(model).keys()
    with pytest.raises(ValueError, match="M: exists"):
        model.save_to_preset(tmp_path / "M")


def test_translations_follow_the_training(make: Make, tmp_path: Path) -> None:
    model = make(learning_rate_schedule="constant", learning_rate_constant=0.03)
    before = model.generate(SOURCES[:1], beam_size=1)
    model.compile()
    model.fit((["the dog"], ["a cat"]), epochs=15, verbose=0)
    assert model.generate("the dog", beam_size=1) == "a cat" != before[0]
    version = model.export(tmp_path / "E", beam_size=1)
    served = tf.saved_model.load(str(version)).signatures["serving_default"]
    assert [text.decode() for text in served(tf.constant(["the dog"]))["outputs"].numpy()] == ["a cat"]


def test_all_forms_of_data_train_the_same(make: Make, tiny_vocabulary: Vocabulary) -> None:
    model = make(layer_prepostprocess_dropout=0.0, batch_size=1000)
    initial = model.get_weights()
    pairs = EncodedPairs(SOURCES, TARGETS, tiny_vocabulary)
    ids = [np.zeros((len(SOURCES), side.max()), np.int64) for side in pairs.lengths]
    for number in range(len(SOURCES)):
        for side, row in zip(ids, pairs.read(np.array([number])), strict=True):
            side[number, : len(row)] = row
    forms = {
        "lists": (SOURCES, TARGETS),
        "arrays": [np.array(SOURCES), np.array(TARGETS)],
        "batches of texts": Slices((SOURCES, TARGETS)).batch(6),
        "batches of ids": Slices(tuple(ids)).batch(6),
        "batches by name": Slices({"inputs": ids[0], "targets": ids[1]}).batch(6),
    }
    results = {}
    for name, data in forms.items():
        model.set_weights(initial)
        model.compile()
        results[name] = [*losses(model, data), *model.evaluate(data, verbose=0)]
    for result in results.values():
        np.testing.assert_allclose(result, results["lists"], 1e-5)
    assert model.predict(forms["lists"], verbose=0).shape == (*ids[1].shape, tiny_vocabulary.size)


def test_evaluation_is_that_of_the_trainer(
    trained: TranslationModel, tiny_vocabulary: Vocabulary, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evaluator, "source_use", lambda evaluator: None)
    evaluation = Evaluator(trained.model, EncodedPairs(SOURCES, TARGETS, tiny_vocabulary), 4096)()
    metrics = trained.evaluate(Slices((SOURCES, TARGETS)).batch(4), verbose=0, return_dict=True)
    expected = {"loss": evaluation.loss, "accuracy": evaluation.accuracy, "perplexity": evaluation.perplexity}
    assert metrics == pytest.approx(expected, rel=1e-5)


def test_all_losses_train_the_model(tiny_vocabulary: Vocabulary) -> None:
    """One device. tests/system/test_keras.py has two devices and micro-batches."""
    changes = SIZES | {"num_hidden_layers": 2, "rdrop_alpha": 1.0, "frozen": "embedding"}
    model = TranslationModel.from_preset("transformer_moe_tiny", tiny_vocabulary, **changes)
    keras.utils.set_random_seed(1)
    trained = make_model(model.hparams, tiny_vocabulary.size)
    step = TrainStep(trained, adam(model.hparams), model.hparams, tf.distribute.get_strategy())
    pipeline = Pipeline(EncodedPairs(SOURCES, TARGETS, tiny_vocabulary), model.hparams, 1, 0, 1)
    expected = [
        TrainStep.read(step(batch.micro_batches, batch.target_tokens, (1, batch.step))).loss
        for batch in pipeline.batches(0, 4)
    ]
    model.compile()
    results = losses(model, (SOURCES, TARGETS), steps_per_epoch=1, epochs=4)
    assert results == pytest.approx(expected, rel=1e-5)
    for weight in trained.trainable_variables:
        np.testing.assert_allclose(weights(model)[weight.path], weight.numpy(), atol=1e-4, err_msg=weight.path)


def test_metrics_by_hand() -> None:
    targets, predictions = np.array([[2, 1, 0], [3, 0, 0]]), np.array([[2, 2, 0], [3, 0, 0]])
    accuracy, perplexity = TokenAccuracy(), Perplexity()
    accuracy.update_state(targets, np.eye(4, dtype=np.float32)[predictions])
    perplexity.update_state(targets, np.ones((2, 3, 4), np.float32))
    assert [float(accuracy.result()), float(perplexity.result())] == pytest.approx([2 / 3, 4])


def test_a_run_that_is_resumed_is_one_run(make: Make, tmp_path: Path) -> None:
    def train(epochs: int, callbacks: list[Any]) -> tuple[TranslationModel, list[float]]:
        model = make()
        model.compile()
        data = (SOURCES, TARGETS)
        return model, losses(model, data, epochs=epochs, callbacks=callbacks, validation_data=data)

    backup = keras.callbacks.BackupAndRestore(tmp_path / "backup", delete_checkpoint=False)
    callbacks = [
        keras.callbacks.EarlyStopping(patience=9),
        keras.callbacks.TensorBoard(tmp_path / "logs"),
        keras.callbacks.ModelCheckpoint(tmp_path / "best.keras", "val_loss", save_best_only=True),
    ]
    _, first = train(1, [backup, *callbacks])
    resumed, second = train(2, [backup])
    whole, both = train(2, [])
    assert first + second == both
    np.testing.assert_equal(weights(resumed), weights(whole))
    assert (tmp_path / "best.keras").exists() and any((tmp_path / "logs").rglob("events*"))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_trains_float32_weights(make: Make, tmp_path: Path, dtype: str) -> None:
    model = make(dtype)
    model.compile()
    [loss] = losses(model, (SOURCES, TARGETS))
    other = make()
    other.compile()
    assert loss == pytest.approx(losses(other, (SOURCES, TARGETS))[0], rel=0.01) and loss != other.loss
    assert {weight.dtype for weight in model.weights} == {"float32"}
    model.save_to_preset(tmp_path / "M")
    assert ModelFolder(tmp_path / "M").origin.precision == dtype


def test_an_overflow_in_float16_skips_the_step(make: Make) -> None:
    model = make("mixed_float16")
    model.compile(keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1.0), initial_scale=1e38))
    before = weights(model)
    model.fit(SOURCES, TARGETS, steps_per_epoch=1, verbose=0)
    np.testing.assert_equal(weights(model), before)
    assert float(model.optimizer.dynamic_scale.numpy()) < 1e38


def test_own_loss_and_metrics_see_no_padding(make: Make, tmp_path: Path) -> None:
    model = make(layer_prepostprocess_dropout=0.0, label_smoothing=0.0)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="mean_with_sample_weight")
    data = Slices((SOURCES, TARGETS)).batch(6)
    model.compile()
    expected = model.evaluate(data, verbose=0, return_dict=True)
    accuracy = keras.metrics.SparseCategoricalAccuracy("own")
    model.compile("sgd", loss, metrics=None, weighted_metrics=[accuracy])
    results = model.evaluate(data, verbose=0, return_dict=True)
    assert results == pytest.approx({"loss": expected["loss"], "own": expected["accuracy"]}, rel=1e-5)
    model.save(tmp_path / "x.keras")
    loaded = keras.models.load_model(tmp_path / "x.keras")
    assert loaded.evaluate(data, verbose=0, return_dict=True) == pytest.approx(results)


IDS = np.array([[3, 4, 1]])
BAD: dict[str, tuple[type[Exception], str, Callable[[TranslationModel, Path], Any]]] = {
    "None": (TypeError, "None", lambda model, path: model.fit([None, "a"], ["a", "b"])),
    "batch size": (ValueError, "batch_size", lambda model, path: model.fit(SOURCES, TARGETS, batch_size=2)),
    "counts": (ValueError, "2", lambda model, path: model.fit((["a"], ["a", "b"]))),
    "no pairs": (ValueError, "no pairs", lambda model, path: model.fit([], [])),
    "texts without batches": (ValueError, "batches", lambda model, path: model.fit(Slices((SOURCES, TARGETS)))),
    "no batch": (ValueError, "no batches", lambda model, path: model.fit(Slices((IDS, IDS)).batch(1).take(0))),
    "filtered": (ValueError, "no batches", lambda model, path: model.fit(
        Slices((IDS, IDS)).batch(1).filter(lambda *ids: False))),
    "no batches": (ValueError, "padded ids", lambda model, path: model.fit(Slices((IDS, IDS)))),
    "three sides": (ValueError, "padded ids", lambda model, path: model.fit(Slices((IDS, IDS, IDS)).batch(1))),
    "one text": (ValueError, "two lists", lambda model, path: model.fit("a")),
    "one list": (ValueError, "two lists", lambda model, path: model.fit(["a", "b"])),
    "unknown id": (ValueError, "290", lambda model, path: model.fit(Slices((IDS + 289, IDS)).batch(1), verbose=0)),
    "negative id": (ValueError, "290", lambda model, path: model.evaluate(Slices((IDS, -IDS)).batch(1), verbose=0)),
    "dev data": (TypeError, "None", lambda model, path: model.fit(SOURCES, TARGETS, validation_data=([None], ["a"]))),
    "untranslatable": (TypeError, "None", lambda model, path: model.generate([None])),
    "beam": (ValueError, "beam_size", lambda model, path: model.generate("a", beam_size=0)),
    "no preset": (ValueError, "tiny", lambda model, path: TranslationModel.from_preset("tiny", "x.model")),
    "no folder": (ValueError, "vocabulary", lambda model, path: TranslationModel.from_preset("transformer_tiny")),
    "other folder": (ValueError, "problem.json", lambda model, path: TranslationModel.from_preset(path)),
    "no file": (ValueError, "x.model", lambda model, path: TranslationModel.from_preset("transformer_tiny", "x.model")),
    "hparam": (ValueError, "hidden_size", lambda model, path: TranslationModel.from_preset(
        "transformer_tiny", model.vocabulary, hiden_size=16)),
    "policy": (ValueError, "float16", lambda model, path: TranslationModel.from_preset(
        "transformer_tiny", model.vocabulary, dtype="float16")),
    "configuration": (ValueError, "model", lambda model, path: TranslationModel.from_config(
        model.get_config() | {"hparams": {"model": "modell"}})),
}  # fmt: skip


@pytest.mark.parametrize(("kind", "part", "call"), BAD.values(), ids=BAD)
def test_a_mistake_raises_an_error_of_python(
    trained: TranslationModel, tmp_path: Path, kind: Any, part: str, call: Callable[[TranslationModel, Path], Any]
) -> None:
    with pytest.raises(kind) as raised:
        call(trained, tmp_path)
    assert part in str(raised.value) and "\n" not in str(raised.value)
