"""With JAX, the model computes the same as tensor2tensor, and the programs in docs/jax.md train
like t2t-trainer.

One process with JAX computes all values, see tests/helpers/jax_process.py.
"""

import os
import random
import re
import runpy
import subprocess
import sys
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from family_examples import EXAMPLES, INPUTS, SEED, TARGETS, example_model, training_loss
from golden_model import load
from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.dataset import load_data
from t2t_repro.data.job import Options
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.files.json_file import to_json
from t2t_repro.hparam import HParams
from t2t_repro.models.model import make_model
from t2t_repro.tensor2tensor.variables import by_our_names
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.step import TrainStep
from toys import ENGLISH, GREEK

PAGE = Path(__file__).parents[2] / "docs" / "jax.md"
HELPERS = Path(__file__).parents[1] / "helpers"
PACKAGES = Path(sys.prefix) / "jax"
"""Folder into which `make test` installs JAX. It is not in sys.path, because TensorFlow would then
import JAX in every process.
"""
HPARAMS = HParams(
    num_hidden_layers=1,
    hidden_size=32,
    filter_size=64,
    num_heads=4,
    norm_before=True,
    pos="emb",
    self_attention_neighborhood=4,
    shared_embedding_and_softmax_weights=False,
    attention_dropout=0.1,
    relu_dropout=0.1,
    batch_size=700,
    train_steps=5,
    learning_rate_schedule="constant*noam*linear_warmup*rsqrt_decay*rsqrt_hidden_size*linear_decay",
    learning_rate_constant=0.5,
    learning_rate_warmup_steps=2,
)
"""Hparams with the parts of the model that the golden numbers do not have, and all factors of the
learning rate.
"""


