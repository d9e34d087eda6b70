"""Computes with JAX the values that tests/system/test_jax.py compares with those of TensorFlow and
tensor2tensor.

Usage: python jax_process.py FOLDER, in a process in which JAX can be imported, but not TensorFlow.
FOLDER holds hparams.json, the data directory "data", and the program train_jax.py of docs/jax.md.
"""

import importlib
import pkgutil
import runpy
import sys
from functools import partial
from pathlib import Path
from typing import Any

import jax
import keras
import numpy as np
from keras import ops

from family_examples import EXAMPLES, INPUTS, SEED, TARGETS, example_model, training_loss
from golden_model import golden_model, load
from t2t_repro import layers, models, registry
from t2t_repro.data.dataset import load_data
from t2t_repro.files.json_file import from_json
from t2t_repro.hparam import HParams
from t2t_repro.keras.transformer import Transformer
from t2t_repro.models.model import make_model
from t2t_repro.training.loss import smoothed_cross_entropy


def golden_values() -> dict[str, Any]:
    """Returns values of the model with tensor2tensor's weights: logits, losses and gradients."""
    model = golden_model()
    golden = load("model_v1_postnorm_fwd")
    inputs = golden["inputs"]
    targets = golden["targets"]
    variables = model.trainable_variables
    tokens = (targets != 0).sum()

    def loss_and_logits(weights: list[Any]) -> tuple[Any, Any]:
        logits, _ = model.stateless_call(weights, [], inputs, targets)
        return smoothed_cross_entropy(logits, targets, 0.1) / tokens, logits

    @jax.jit
    def compute(weights: list[Any]) -> tuple[dict[str, Any], list[Any]]:
        (loss, logits), gradients = jax.value_and_grad(loss_and_logits, has_aux=True)(weights)
        eval_loss = smoothed_cross_entropy(logits, targets, 0.0) / tokens
        return {"train_loss": loss, "eval_loss": eval_loss, "logits": logits}, gradients

    values, gradients = compute([variable.value for variable in variables])
    return values | {
        variable.path: gradient for variable, gradient in zip(variables, gradients, strict=True)
    }


def functional_values(path: Path) -> dict[str, Any]:
    """Writes a functional model with tensor2tensor's weights to a .keras file. Returns the loss in
    `fit`.
    """
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    golden = load("model_v1_postnorm_fwd")
    model = keras.Model(inputs, golden_model(Transformer)(*inputs))
    x = golden["inputs"]
    y = golden["targets"]
    model.save(path)
    model.compile(
        "sgd", keras.losses.SparseCategoricalCrossentropy(True, reduction="mean_with_sample_weight")
    )
    return model.fit([x, y], y, sample_weight=y != 0, batch_size=len(y), verbose=0).history


def family_values(family: str) -> dict[str, Any]:
    """Returns the loss and logits of a family's model with dropout, and the gradients of its
    weights.
    """
    model = example_model(family)

    def compute(weights: list[Any]) -> Any:
        arguments = (weights, [], INPUTS, TARGETS, SEED)
        logits, _, losses = model.stateless_call(*arguments, return_losses=True)
        return training_loss(logits, losses), logits

    weights, paths = zip(
        *((variable.value, variable.path) for variable in model.trainable_variables), strict=True
    )
    (loss, logits), gradients = jax.jit(jax.value_and_grad(compute, has_aux=True))(list(weights))
    return {"loss": loss, "logits": logits} | dict(zip(paths, gradients, strict=True))


def decoded(model: Any) -> dict[str, Any]:
    """Returns the logits [1, 6, V] of a target by `decode_step`, and by `decode`."""
    memory = model.encode(np.array([[7, 8, 1]]))
    targets = np.array([[4, 5, 6, 7, 8, 1]])
    previous = np.pad(targets, ((0, 0), (1, 0)))
    cache = model.start(1)
    logits = []
    for t in range(targets.shape[1]):
        step_logits, cache = model.decode_step(previous[:, t : t + 1], t, cache, memory)
        logits.append(step_logits)
    return {"by steps": ops.concatenate(logits, axis=1), "at once": model.decode(targets, memory)}


def save(path: Path, tensors: dict[str, Any]) -> None:
    """Writes tensors to a file that numpy.load reads."""
    np.savez(path, **{name: np.asarray(tensor) for name, tensor in tensors.items()})


def main(folder: Path) -> None:
    """Writes the values into files in `folder`, and runs train_jax.py."""
    for package in (layers, models):
        for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    save(folder / "golden.npz", golden_values())
    save(folder / "functional.npz", functional_values(folder / "golden.keras"))
    for family in EXAMPLES:
        save(folder / f"{family}.npz", family_values(family))

    hparams = from_json(HParams, (folder / "hparams.json").read_text("utf-8"), "hparams.json")
    data_dir = str(folder / "data")
    steps = str(hparams.train_steps)
    keras.utils.set_random_seed(1)  # as in train_jax.py
    model = make_model(hparams, load_data(data_dir, "text_files").vocabulary.size)
    save(
        folder / "initial.npz",
        {variable.path: variable.value for variable in model.trainable_variables},
    )
    save(folder / "decoded.npz", jax.jit(partial(decoded, model))())

    registry.register_hparams("jax_test")(lambda: hparams)
    sys.argv = ["train_jax.py", data_dir, "text_files", "jax_test", steps, str(folder / "model")]
    example = runpy.run_path(str(folder / "train_jax.py"), run_name="__main__")
    sizes = [
        example["padded"](*[np.ones((size, 1), np.int32)] * 2, np.arange(size))[0].shape
        for size in range(300)
    ]
    save(folder / "training.npz", {"losses": example["losses"], "sizes": sizes})


if __name__ == "__main__":
    main(Path(sys.argv[1]))
