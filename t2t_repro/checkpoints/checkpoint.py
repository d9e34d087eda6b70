"""Saves and restores the checkpoints of a training run."""

import shlex
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import tensorflow as tf

from t2t_repro.checkpoints import reader
from t2t_repro.checkpoints.adaptation import OTHER, SAME, SPELLED, adapt
from t2t_repro.checkpoints.checkpoint_files import BEST, keep_only, set_aside, write_checkpoint
from t2t_repro.checkpoints.model_folder import (
    ModelFolder,
    hparams_fingerprint,
    hparams_of,
    vocabulary_of,
)
from t2t_repro.console.progress import say
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import subfolder
from t2t_repro.hparam import HParams

BY_REQUEST = "saved_by_request"
"""Name of the boolean variable that is True in a checkpoint that was saved only because a signal
stopped the run.
"""


def identity_of(folder: ModelFolder) -> dict[str, str]:
    """Returns the fingerprints and the seed of a run. It resumes only from a checkpoint that has
    the same values.
    """
    return {
        "hparams_fingerprint": hparams_fingerprint(folder.hparams),
        "vocabulary_fingerprint": folder.vocabulary.fingerprint,
        "data_fingerprint": folder.origin.data_fingerprint,
        "random_seed": str(folder.origin.random_seed),
    }


class Checkpoints:
    """Saves and restores the state of a training run.

    A checkpoint stores each weight and optimizer variable under its Keras path, not under the
    attribute names of Python objects, so that other programs can find the variables.

    `optimizer_variables` are all variables that training steps change, except weights. The
    optimizer must be built. `keep` is the number of checkpoints to keep; older checkpoints are
    deleted, except the steps that `keep_also` names.
    """

    def __init__(
        self, folder: ModelFolder, model: Any, optimizer_variables: list[Any], keep: int
    ) -> None:
        self._folder = folder
        self._best = subfolder(folder.path, BEST)
        self._keep = keep
        self._step = tf.Variable(0, dtype=tf.int64)
        self._by_request = tf.Variable(False)
        self._best_steps: frozenset[int] = frozenset()
        self._temporary = ""
        """Path of the last checkpoint if it was saved by request, else empty. The next save deletes
        that checkpoint.
        """
        self._identity = identity_of(folder)
        self._weights = model.trainable_variables
        self._optimizer_variables = optimizer_variables
        self._checkpoint = tf.train.Checkpoint(
            weights={variable.path: variable.value for variable in self._weights},
            optimizer={variable.path: variable.value for variable in optimizer_variables},
            step=self._step,
            **{name: tf.Variable(value) for name, value in self._identity.items()},
            **{BY_REQUEST: self._by_request},
        )

    def restore(self) -> int:
        """Restores the latest undamaged checkpoint; returns its step, or 0 if the folder has no
        checkpoint.

        Prints a line for each damaged checkpoint, and renames its files so that no program reads
        them as a checkpoint.

        Raises UserError if all checkpoints are damaged, or the latest cannot be read or belongs to
        another run.
        """
        checkpoints = self._folder.checkpoints()
        damaged = []
        step = 0
        while checkpoints:
            try:
                step = self._read(checkpoints[-1])
                break
            except reader.DamagedError:
                damaged.append(checkpoints.pop())
                say(f"{damaged[-1]}: damaged; trying the one before")
        if damaged and not checkpoints:
            raise UserError(
                f"{self._folder.path}: all checkpoints ({len(damaged)}) are damaged; give another "
                "--output_dir"
            )
        for path in damaged:
            set_aside(path)
        # A process that was killed may have left older checkpoints that were saved by request.
        temporary = [path for path in checkpoints if reader.read_value(path, BY_REQUEST)]
        latest = checkpoints[-1] if checkpoints else ""
        kept = [path for path in checkpoints if path == latest or path not in temporary]
        keep_only(self._folder.path, kept)
        self._temporary = latest if latest in temporary else ""
        return step

    def restore_step(self, step: int) -> None:
        """Restores the checkpoint of `step`, which the chief has restored. Workers other than the
        chief call this.
        """
        self._read(str(self._folder.path / f"{reader.CHECKPOINT}-{step}"))

    def _read(self, path: str) -> int:
        """Reads a checkpoint into the variables of this run; returns its step."""
        variables = {reader.key("weights", each.path): each for each in self._weights} | {
            reader.key("optimizer", each.path): each for each in self._optimizer_variables
        }
        with reader.open_checkpoint(path) as stored:
            # A checkpoint of an imported model has weights and no optimizer variables.
            if not all(map(stored.has_tensor, [*variables, reader.key("step")])):
                raise UserError(
                    f"{path}: lacks variables of this run; take its weights with "
                    f"--warm_start_from={shlex.quote(path)} and another --output_dir"
                )
            for name, value in self._identity.items():
                saved = stored.get_tensor(reader.key(name)).decode()
                if saved != value:
                    raise UserError(
                        f"{path}: trained with {name.replace('_', ' ')} {saved}, now it is "
                        f"{value}; put the checkpoints of this folder's own training back, or "
                        "give another --output_dir"
                    )
            # TensorFlow's own part is read only to raise an error if the file is cut there.
            stored.get_tensor("_CHECKPOINTABLE_OBJECT_GRAPH")
            for stored_key, variable in variables.items():
                variable.assign(stored.get_tensor(stored_key))
            return int(stored.get_tensor(reader.key("step")))

    def save(self, step: int, by_request: bool = False) -> str:
        """Saves the state after `step` steps; returns the checkpoint's path. If that fails, earlier
        ones stay.

        If `by_request`, the checkpoint is saved only because a signal stopped the run. The next
        save then deletes it, so that checkpoint averaging uses checkpoints of the same steps as in
        a run that never stopped.
        """
        path = self._write(self._folder.path, step, by_request)
        checkpoints = [
            saved
            for saved in self._folder.checkpoints()
            if saved == path or saved != self._temporary
        ]
        self._temporary = path if by_request else ""
        self._keep_only(checkpoints)
        return path

    def keep_also(self, steps: Iterable[int]) -> None:
        """Deletes all checkpoints except the latest ones and the checkpoints of `steps`. From now
        on, each save does the same.
        """
        self._best_steps = frozenset(steps)
        self._keep_only(self._folder.checkpoints())

    def _keep_only(self, checkpoints: list[str]) -> None:
        """Deletes all checkpoints except the latest of `checkpoints` and the best of them."""
        older = checkpoints[: -self._keep]
        best = [path for path in older if reader.step_of(path) in self._best_steps]
        keep_only(self._folder.path, best + checkpoints[-self._keep :])

    def save_best(self, step: int) -> str:
        """Replaces the best checkpoint by the model's state after `step` steps; returns the new
        checkpoint's path.
        """
        path = self._write(self._best, step, by_request=False)
        keep_only(self._best, [path])
        return path

    def _write(self, folder: Path, step: int, by_request: bool) -> str:
        self._step.assign(step)
        self._by_request.assign(by_request)
        return write_checkpoint(self._checkpoint, folder, step)


