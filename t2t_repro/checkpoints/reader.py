"""Finds the checkpoints of a folder, reads a checkpoint, and gives its weights to a model."""

import glob
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from t2t_repro.errors import UserError, first_line, memory_shortage, shortened
from t2t_repro.files.untrusted import require_regular

CHECKPOINT = "model.ckpt"
"""Prefix of checkpoint names: model.ckpt-100 is the checkpoint of step 100."""


@dataclass(frozen=True)
class Checkpoint:
    """The content of a checkpoint, except the optimizer's state."""

    weights: dict[str, np.ndarray]
    """The model's weights, float32 arrays; the keys are the names of the model's variables."""
    vocabulary_fingerprint: str
    """Twelve hex digits that identify the vocabulary the model was trained with."""
    hparams_fingerprint: str = ""
    """Twelve hex digits that identify the hparams (see `model_folder.hparams_fingerprint`); "" for
    an imported model.
    """


def checkpoints_in(folder: Path, prefix: str = CHECKPOINT) -> list[str]:
    """Returns the paths of the checkpoints PREFIX-STEP in a folder, the one with the lowest step
    number first.
    """
    names = [path.name.removesuffix(".index") for path in folder.glob(f"{prefix}-*.index")]
    numbered = [name for name in names if re.fullmatch(rf"{re.escape(prefix)}-[0-9]+", name)]
    return sorted((str(folder / name) for name in numbered), key=step_of)


def step_of(checkpoint: str) -> int:
    return int(checkpoint.rpartition("-")[2])


def find_checkpoint(path: str, flag: str) -> str:
    """Returns the path of the checkpoint that a flag names, which must exist; of a folder,
    `default_checkpoint`.
    """
    if Path(path).is_dir():
        if checkpoint := default_checkpoint(Path(path)):
            return checkpoint
        raise UserError(
            f"{flag}={path}: no checkpoint in this folder; give a checkpoint, e.g. "
            f"M/{CHECKPOINT}-1000"
        )
    if not Path(f"{path}.index").is_file():
        raise UserError(f"{flag}={path}: no {path}.index; give the path up to the step's number")
    return path


def default_checkpoint(folder: Path) -> str:
    """Returns a folder's averaged checkpoint, or its latest checkpoint if that is newer; "" if it
    has neither.
    """
    # Of checkpoints of the same step, `max` returns the first, the average.
    checkpoints = checkpoints_in(folder / "averaged") + checkpoints_in(folder)
    return max(checkpoints, key=step_of, default="")


def read_checkpoint(path: str) -> Checkpoint:
    """Returns the content of a checkpoint.

    Raises UserError if the checkpoint is missing, damaged or one of tensor2tensor, or has weights
    that are not numbers.
    """
    with open_checkpoint(path) as reader:
        if reader.has_tensor("global_step"):
            raise UserError(
                f"{path}: this checkpoint is one of tensor2tensor; import it with t2t-import"
            )
        weights = {}
        for stored_key, dtype in reader.get_variable_to_dtype_map().items():
            if not stored_key.startswith("weights/"):
                continue
            if dtype != "float32":
                raise ValueError(f"{stored_key} is not float32")
            weight = reader.get_tensor(stored_key)
            if not np.isfinite(weight).all():
                raise UserError(
                    f"{path}: training diverged, its weights are not numbers; use an earlier "
                    "checkpoint"
                )
            weights[_variable_name(stored_key)] = weight
        vocabulary = reader.get_tensor(key("vocabulary_fingerprint"))
        hparams_key = key("hparams_fingerprint")
        hparams = reader.get_tensor(hparams_key) if reader.has_tensor(hparams_key) else b""
        return Checkpoint(weights, vocabulary.decode(), hparams.decode())


def read_value(path: str, name: str) -> Any:
    """Returns the value stored under `name` in a checkpoint, or None if the checkpoint or the value
    cannot be read.
    """
    with suppress(UserError), open_checkpoint(path) as reader:
        return reader.get_tensor(key(name))
    return None


