"""Checkpoints of a training: saved whole, restored exactly, averaged."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from t2t_repro.checkpoint_reader import CHECKPOINT, assign_weights, checkpoints_in, read_checkpoint, read_value, step_of
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.model_folder import ModelFolder, hparams_fingerprint
from t2t_repro.progress import say

UNFINISHED = "unfinished-"
"""Before the name of a checkpoint that is being written."""

BEST = "best"
"""The folder, inside a model folder, of the checkpoint with the lowest dev loss."""

BY_REQUEST = "saved_by_request"
"""What a checkpoint says of itself that was saved out of its turn."""


class Checkpoints:
    """Saves and restores the state of a training.

    Weights and optimizer variables are kept under their own names, not by the shape of Python objects, so that other
    programs can read them.

    Args:
        folder: the model folder.
        model: the model.
        optimizer_variables: the optimizer's, built, and what else changes from step to step.
        keep: how many checkpoints stay; older ones are deleted.
    """

    def __init__(self, folder: ModelFolder, model: Any, optimizer_variables: list[Any], keep: int) -> None:
        self._folder, self._keep = folder, keep
        self._step = tf.Variable(0, dtype=tf.int64)
        self._by_request = tf.Variable(False)
        self._passing = ""
        """The checkpoint that goes when the next one is there."""
        self._same = {
            "hparams_fingerprint": hparams_fingerprint(folder.hparams),
            "vocabulary_fingerprint": folder.vocabulary.fingerprint,
            "data_fingerprint": folder.origin.data_fingerprint,
            "random_seed": str(folder.origin.random_seed),
        }
        """What a training cannot go on with another of."""
        self._saved = {name: tf.Variable(value) for name, value in self._same.items()}
        self._state = {
            "weights": by_name(model.trainable_variables),
            "optimizer": by_name(optimizer_variables),
            "step": self._step,
            **self._saved,
        }
        self._checkpoint = tf.train.Checkpoint(**self._state, **{BY_REQUEST: self._by_request})

    def restore(self, step: int | None = None) -> int:
        """Restores the latest checkpoint that is whole; returns its step, or 0 where there is none.

        A damaged one is named, and moved aside so that nothing takes it for the latest.

        Args:
            step: restore that one, as another worker did.

        Raises:
            UserError: none is whole, the disk does not give the latest, or that is of a training with other hparams,
                data, vocabulary or seed.
        """
        found = self._folder.checkpoints()
        if step is not None:
            found = [path for path in found if step_of(path) == step]
        damaged = []
        for path in reversed(found):
            try:
                status = tf.train.Checkpoint(**self._state).read(path).assert_existing_objects_matched()
                status.expect_partial()  # or TensorFlow says later that BY_REQUEST was not restored
            except tf.errors.ResourceExhaustedError:
                raise
            except (tf.errors.OpError, ValueError, IndexError) as error:
                refuse_unreadable(path)
                say(f"{path}: damaged ({_reason(error)}); trying the one before")
                damaged.append(path)
                continue
            except AssertionError:
                raise UserError(
                    f"{path}: lacks what this training keeps; it was made by another version of t2t-trainer or with "
                    f"another --precision; take its weights with --warm_start_from={path} and another --output_dir"
                ) from None
            self._compare(path)
            for each in damaged:
                set_aside(each)
            for older in found[: found.index(path)]:
                if was_by_request(older):  # the process that was to delete it was killed
                    remove(older)
            self._passing = path if was_by_request(path) else ""
            return int(self._step.numpy())
        if found:
            raise UserError(
                f"{self._folder.path}: none of its {len(found)} checkpoints is whole; give another --output_dir"
            )
        return 0

    def _compare(self, path: str) -> None:
        """Raises UserError where the checkpoint just read is of another training."""
        for name, now in self._same.items():
            saved = self._saved[name].numpy().decode()
            if saved != now:
                raise UserError(
                    f"{path}: trained with {name.replace('_', ' ')} {saved}, now it is {now}; go on with the same, or "
                    f"take its weights with --warm_start_from={path} and another --output_dir"
                )

    def save(self, step: int, by_request: bool = False) -> str:
        """Saves the state after `step` steps; returns the checkpoint's path.

        Args:
            by_request: it comes out of its turn, since the training is to stop. It goes when the next one comes, so
                that an average is of the same checkpoints as if the training had never stopped.

        Raises:
            UserError: the disk is full or the folder cannot be written; earlier checkpoints stay whole.
        """
        self._by_request.assign(by_request)
        path = self._write(self._folder.path, step)
        if self._passing not in ("", path):
            remove(self._passing)
        self._passing = path if by_request else ""
        for older in self._folder.checkpoints()[: -self._keep]:
            remove(older)
        return path

    def save_best(self, step: int) -> str:
        """Saves the state in the folder of the best checkpoint, in place of the one there; returns its path.

        Raises:
            UserError: as `save` does.
        """
        best = self._folder.path / BEST
        self._by_request.assign(False)
        before = checkpoints_in(best)
        path = self._write(best, step)
        for older in before:
            if older != path:
                remove(older)
        return path

    def _write(self, folder: Path, step: int) -> str:
        self._step.assign(step)
        return write_whole(self._checkpoint, folder, step)


def _reason(error: Exception) -> str:
    """One line, without where in TensorFlow it was."""
    text = str(error).strip()
    return re.sub(r"\{\{.*\}\} | \[Op:.*", "", text.splitlines()[0]) if text else type(error).__name__


def was_by_request(path: str) -> bool:
    """Whether a checkpoint was saved out of its turn, since the training was to stop; no where it cannot be read."""
    return bool(read_value(path, BY_REQUEST))


def refuse_unreadable(path: str) -> None:
    """Raises UserError where the disk does not give a checkpoint's files, which may be whole.

    TensorFlow's errors do not tell that from damage.
    """
    for file in sorted(Path(path).parent.glob(f"{Path(path).name}.*")):
        try:
            with open(file, "rb") as opened:
                while opened.read(1 << 24):
                    pass
        except OSError as error:
            raise UserError(
                f"{file}: cannot be read ({error.strerror or error}); see to the disk and its permissions, then run "
                "the same command again"
            ) from None


def remove(path: str) -> None:
    """Deletes a checkpoint, its index first, without which it is none."""
    for file in (Path(f"{path}.index"), *sorted(Path(path).parent.glob(f"{Path(path).name}.data-*"))):
        file.unlink(missing_ok=True)


def set_aside(path: str) -> None:
    """Gives a damaged checkpoint's files names under which nothing takes them for one."""
    for file in sorted(Path(path).parent.glob(f"{Path(path).name}.*")):
        file.rename(file.with_name(f"damaged-{file.name}"))


