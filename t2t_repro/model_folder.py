"""A model folder (--output_dir): all that decoding, exporting or resuming needs, and nothing from elsewhere.

hparams.json      how the model is built and trained
problem.json      the problem's name and settings, the precision, and the fingerprint of the training data
vocab.*.model     the vocabulary
model.ckpt-*      checkpoints: weights under the model's own names, optimizer, step, seed, fingerprints
averaged/         what t2t-avg-checkpoints made of them
best/             the checkpoint with the lowest dev loss
metrics.jsonl     what was measured during the training; tensorboard/ has the same, and pictures
part_size.json    --max_tokens_per_replica, as it was found by trying
decoded/, results.json, report.md    what t2t-reproduce made
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_repro import registry
from t2t_repro.checkpoint_reader import assign_weights, checkpoints_in, read_checkpoint, step_of
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams, from_json, to_json
from t2t_repro.problem import Problem
from t2t_repro.progress import say
from t2t_repro.textfile import whole_file

DESCRIPTION = ("hparams.json", "problem.json")
LOCK = ".lock"
"""The file that a training holds a lock on."""
MAY_DIFFER = ("train_steps", "local_eval_frequency", "num_last_checkpoints")
"""Hparams that a training may be continued with other values of."""


@dataclass(frozen=True)
class Origin:
    """What a model was trained on; the content of problem.json."""

    problem: str
    """The problem's name, with "_rev" where it is reversed."""
    settings: dict
    """The problem's settings."""
    vocabulary: str
    """The vocabulary's file name."""
    data_fingerprint: str
    """Twelve hex digits of the training data."""
    random_seed: int
    """What decided initial weights, order of the data and dropout."""
    precision: str = "float32"
    """Of the training."""
    warm_start_from: str = ""
    """Where the initial weights came from, if not from the random seed."""


