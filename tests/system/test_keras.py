"""Keras trains as t2t-trainer does, on two devices; the code in docs/keras.md runs."""

import re
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from processes import Process
from programs import succeed
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.keras import TranslationModel

PAGE = Path(__file__).parents[2] / "docs" / "keras.md"
LOSSES = """
import keras
import numpy as np
import tensorflow as tf
from t2t_repro.data import as_dataset
from t2t_repro.data.dataset import load_data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.keras import TranslationModel
from t2t_repro.models.model import make_model
from t2t_repro.training.optimizer import Adam, make_optimizer
from t2t_repro.training.step import TrainStep

cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
# TensorFlow takes no second one of the same devices
two_devices = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])
one_device = tf.distribute.MirroredStrategy(["cpu:0"])
data = load_data("D", "numbers_ende")

with two_devices.scope():  # steps have one to three examples; with one, a replica has no rows
    model = TranslationModel.from_preset(
        "transformer_tiny", data.vocabulary, data.problem, num_hidden_layers=1, hidden_size=16, filter_size=16,
        num_heads=2, batch_size=45, clip_grad_norm=0.01, weight_decay=0.1, learning_rate_schedule="constant",
        learning_rate_constant=0.05, optimizer_adafactor_multiply_by_parameter_scale=True,
    )
    model.compile()
batches = as_dataset("D", "train", model.hparams, start=model.optimizer.iterations)
losses = model.fit(batches, epochs=20, steps_per_epoch=1, verbose=0).history["loss"]

keras.utils.set_random_seed(1)
with one_device.scope():
    trained, optimizer = make_model(model.hparams, data.vocabulary.size), make_optimizer(model.hparams)
step = TrainStep(trained, optimizer, model.hparams, one_device)
steps = Pipeline(data.records["train"], model.hparams, 1, 60, 1).batches(0, 20)
expected = [TrainStep.read(step(b.micro_batches, b.target_tokens, (1, b.step))).loss for b in steps]
np.testing.assert_allclose(losses, expected, rtol=1e-5)
assert expected[-1] < expected[0] - 0.1

with two_devices.scope():
    table, optimizer = keras.layers.Embedding(3, 1, "zeros"), Adam(0.1, global_clipnorm=1.0)
    table.build()
    optimizer.build(table.weights)
# as TensorFlow returns it for an embedding: only a row
gradient = tf.IndexedSlices([[1.0]], [2], (3, 1))
two_devices.run(lambda: optimizer.apply([gradient], table.weights))
np.testing.assert_allclose(table.get_weights()[0].ravel(), [0, 0, -0.1], rtol=1e-5)
"""  # noqa: E501
pytestmark = pytest.mark.usefixtures("no_graphs")


def test_losses_are_those_of_the_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    succeed(
        "datagen", "--problem=numbers_ende", "--train_size=200", "--vocab_size=300", "--data_dir=D"
    )
    result = Process(LOSSES, ["script"]).result()
    assert result.returncode == 0, result.stderr[-3000:]


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = "".join(
        re.findall(r"^```python\n(.*?)^```", PAGE.read_text("utf-8"), re.DOTALL | re.MULTILINE)
    )
    for old, new in (  # the page trains longer, a larger model
        ('problem("numbers_ende"', 'problem("numbers_ende", {"train_size": 200}'),
        ("=200,", "=1,"),
        ("=600,", "=3,"),
        ("hidden_size=64", "hidden_size=16, num_hidden_layers=1"),
        ("beam_size=4", "beam_size=4, extra_length=1"),
        ('export("export"', 'export("export", extra_length=1'),
    ):
        assert old in code
        code = code.replace(old, new)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(code, names)
    texts = ["five", "sixty-six"]
    served = tf.saved_model.load("export/1").signatures["serving_default"](tf.constant(texts))[
        "outputs"
    ]
    outputs = TranslationModel.from_preset("M").generate(texts, extra_length=1)
    assert [text.decode() for text in served.numpy()] == outputs
    assert ModelFolder("M").checkpoint().endswith("model.ckpt-3")