def remove_unfinished(folder: Path) -> None:
    """Deletes what a process that was killed while it wrote left behind: files of a checkpoint without an index."""
    for path in folder.glob(f".*.{'?' * 8}"):  # as `whole_file` names what it writes
        path.unlink(missing_ok=True)
    for place in (folder, folder / BEST):
        whole = {Path(path).name for path in checkpoints_in(place)}
        for path in place.glob(f"{UNFINISHED}{CHECKPOINT}-*"):
            discard(path)
        for path in place.glob(f"{CHECKPOINT}-*.data-*"):
            if path.name.partition(".data-")[0] not in whole:
                discard(path)


def discard(path: Path) -> None:
    """Deletes a file, or a folder with all that is in it."""
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def warm_start(model: Any, vocabulary: Vocabulary, given: str) -> str:
    """Gives a model the weights of another training's checkpoint; returns the checkpoint's path.

    Args:
        given: --warm_start_from: a checkpoint's path, or a model folder, whose averaged or latest one it is.

    Raises:
        UserError: no checkpoint there, another vocabulary, or weights of other names or shapes.
    """
    path = ModelFolder(given).checkpoint() if Path(given).is_dir() else given
    content = read_checkpoint(path)
    cure = "t2t-datagen --vocab_file makes data with that model's vocabulary"
    if content.vocabulary_fingerprint != vocabulary.fingerprint:
        raise UserError(
            f"--warm_start_from={given}: trained with the vocabulary of fingerprint {content.vocabulary_fingerprint}, "
            f"the data's is {vocabulary.fingerprint}; {cure}"
        )
    assign_weights(model, content, path, "the hparams given", "give the --hparams_set and --hparams of its training")
    return path