def refuse_misfit(model: Any, content: Checkpoint, checkpoint: str) -> None:
    """Raises UserError if the weights of a model and of the checkpoint at a path differ in their
    names or shapes.
    """
    stored = {name: value.shape for name, value in content.weights.items()}
    needed = {variable.path: tuple(variable.shape) for variable in model.trainable_variables}
    for name in sorted(stored.keys() | needed.keys()):
        if stored.get(name) != needed.get(name):
            shape, needed_shape = (
                list(shapes[name]) if name in shapes else "none" for shapes in (stored, needed)
            )
            raise UserError(
                f"{checkpoint}: weight {name} has shape {shape}, the model of the hparams needs "
                f"{needed_shape}; use the hparams and a checkpoint of the same training"
            )


def assign_weights(model: Any, content: Checkpoint, checkpoint: str) -> None:
    """Sets a model's variables to the weights of a checkpoint.

    Raises UserError if they do not fit.
    """
    refuse_misfit(model, content, checkpoint)
    for variable in model.trainable_variables:
        variable.assign(content.weights[variable.path])


def _files(checkpoint: str) -> list[Path]:
    return list(Path(checkpoint).parent.glob(f"{glob.escape(Path(checkpoint).name)}.*"))


class DamagedError(UserError):
    """A checkpoint whose files can be read, but have wrong contents."""


@contextmanager
def open_checkpoint(path: str) -> Iterator[Any]:
    """Returns a context that provides TensorFlow's reader of a checkpoint and turns its errors into
    UserErrors.
    """
    import tensorflow as tf  # imported here, because the import takes seconds

    for file in _files(path):
        require_regular(file)
    try:
        with _plain_path(path) as readable:
            yield tf.train.load_checkpoint(readable)
    except (
        tf.errors.OpError,
        ValueError,
        TypeError,
        AttributeError,
        RuntimeError,
        IndexError,
    ) as error:
        if memory_shortage(error):
            raise
        # A run that deletes or replaces a checkpoint deletes the index first.
        if not Path(f"{path}.index").exists():
            raise UserError(
                f"{path}: this checkpoint is missing; if a training run has just deleted it, run "
                "the same command again"
            ) from None
        _refuse_unreadable(path)
        reason = shortened(first_line(error))
        raise DamagedError(
            f"{path}: this checkpoint is damaged ({reason}); use another one"
        ) from None


def _refuse_unreadable(path: str) -> None:
    """Raises UserError if a file of a checkpoint cannot be read, e.g. because of a disk error or
    its permissions.

    TensorFlow's errors do not distinguish an unreadable file from a damaged checkpoint.
    """
    for file in _files(path):
        try:
            with open(file, "rb") as stream:
                while stream.read(1 << 24):
                    pass
        except OSError as error:
            raise UserError(
                f"{file}: cannot be read ({error.strerror or error}); check the disk and the "
                "permissions, then run the same command again"
            ) from None


@contextmanager
def _plain_path(checkpoint: str) -> Iterator[str]:
    """Returns a context that provides a path of a checkpoint without the characters of patterns.

    TensorFlow takes a path with one of them for a pattern of file names. Links then have other
    names.
    """
    if not set("*?[\\") & set(checkpoint):
        yield checkpoint
        return
    with tempfile.TemporaryDirectory() as folder:
        link = f"{folder}/{CHECKPOINT}"
        for file in _files(checkpoint):
            Path(link + file.suffix).symlink_to(file.absolute())
        yield link


def key(*names: str) -> str:
    """Returns the key under which TensorFlow stores a variable, e.g.
    weights/encoder.Skernel/.ATTRIBUTES/...
    """
    escaped = [name.replace(".", "..").replace("/", ".S") for name in names]
    return f"{'/'.join(escaped)}/.ATTRIBUTES/VARIABLE_VALUE"


def _variable_name(stored_key: str) -> str:
    """Returns the name of the variable that is stored under a key of a weight.

    In keys, ".S" stands for "/" and ".." for a single dot.
    """
    name = stored_key.removeprefix("weights/").removesuffix(key(""))
    return re.sub(r"\.(.)", lambda match: "/" if match[1] == "S" else match[1], name)
