"""Keras trains as t2t-trainer does, on one and on two devices; the code in docs/keras.md runs."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from processes import Process
from programs import succeed
from t2t_repro.checkpoints.model_folder import ModelFolder

DOCS = Path(__file__).parents[2] / "docs"
LOSSES = '''
import json, sys
import keras
import tensorflow as tf
from t2t_repro import registry
from t2t_repro.data import as_dataset
from t2t_repro.data.dataset import load_data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.hparam import with_changes
from t2t_repro.keras import TranslationModel
from t2t_repro.models.model import make_model
from t2t_repro.training.optimizer import adam
from t2t_repro.training.step import TrainStep

_, folder, usr_dir = sys.argv
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
two_devices = tf.distribute.MirroredStrategy(["cpu:0", "cpu:1"])  # TensorFlow takes no second one of the same devices
registry.import_usr_dir(usr_dir)
data = load_data(folder, "numbers_ende")
sizes = {
    "num_hidden_layers": 1, "hidden_size": 16, "filter_size": 16, "num_heads": 2, "batch_size": 90,
    "learning_rate_warmup_steps": 9,
}


class Losses(keras.callbacks.Callback):
    def on_train_begin(self, logs=None):
        self.losses = []

    def on_train_batch_begin(self, batch, logs=None):
        self.model.reset_metrics()  # the logs have means since the last reset

    def on_train_batch_end(self, batch, logs=None):
        self.losses.append(logs["loss"])


def fit(name, changes):
    """Returns a model that Keras has trained on two devices, and the losses of its steps."""
    recorded = Losses()
    with two_devices.scope():
        model = TranslationModel.from_preset(name, data.vocabulary, data.problem, **changes)
        model.compile()
    batches = as_dataset(folder, "train", model.hparams, start=model.optimizer.iterations)
    model.fit(batches, epochs=2, steps_per_epoch=10, verbose=0, callbacks=[recorded])
    return model, recorded.losses


def trainer(hparams):
    """Returns the losses of t2t-trainer's steps with small micro-batches on one device."""
    strategy = tf.distribute.MirroredStrategy(["cpu:0"])
    keras.utils.set_random_seed(1)
    with strategy.scope():
        model, optimizer = make_model(hparams, data.vocabulary.size), adam(hparams)
    step = TrainStep(model, optimizer, hparams, strategy)
    batches = Pipeline(data.records["train"], hparams, 1, 60, 1).batches(0, 20)
    return [TrainStep.read(step(b.micro_batches, b.target_tokens, (1, b.step))).loss for b in batches]


relative = {
    "optimizer_adafactor_multiply_by_parameter_scale": True, "learning_rate_schedule": "constant",
    "learning_rate_constant": 0.05,
}
results = {}
for name, changes in {
    "transformer_tiny": {"clip_grad_norm": 0.5, "weight_decay": 0.1},
    "recurrent_tiny": {**relative, "batch_size": 12},  # steps of two examples or one: then a replica has no rows
}.items():
    model, losses = fit(name, sizes | changes)
    results[name] = trainer(with_changes(registry.hparams(name), sizes | changes)), losses
model.save("x.keras")
text = "five hundred"
assert keras.models.load_model("x.keras").generate(text) == model.generate(text)
model.save_to_preset("M")
print(json.dumps(results))
'''


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    succeed("datagen", "--problem=numbers_ende", "--train_size=200", "--vocab_size=300", f"--data_dir={folder}")
    return folder


def test_losses_are_those_of_the_trainer(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "write_your_own_model.md").read_text("utf-8")
    (tmp_path / "my_models").mkdir()
    (tmp_path / "my_models" / "__init__.py").write_text(page.split("```python\n")[1].split("```")[0], "utf-8")
    monkeypatch.chdir(tmp_path)
    result = Process(LOSSES, ["script", str(data_dir), str(tmp_path / "my_models")]).result()
    assert result.returncode == 0, result.stderr[-3000:]
    for name, (expected, losses) in json.loads(result.stdout.splitlines()[-1]).items():
        assert len(expected) == 20 and losses == pytest.approx(expected, rel=1e-5), name
    assert expected[-1] < expected[0] - 0.1
    (tmp_path / "texts").write_text("five\nsix hundred\n")
    flags = ["--t2t_usr_dir=my_models", "--output_dir=M", "--decode_from_file=texts", "--decode_to_file=outputs"]
    succeed("decoder", *flags)
    assert len((tmp_path / "outputs").read_text().splitlines()) == 2


def test_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = (DOCS / "keras.md").read_text("utf-8")
    code = "".join(re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE))
    for old, new in (  # the page trains longer, a larger model
        ('problem("numbers_ende"', 'problem("numbers_ende", {"train_size": 200}'),
        ("=200,", "=1,"),
        ("=600,", "=3,"),
        ("hidden_size=64", "hidden_size=64, num_hidden_layers=1"),
    ):
        assert old in code
        code = code.replace(old, new)
    monkeypatch.chdir(tmp_path)
    result = Process(code, ["script"]).result()
    assert result.returncode == 0, result.stderr[-3000:]
    assert (tmp_path / "numbers.keras").exists() and list(tmp_path.glob("export/1/saved_model.pb"))
    assert ModelFolder(tmp_path / "M").checkpoint().endswith("model.ckpt-3")