def by_name(variables: list[Any]) -> dict[str, Any]:
    """TensorFlow's variables of Keras's, by their paths."""
    named = {variable.path: variable.value for variable in variables}
    if len(named) != len(variables):
        raise ValueError("two variables have the same name; name the model's layers apart")
    return named


def write_whole(checkpoint: Any, folder: Path, step: int) -> str:
    """Writes a checkpoint, which is there whole or not at all; returns its path.

    Raises:
        UserError: the disk is full or the folder cannot be written.
    """
    path = folder / f"{CHECKPOINT}-{step}"
    beside = f"{UNFINISHED}{path.name}"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        checkpoint.write(str(folder / beside))
        written = sorted(folder.glob(f"{beside}.*"))
        (folder / f"{path.name}.index").unlink(missing_ok=True)  # of another with this name, whose data goes first
        for file in written:  # or a power failure may take this checkpoint after those before it were removed
            sync(file)
        # TensorFlow writes an index in place: a kill may leave it empty. Under its name it comes last, and whole.
        for file in written:
            file.replace(folder / file.name.replace(beside, path.name))
        sync(folder)
    except (tf.errors.OpError, OSError) as error:
        for file in folder.glob(f"{beside}[._]*"):
            discard(file)
        raise UserError(
            f"{folder}: checkpoint {step} cannot be written ({_reason(error)}); free space or choose another folder, "
            "then run the same command again"
        ) from None
    return str(path)


def sync(path: Path) -> None:
    """Has the disk write what it holds of a file, or of a folder's names.

    Raises:
        OSError: it cannot.
    """
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def average_checkpoints(folder: ModelFolder, last: int) -> tuple[str, list[str]]:
    """Averages the weights of the last `last` checkpoints (section 6.1).

    The result lies in the folder's "averaged", holds weights, step and fingerprint, and is taken by decoder and
    exporter like any other checkpoint.

    Args:
        last: how many; 0 is what the hparams say, or all where there are fewer.

    Returns:
        The path of the averaged checkpoint, and the paths of those that went in.

    Raises:
        UserError: fewer checkpoints than asked for, one is damaged, or the disk is full.
    """
    found = folder.checkpoints()
    wanted = last or folder.hparams.num_last_checkpoints
    if not found:
        folder.checkpoint()  # raises, and says how to make one
    if not last and len(found) < wanted:
        say(f"{folder.path}: {len(found)} checkpoints, not the {wanted} of its hparams set; averaging those")
        wanted = len(found)
    if not 1 <= wanted <= len(found):
        raise UserError(
            f"{folder.path}: holds {len(found)} checkpoints, not --num_last_checkpoints={last}; "
            "train longer, save more often, or average fewer"
        )
    paths = found[-wanted:]
    sums: dict[str, np.ndarray] = {}
    for path in paths:
        content = read_checkpoint(path)
        if content.vocabulary_fingerprint != folder.vocabulary.fingerprint or (
            sums and sums.keys() != content.weights.keys()
        ):
            raise UserError(f"{path}: of another model than the rest of {folder.path}; move it away")
        for name, value in content.weights.items():
            sums[name] = sums.get(name, 0.0) + value.astype(np.float64)
    step = step_of(paths[-1])
    averaged = folder.path / "averaged"
    checkpoint = tf.train.Checkpoint(
        weights={name: tf.Variable((total / wanted).astype(np.float32)) for name, total in sums.items()},
        step=tf.Variable(step, dtype=tf.int64),
        averaged=tf.Variable(wanted, dtype=tf.int64),
        vocabulary_fingerprint=tf.Variable(folder.vocabulary.fingerprint),
    )
    return write_whole(checkpoint, averaged, step), paths


def averaged_count(path: str) -> int:
    """How many checkpoints the averaged one at `path` is the mean of; 0 where there is none, or none that is whole."""
    return int(read_value(path, "averaged") or 0)