def initial_weights(
    model: Any, vocabulary: Vocabulary, source: str
) -> tuple[str, reader.Checkpoint]:
    """Returns the checkpoint for a warm start of a model: its path and its content.

    `source` is the value of --warm_start_from: a checkpoint, or a folder with checkpoints, e.g. a
    model folder. In a folder, the averaged checkpoint is used, or the latest checkpoint if that is
    newer. If it was trained with another vocabulary, its embeddings are adapted (see `adapt`), and
    a line for each is printed.

    Raises UserError if there is no checkpoint, if its vocabulary is unknown or has other pieces
    than this one, or if it has weights of other names or shapes.
    """
    path = reader.find_checkpoint(source, "--warm_start_from")
    content = reader.read_checkpoint(path)
    if content.vocabulary_fingerprint != vocabulary.fingerprint:
        old = vocabulary_of(path)
        cure = "make the data with that model's vocabulary: t2t-datagen --vocab_file"
        if not old or old.fingerprint != content.vocabulary_fingerprint:
            raise UserError(
                f"--warm_start_from={source}: trained with a vocabulary of fingerprint "
                f"{content.vocabulary_fingerprint}, which its folder lacks, and the data has "
                f"another one; {cure}"
            )
        try:
            weights, counts = adapt(content.weights, old, vocabulary)
        except UserError as error:
            raise UserError(f"--warm_start_from={source}: {error}; {cure}") from None
        content = replace(content, weights=weights)
        for name, count in counts.items():
            say(
                f"{name}: of {count.total():,} pieces of the new vocabulary, {count[SAME]:,} keep "
                f"their rows, {count[SPELLED]:,} get the mean of pieces that spell them, "
                f"{count[OTHER]:,} the mean of all pieces"
            )
    reader.refuse_misfit(model, content, path)
    return path, content


def warm_start(model: Any, vocabulary: Vocabulary, source: str) -> str:
    """Copies the weights that `initial_weights` returns into a model; returns the checkpoint's
    path.
    """
    path, content = initial_weights(model, vocabulary, source)
    reader.assign_weights(model, content, path)
    return path


def other_hparams(checkpoint: str, hparams: HParams) -> dict[str, Any]:
    """Returns the hparams with which a checkpoint was trained and that differ now, as {name:
    value}, of those that change what the model computes, but not its weights' names and shapes.

    Returns {} if the checkpoint's folder has no hparams.json.
    """
    if not (trained := hparams_of(checkpoint)):
        return {}
    values = {name: getattr(trained, name) for name in trained.affecting("outputs")}
    return {name: value for name, value in values.items() if value != getattr(hparams, name, None)}