class ModelFolder:
    """Reads a model folder.

    Args:
        path: the folder.

    Raises:
        UserError: it is no model folder, or a file in it is damaged.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._made: list[str] = []
        """Names of the files that `create` has made, where none were."""
        texts = {}
        for name in DESCRIPTION:
            try:
                texts[name] = (self.path / name).read_text("utf-8")
            except (FileNotFoundError, NotADirectoryError):
                raise UserError(f"{path}: no {name} there, so it is no model folder; t2t-trainer makes one") from None
            except UnicodeDecodeError as error:
                raise UserError(f"{self.path / name}: not UTF-8 (byte {error.start}); restore the file") from None
        self.hparams = from_json(HParams, texts["hparams.json"], str(self.path / "hparams.json"))
        self.origin = from_json(Origin, texts["problem.json"], str(self.path / "problem.json"))
        self.problem: Problem = registry.problem(self.origin.problem, self.origin.settings)
        self.vocabulary = Vocabulary.load(self.path / self.origin.vocabulary)

    @classmethod
    def create(cls, path: str | Path, hparams: HParams, vocabulary: Vocabulary, origin: Origin) -> ModelFolder:
        """Makes a model folder, or takes up the one there where it holds the same.

        One without any weights yet is made anew: its training has failed before it began, and is being mended.

        Raises:
            UserError: the folder there is of another problem, other data or other hparams.
        """
        folder = Path(path)
        made = [name for name in (origin.vocabulary, *DESCRIPTION) if not (folder / name).exists()]
        if (
            any(checkpoints_in(folder / inside) for inside in ("", "averaged", "best"))
            and (folder / "problem.json").exists()
        ):
            there = cls(folder)
            there.refuse_other(hparams, origin, vocabulary)
            if hparams.train_steps != there.hparams.train_steps and "linear_decay" in hparams.learning_rate_schedule:
                say(
                    f"{path}: the rate's linear_decay ends at {hparams.train_steps:,} steps now, not at "
                    f"{there.hparams.train_steps:,}; so the rate jumps"
                )
        else:
            vocabulary.save(folder / origin.vocabulary)
        for name, values in zip(DESCRIPTION, (hparams, origin), strict=True):
            with whole_file(folder / name, "w") as file:
                file.write(to_json(values))
        created = cls(folder)
        created._made = made
        return created

    @staticmethod
    @contextlib.contextmanager
    def locked(path: str | Path) -> Iterator[None]:
        """Keeps other trainings out of a folder, which is made if it is not there.

        On file systems that know no locks it does nothing.

        Raises:
            UserError: another training is at work there.
        """
        Path(path).mkdir(parents=True, exist_ok=True)
        # A file, and open for writing: NFS tells other machines of such locks alone.
        descriptor = os.open(Path(path) / LOCK, os.O_RDWR | os.O_CREAT, 0o666)
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise UserError(
                    f"{path}: another t2t-trainer is at work there; wait for its end, or give another --output_dir"
                ) from None
            except OSError:
                pass
            yield
        finally:
            os.close(descriptor)

    def discard(self) -> None:
        """Deletes what `create` has newly made: for a training that could not begin."""
        for name in (*self._made, LOCK):
            (self.path / name).unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # there are other files
            self.path.rmdir()

    def refuse_other(self, hparams: HParams, origin: Origin, vocabulary: Vocabulary) -> None:
        """Raises UserError where this folder's training was of other things than those given.

        Only `MAY_DIFFER` may differ: a longer training goes on from a shorter one.
        """
        cure = "give another --output_dir, with --warm_start_from to begin with this model's weights"
        if origin.problem != self.origin.problem:
            raise UserError(f"{self.path}: trained on problem {self.origin.problem!r}, not {origin.problem!r}; {cure}")
        if vocabulary.fingerprint != self.vocabulary.fingerprint:
            raise UserError(
                f"{self.path}: trained with the vocabulary of fingerprint {self.vocabulary.fingerprint}, the data's is "
                f"{vocabulary.fingerprint}; {cure}"
            )
        if origin.data_fingerprint != self.origin.data_fingerprint:
            raise UserError(
                f"{self.path}: trained on data of fingerprint {self.origin.data_fingerprint}, the data given is "
                f"{origin.data_fingerprint}; {cure}"
            )
        for name in ("random_seed", "precision", "warm_start_from"):
            before, now = getattr(self.origin, name), getattr(origin, name)
            if before != now:
                raise UserError(f"{self.path}: trained with --{name}={before or None}, not {now or None}; {cure}")
        for name, value in vars(hparams).items():
            if name not in MAY_DIFFER and value != getattr(self.hparams, name):
                raise UserError(
                    f"{self.path}: trained with {name}={getattr(self.hparams, name)} (hparams of fingerprint "
                    f"{hparams_fingerprint(self.hparams)}), not {name}={value} ({hparams_fingerprint(hparams)}); {cure}"
                )

    def checkpoints(self) -> list[str]:
        """The training's checkpoints, oldest first."""
        return checkpoints_in(self.path)

    def checkpoint(self, given: str = "") -> str:
        """The checkpoint to use.

        Args:
            given: --checkpoint_path. If empty: the averaged checkpoint, unless training has gone on since it was made,
                else the latest.

        Raises:
            UserError: there is none.
        """
        if given:
            if not Path(f"{given}.index").is_file():
                raise UserError(f"--checkpoint_path={given}: no {given}.index; give the path up to the step's number")
            return given
        latest, averaged = (checkpoints_in(path)[-1:] for path in (self.path, self.path / "averaged"))
        if averaged and (not latest or step_of(averaged[0]) >= step_of(latest[0])):
            return averaged[0]
        if latest:
            return latest[0]
        raise UserError(f"{self.path}: no checkpoint yet; run t2t-trainer --output_dir={self.path} until it saves one")

    def model(self, checkpoint: str, precision: str = "float32") -> Any:
        """The model with the weights of a checkpoint.

        Raises:
            UserError: the checkpoint does not fit the folder's hparams or vocabulary, or is damaged.
        """
        content = read_checkpoint(checkpoint)
        if content.vocabulary_fingerprint != self.vocabulary.fingerprint:
            raise UserError(
                f"{self.path / self.origin.vocabulary}: fingerprint {self.vocabulary.fingerprint}, but {checkpoint} "
                f"was trained with {content.vocabulary_fingerprint}; put the right vocabulary back"
            )
        from t2t_repro import devices  # imports TensorFlow
        from t2t_repro.models.model import make_model

        devices.use_exact_float32()
        model = make_model(self.hparams, self.vocabulary.size, self.problem.target_space_id, precision)
        assign_weights(model, content, checkpoint, "hparams.json", "put the right hparams.json back")
        return model


def open_folders(output_dirs: str, checkpoint_paths: str = "") -> tuple[list[ModelFolder], list[str]]:
    """The model folders that --output_dir names, separated by commas, and the checkpoint to use of each.

    Args:
        checkpoint_paths: --checkpoint_path: as many, or none.

    Raises:
        UserError: a folder or checkpoint is missing or damaged, or the vocabularies differ.
    """
    paths, given = ([part.strip() for part in text.split(",")] for text in (output_dirs, checkpoint_paths))
    if len(given) == 1 and not given[0]:
        given = [""] * len(paths)
    if len(given) != len(paths):
        raise UserError(f"--checkpoint_path names {len(given)}, --output_dir {len(paths)}; give one for each folder")
    folders = [ModelFolder(path) for path in paths]
    for folder in folders[1:]:
        if folder.vocabulary.fingerprint != folders[0].vocabulary.fingerprint:
            raise UserError(
                f"{folder.path}: its vocabulary, {folder.vocabulary.fingerprint}, is not that of {folders[0].path}, "
                f"{folders[0].vocabulary.fingerprint}; models that decode together need the same"
            )
    return folders, [folder.checkpoint(checkpoint) for folder, checkpoint in zip(folders, given, strict=True)]


def hparams_fingerprint(hparams: HParams) -> str:
    """Twelve hex digits of all that a training may not be continued with another value of.

    A field that has its default counts as if it were not there, so that a field added later changes no fingerprint.
    """
    usual = HParams()
    names = [name for name in vars(hparams) if name not in MAY_DIFFER]
    named = {name: getattr(hparams, name) for name in names if getattr(hparams, name) != getattr(usual, name)}
    return hashlib.sha256(json.dumps(named, sort_keys=True).encode()).hexdigest()[:12]