def write_data(folder: Path) -> None:
    """Generates data in the folder `data`: lines of 8 words, for which JAX compiles few shapes."""
    draw = random.Random(1)
    for name, words, count in (
        ("a.en", ENGLISH, 220),
        ("a.el", GREEK, 220),
        ("b.en", ENGLISH, 5),
        ("b.el", GREEK, 5),
    ):
        lines = (" ".join(draw.choices(words, k=8)) for _ in range(count))
        (folder / name).write_text("".join(f"{line}\n" for line in lines), "utf-8")
    settings = {
        "train": f"{folder}/a.en,{folder}/a.el",
        "dev": f"{folder}/b.en,{folder}/b.el",
        "vocab_size": 400,
    }
    generate_data(registry.problem("text_files", settings), folder / "data", "", Options(0))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with all values that a process with JAX computed. In the process, importing
    TensorFlow fails.
    """
    if not PACKAGES.exists():
        pytest.importorskip(
            "jax",
            reason=f"install JAX with `make test`, or pip install --target {PACKAGES} jax optax",
        )
    folder = tmp_path_factory.mktemp("jax")
    write_data(folder)
    (folder / "hparams.json").write_text(to_json(HPARAMS), "utf-8")
    programs = re.findall(r"```python\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)
    for name, program in zip(("train_jax.py", "to_checkpoint.py"), programs, strict=True):
        (folder / name).write_text(program, "utf-8")
    blocked = folder / "blocked" / "tensorflow"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text(
        "raise ImportError('the model must not import TensorFlow')\n", "utf-8"
    )
    environment = os.environ | {
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",  # to compile faster
        "PYTHONPATH": os.pathsep.join(map(str, (blocked.parent, PACKAGES, HELPERS))),
    }
    subprocess.run(
        [sys.executable, HELPERS / "jax_process.py", folder], env=environment, check=True
    )
    return folder


def test_the_model_computes_what_tensor2tensor_computes(folder: Path) -> None:
    values = np.load(folder / "golden.npz")
    golden = load("model_v1_postnorm_fwd")
    np.testing.assert_allclose(values["logits"], golden["logits"], atol=1e-4)
    for name in ("train_loss", "eval_loss"):
        assert float(values[name]) == pytest.approx(float(golden[name]), abs=1e-5)
    for path, gradient in by_our_names(load("model_v1_postnorm_grads"), "").items():
        np.testing.assert_allclose(values[path], gradient, atol=1e-4, err_msg=path)
    model = keras.models.load_model(folder / "golden.keras")  # in TensorFlow
    np.testing.assert_allclose(
        model([golden["inputs"], golden["targets"]]), golden["logits"], atol=1e-4
    )
    np.testing.assert_allclose(
        np.load(folder / "functional.npz")["loss"], [golden["eval_loss"]], atol=1e-5
    )


def test_restricted_attention_decodes_the_same_by_steps_and_at_once(folder: Path) -> None:
    values = np.load(folder / "decoded.npz")
    np.testing.assert_allclose(values["by steps"], values["at once"], atol=1e-5)


@pytest.mark.parametrize("family", EXAMPLES)
def test_logits_and_gradients_equal_those_on_tensorflow(folder: Path, family: str) -> None:
    values = np.load(folder / f"{family}.npz")
    model = example_model(family)
    with tf.GradientTape() as tape:
        logits = model(INPUTS, TARGETS, SEED)
        loss = training_loss(logits, model.losses)
    assert float(loss) == pytest.approx(float(values["loss"]), abs=1e-4)
    np.testing.assert_allclose(logits, values["logits"], atol=1e-4)
    variables = model.trainable_variables
    gradients = tape.gradient(loss, [variable.value for variable in variables])
    for variable, gradient in zip(variables, gradients, strict=True):
        expected = values[variable.path]
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), expected, atol=1e-4, err_msg=variable.path
        )


def test_the_program_on_the_page_trains_like_t2t_trainer_with_dropout(folder: Path) -> None:
    data = load_data(str(folder / "data"), "text_files")
    initial = np.load(folder / "initial.npz")
    model = make_model(HPARAMS, data.vocabulary.size)
    for variable in model.trainable_variables:
        variable.assign(initial[variable.path])
    step = TrainStep(model, make_optimizer(HPARAMS), HPARAMS, tf.distribute.get_strategy())
    # These micro-batches are smaller than on the page. So the result must not depend on how a step
    # is cut.
    pipeline = Pipeline(data.records["train"], HPARAMS, seed=1, max_tokens=200, replicas=1)
    losses = []
    for batch in pipeline.batches(0, HPARAMS.train_steps):
        assert len(batch.micro_batches) > 2
        losses.append(
            TrainStep.read(step(batch.micro_batches, batch.target_tokens, (1, batch.step))).loss
        )
    assert losses[-1] < losses[0] - 1.0
    np.testing.assert_allclose(
        np.load(folder / "training.npz")["losses"], losses, rtol=0, atol=1e-5
    )
    weights = np.load(folder / "model" / "weights.npz")
    for variable in model.trainable_variables:
        np.testing.assert_allclose(
            weights[variable.path], variable.value, rtol=0, atol=1e-4, err_msg=variable.path
        )


def test_micro_batches_are_padded_to_few_shapes(folder: Path) -> None:
    rows = np.load(folder / "training.npz")["sizes"][:, 0]
    sizes = np.maximum(np.arange(len(rows)), 1)
    assert (rows >= sizes).all() and (rows <= 1.25 * sizes).all() and len(set(rows.tolist())) <= 30


def test_the_weights_become_a_checkpoint(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["to_checkpoint.py", str(folder / "model")])
    runpy.run_path(str(folder / "to_checkpoint.py"))
    model_folder = ModelFolder(folder / "model")
    model = model_folder.model(model_folder.checkpoint())
    weights = np.load(folder / "model" / "weights.npz")
    assert model_folder.hparams == HPARAMS
    for variable in model.trainable_variables:
        np.testing.assert_array_equal(variable.value, weights[variable.path])
    with pytest.raises(SystemExit, match="has a checkpoint already"):
        runpy.run_path(str(folder / "to_checkpoint.py"))
