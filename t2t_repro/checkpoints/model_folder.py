"""A model folder (--output_dir) has everything that decoding, exporting and resuming need.

hparams.json      hyper-parameters of the model and its training
problem.json      the problem's name and settings, precision, random seed, and fingerprint of the training data
vocab.*.model     the vocabulary
model.ckpt-*      checkpoints: weights under the model's variable names, optimizer state, step, random seed, and the
                  fingerprints of hparams, vocabulary and data
checkpoint        TensorFlow's list of the model.ckpt-* files, for tf.train.latest_checkpoint
averaged/         the mean of several checkpoints, written by t2t-avg-checkpoints
best/             the checkpoint with the lowest dev loss
metrics.jsonl     measurements during training; tensorboard/ has the same measurements, and pictures
decoded/, results.json, report.md    output of t2t-reproduce
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_repro import registry
from t2t_repro.checkpoints.reader import (
    WRONG_CHECKPOINT,
    Checkpoint,
    assign_weights,
    checkpoints_in,
    default_checkpoint,
    find_checkpoint,
    read_checkpoint,
)
from t2t_repro.console.progress import say
from t2t_repro.data.vocabularies.kinds import check_vocabulary_name, load_vocabularies
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, shortened
from t2t_repro.files.json_file import from_json, to_json
from t2t_repro.files.locks import locked
from t2t_repro.files.textfile import whole_file
from t2t_repro.files.untrusted import read_text
from t2t_repro.hparam import HParams
from t2t_repro.models.size import parameters
from t2t_repro.problem import Problem

DESCRIPTION = ("hparams.json", "problem.json")
LOCK = ".lock"
"""Name of the file that t2t-trainer and t2t-reproduce keep locked, so that no second run uses the folder."""
MAY_DIFFER = ("train_steps", "local_eval_frequency", "num_last_checkpoints")
"""Hparams that may change when training resumes."""
WEIGHTS_DEPEND_ON = (
    "model", "num_hidden_layers", "num_encoder_layers", "num_decoder_layers", "hidden_size", "filter_size",
    "attention_key_channels", "attention_value_channels", "norm_before", "pos", "self_attention_type",
    "max_relative_position", "shared_embedding", "shared_embedding_and_softmax_weights", "use_target_space_embedding",
    "moe_num_experts", "convolutions", "kernel_height", "output_embedding_size", "embedding_size", "cell_size",
)  # fmt: skip
"""Hparams that change the names or shapes of a model's weights. If pos is "emb", or in ConvS2S, max_length does, too;
if max_relative_position is not 0, num_heads does."""


@dataclass(frozen=True)
class Origin:
    """The problem, data and random seed that a model was trained with: the content of problem.json."""

    problem: str
    """Name of the problem, with "_rev" if it is reversed."""
    settings: dict
    """Values of the problem's settings, by name."""
    vocabulary: str
    """File name of the vocabulary of the targets."""
    data_fingerprint: str
    """Twelve hex digits that identify the training data."""
    random_seed: int
    """Seed of the initial weights, the order of the data and dropout."""
    precision: str = "float32"
    """Value of --precision in training."""
    warm_start_from: str = ""
    """Value of --warm_start_from: model folder or checkpoint with the initial weights; "" for random weights."""
    data_dir: str = ""
    """Absolute path of the data directory of the last training run; "" if an older version wrote the file."""
    source_vocabulary: str = ""
    """File name of the vocabulary of the sources; "" if sources and targets have the same vocabulary."""

    def __post_init__(self) -> None:
        for name in self.vocabularies:
            check_vocabulary_name(name)

    @property
    def vocabularies(self) -> list[str]:
        """File names of the vocabularies: that of the targets, and that of the sources if it is another one."""
        return [self.vocabulary, *filter(None, [self.source_vocabulary])]


class ModelFolder:
    """A folder with a trained model. The module's docstring lists the files.

    Args:
        path: the folder.
        problem: the folder's problem; None to create it from problem.json.
        vocabulary: the folder's vocabulary; None to load it.

    Raises:
        UserError: `path` is not a model folder, or a file in it is damaged.
    """

    def __init__(self, path: str | Path, problem: Problem | None = None, vocabulary: Vocabulary | None = None) -> None:
        self.path = Path(path)
        self._created: list[str] = []
        """Names of the files that `create` has added to the folder."""
        texts = {}
        for name in DESCRIPTION:
            try:
                texts[name] = read_text(self.path / name)
            except (FileNotFoundError, NotADirectoryError):
                cure = "run t2t-trainer"
                if checkpoints_in(self.path):
                    cure = f"if tensor2tensor trained the model, run t2t-import --t2t_model={shlex.quote(str(path))}"
                raise UserError(f"{path}: no {name} there, so this is not a model folder; {cure}") from None
        self.hparams = from_json(HParams, texts["hparams.json"], str(self.path / "hparams.json"))
        self.origin = from_json(Origin, texts["problem.json"], str(self.path / "problem.json"))
        if not problem:
            self._require_registered("problem", self.origin.problem, registry.has_problem)
        self.problem = problem or registry.problem(self.origin.problem, self.origin.settings)
        self.vocabulary = vocabulary or load_vocabularies(
            self.path, self.origin.vocabulary, self.origin.source_vocabulary
        )

    @classmethod
    def create(
        cls, path: str | Path, hparams: HParams, vocabulary: Vocabulary, origin: Origin, problem: Problem | None = None
    ) -> ModelFolder:
        """Returns the model folder at `path`, to start a training run in it or to resume one.

        If the folder has no checkpoints, there is nothing to resume: `create` writes its files or overwrites them.
        Otherwise, `create` writes nothing; call `save_description` when the run has restored a checkpoint.

        Raises:
            UserError: an existing folder with checkpoints was trained on another problem or data, or with other
                hparams; or a file cannot be written, and the new files are deleted.
        """
        folder = Path(path)
        files = cls.first_files(hparams, vocabulary, origin)
        new_files = [name for name in files if not (folder / name).exists()]
        has_checkpoints = any(checkpoints_in(folder / place) for place in ("", "averaged", "best"))
        if has_checkpoints and (folder / "problem.json").exists():
            existing = cls(folder, problem)
            existing.refuse_other(hparams, origin, vocabulary)
            if hparams.train_steps != existing.hparams.train_steps and "linear_decay" in hparams.learning_rate_schedule:
                say(
                    f"{path}: linear_decay now ends at step {hparams.train_steps:,}, not at "
                    f"{existing.hparams.train_steps:,}, so the learning rate jumps"
                )
            existing.hparams, existing.origin = hparams, origin
            return existing
        try:
            for name, contents in files.items():
                with whole_file(folder / name) as file:
                    file.write(contents)
        except UserError:  # e.g. the disk is full
            _discard(folder, new_files)
            raise
        created = cls(folder, problem, vocabulary)
        created._created = new_files
        return created

    def save_description(self) -> None:
        """Writes hparams.json and problem.json. Raises UserError if they cannot be written."""
        files = self.first_files(self.hparams, self.vocabulary, self.origin)
        for name in DESCRIPTION:
            with whole_file(self.path / name) as file:
                file.write(files[name])

    @staticmethod
    def first_files(hparams: HParams, vocabulary: Vocabulary, origin: Origin) -> dict[str, bytes]:
        """Returns the contents of the files that `create` writes, by name."""
        descriptions = (to_json(values).encode() for values in (hparams, origin))
        models = [vocabulary.model, vocabulary.sources.model][: len(origin.vocabularies)]
        names = (*origin.vocabularies, *DESCRIPTION)
        return dict(zip(names, (*models, *descriptions), strict=True))

    @staticmethod
    @contextlib.contextmanager
    def locked(path: str | Path) -> Iterator[None]:
        """Returns a context in which no other t2t-trainer or t2t-reproduce can use the model folder `path`.

        Creates the folder if necessary.

        Raises UserError if another run is using the folder, or if the folder cannot be written.
        """
        refusal = (
            f"{path}: another t2t-trainer or t2t-reproduce is at work there; wait for its end, or give another "
            "--output_dir"
        )
        with locked(Path(path) / LOCK, refusal, "choose another --output_dir"):
            yield

    def description_files(self) -> list[Path]:
        """Returns the paths of the folder's vocabularies, hparams.json and problem.json."""
        return [self.path / name for name in (*self.origin.vocabularies, *DESCRIPTION)]

    def discard(self) -> None:
        """Undoes `create` for a run that cannot begin: deletes the new files, and the folder if it is then empty."""
        _discard(self.path, self._created)

    def refuse_other(self, hparams: HParams, origin: Origin, vocabulary: Vocabulary) -> None:
        """Raises UserError if a run with these arguments may not resume the training of this folder's model.

        The hparams in `MAY_DIFFER` may have other values; for example, a larger train_steps continues the training.
        """
        old = self.origin
        traits: list[tuple[str, Any, Any]] = [
            ("on problem ", repr(old.problem), repr(origin.problem)),
            ("with the vocabulary of fingerprint ", self.vocabulary.fingerprint, vocabulary.fingerprint),
            ("on data of fingerprint ", old.data_fingerprint, origin.data_fingerprint),
            ("with --random_seed=", old.random_seed, origin.random_seed),
            ("with --precision=", old.precision, origin.precision),
        ]
        changed = [name for name, value in vars(hparams).items() if value != getattr(self.hparams, name)]
        for name in (name for name in changed if name not in MAY_DIFFER):
            old_value, new_value = (
                f"{name}={getattr(values, name)} (hparams of fingerprint {hparams_fingerprint(values)})"
                for values in (self.hparams, hparams)
            )
            traits.append(("with ", old_value, new_value))
        cure = self._warm_start_advice(hparams, vocabulary)
        for trait, old_value, new_value in traits:
            if old_value != new_value:
                change = f"trained {trait}{old_value}, not {new_value}"
                raise UserError(f"{self.path}: {change}; give another --output_dir{cure}")
        starts = (old.warm_start_from, origin.warm_start_from)
        old_start, new_start = (os.path.normpath(path) if path else "" for path in starts)
        if old_start != new_start:
            flag = f"give --warm_start_from={shlex.quote(old_start)} again" if old_start else "omit --warm_start_from"
            start = f"with --warm_start_from={old_start}" if old_start else "without --warm_start_from"
            raise UserError(f"{self.path}: trained {start}; {flag}, or give another --output_dir")

    def _warm_start_advice(self, hparams: HParams, vocabulary: Vocabulary) -> str:
        """Returns the end of an error's advice: how a run with other settings can begin with this model's weights."""
        names = [*WEIGHTS_DEPEND_ON]
        names += ["max_length"] if hparams.pos == "emb" or hparams.model == "convs2s" else []
        names += ["num_heads"] if hparams.max_relative_position else []
        if any(getattr(hparams, name) != getattr(self.hparams, name) for name in names):
            return " (its weights have other names or shapes, so they do not fit)"
        if vocabulary.fingerprint != self.vocabulary.fingerprint:
            flags = ("--vocab_file", "--source_vocab_file")
            files = [shlex.quote(str(self.path / name)) for name in self.origin.vocabularies]
            arguments = " ".join(f"{flag}={file}" for flag, file in zip(flags, files, strict=False))
            return f"; to begin with this model's weights, make the data with t2t-datagen {arguments}"
        return ", with --warm_start_from to begin with this model's weights"

    def checkpoints(self) -> list[str]:
        """Returns the paths of the checkpoints that training saved, oldest first."""
        return checkpoints_in(self.path)

    def checkpoint(self, path: str = "", flag: str = "--checkpoint_path") -> str:
        """Returns the path of the checkpoint to use.

        Args:
            path: value of --checkpoint_path: a checkpoint, or a folder such as best/. "" stands for this folder. In a
                folder, the averaged checkpoint is used, or the latest checkpoint if that is newer.
            flag: the flag that has this value, for error messages.

        Raises:
            UserError: the checkpoint does not exist.
        """
        if path:
            return find_checkpoint(path, flag)
        if checkpoint := default_checkpoint(self.path):
            return checkpoint
        command = f"t2t-trainer --output_dir={shlex.quote(str(self.path))}"
        raise UserError(f"{self.path}: no checkpoint yet; run {command} until it saves one")

    def require_vocabulary(self, checkpoint: str, fingerprint: str) -> None:
        """Raises UserError unless the folder's vocabulary is that of a checkpoint, which has this fingerprint."""
        if fingerprint != self.vocabulary.fingerprint:
            raise UserError(
                f"{self.path / self.origin.vocabulary}: fingerprint {self.vocabulary.fingerprint}, but {checkpoint} "
                f"was trained with {fingerprint}; put the right vocabulary back"
            )

    def model(self, checkpoint: str, precision: str = "float32") -> Any:
        """Returns the model that hparams.json describes, with the weights of the checkpoint at the path `checkpoint`.

        Args:
            checkpoint: path of the checkpoint, whose weights are float32. They are converted to the model's dtypes.
            precision: a precision of training or of decoding (see `Layer`).

        Raises UserError if the checkpoint is damaged, has weights that are not numbers, or does not fit the folder's
        hparams or vocabulary.
        """
        content = read_checkpoint(checkpoint)
        self.require_vocabulary(checkpoint, content.vocabulary_fingerprint)
        self._require_registered("model", self.hparams.model, registry.has_model)
        from t2t_repro import devices  # imported here, because it loads TensorFlow
        from t2t_repro.layers.base import zero_weights
        from t2t_repro.models.model import make_model

        if self.hparams.model == "transformer":
            self._refuse_larger_model(content, checkpoint)
        devices.use_tf32(False)
        with zero_weights():
            model = make_model(
                self.hparams,
                self.vocabulary.size,
                self.problem.target_space_id,
                precision,
                self.vocabulary.separate_source_size,
            )
        assign_weights(model, content, checkpoint, "hparams.json", WRONG_CHECKPOINT)
        return model

    def decoding_model(self, checkpoint: str, precision: str = "float32") -> Any:
        """Returns `model(checkpoint, precision)` for decoding only: its weights must not change any more."""
        from t2t_repro.layers.base import Layer  # imported here, because it loads TensorFlow

        model = self.model(checkpoint, precision)
        if isinstance(model, Layer):
            model.fold_weights()
        return model

    def _refuse_larger_model(self, content: Checkpoint, checkpoint: str) -> None:
        """Raises UserError if the model that hparams.json describes has more weights than the checkpoint.

        `model` calls this method before it allocates the memory of the model.
        """
        needed = parameters(self.hparams, self.vocabulary.size, self.vocabulary.separate_source_size)
        stored = sum(weight.size for weight in content.weights.values())
        if needed > stored:
            raise UserError(
                f"{checkpoint}: {stored:,} weights, but the model of hparams.json has {needed:,}; put the right "
                "hparams.json back"
            )

    def _require_registered(self, kind: str, name: str, is_registered: Callable[[str], bool]) -> None:
        """Raises UserError if the problem or model that this folder was trained with is unknown to this program."""
        if not is_registered(name):
            raise UserError(
                f"{self.path}: trained with the {kind} {shortened(name)!r}, which this program does not know; give "
                "--t2t_usr_dir, the folder with the code that defines it"
            )


def _discard(folder: Path, names: Iterable[str]) -> None:
    """Deletes files of a new model folder, and the folder if it is then empty."""
    for name in names:
        (folder / name).unlink(missing_ok=True)
    # The lock file of a run is empty. A .lock with contents belongs to the user, and stays.
    if (lock := folder / LOCK).is_file() and not lock.stat().st_size:
        lock.unlink()
    with contextlib.suppress(OSError):  # rmdir fails if the folder has other files
        folder.rmdir()


def written_times(checkpoints: Iterable[str]) -> list[int]:
    """Returns when each checkpoint was written, in nanoseconds. A checkpoint can be written again at the same path."""
    return [Path(f"{checkpoint}.index").stat().st_mtime_ns for checkpoint in checkpoints]


def open_folders(output_dirs: str, checkpoint_paths: str = "") -> tuple[list[ModelFolder], list[str]]:
    """Returns the model folders that --output_dir names, and the path of the checkpoint to use in each.

    Args:
        output_dirs: value of --output_dir: one or more folders, separated by commas.
        checkpoint_paths: value of --checkpoint_path: empty, or one path per folder, separated by commas. For an empty
            path, `ModelFolder.checkpoint` chooses the checkpoint.

    Raises:
        UserError: a folder or checkpoint is missing or damaged, or the models have different vocabularies, problems or
            directions.
    """
    dirs, paths = folder_paths(output_dirs, "--output_dir"), split_paths(checkpoint_paths)
    if paths == [""]:
        paths = [""] * len(dirs)
    if len(paths) != len(dirs):
        raise UserError(f"--checkpoint_path names {len(paths)}, --output_dir {len(dirs)}; give one for each folder")
    folders = [ModelFolder(path) for path in dirs]
    first_folder = folders[0]
    for folder in folders[1:]:
        if folder.vocabulary.fingerprint != first_folder.vocabulary.fingerprint:
            raise UserError(
                f"{folder.path}: its vocabulary, {folder.vocabulary.fingerprint}, is not that of {first_folder.path}, "
                f"{first_folder.vocabulary.fingerprint}; models that decode together need the same"
            )
        if folder.origin.problem != first_folder.origin.problem:
            raise UserError(
                f"{folder.path}: trained on problem {folder.origin.problem!r}, but {first_folder.path} on "
                f"{first_folder.origin.problem!r}; models that decode together need the same problem and direction"
            )
        # Imported models may have the same problem, t2t_text, in which the languages are settings.
        languages, first_languages = folder.problem.languages, first_folder.problem.languages
        if languages != first_languages and all(languages + first_languages):
            raise UserError(
                f"{folder.path}: translates {languages[0]} to {languages[1]}, but {first_folder.path} "
                f"{first_languages[0]} to {first_languages[1]}; models that decode together need the same languages"
            )
    checkpoints = [folder.checkpoint(path) for folder, path in zip(folders, paths, strict=True)]
    for number, checkpoint in enumerate(checkpoints):
        if any(os.path.samefile(f"{checkpoint}.index", f"{other}.index") for other in checkpoints[:number]):
            raise UserError(f"{checkpoint}: is given twice; an ensemble needs different models or checkpoints")
    return folders, checkpoints


def refuse_ensemble(flag: str, path: str) -> None:
    """Raises UserError if the value of --`flag`, the path of a model folder, names several folders."""
    if len(split_paths(path)) > 1:
        raise UserError(f"--{flag}={path}: this program takes only one model; give one folder")


def split_paths(text: str) -> list[str]:
    """Returns the paths in a flag's value, which commas separate. A value that is an existing path is not split.

    Names may begin or end with spaces, but spaces around a comma are dropped if no path has this name.
    """
    parts = [text] if _exists(text) else text.split(",")
    return [part if _exists(part) else part.strip() for part in parts]


def folder_paths(text: str, flag: str) -> list[str]:
    """Returns the model folders in the value of a flag; see `split_paths`. Raises UserError if a path is empty."""
    paths = split_paths(text)
    if "" in paths:
        raise UserError(f"{flag}={text}: the name of a folder is empty; remove the extra comma")
    return paths


def _exists(path: str) -> bool:
    """Returns True if a folder or a checkpoint exists at a path."""
    return Path(path).is_dir() or Path(f"{path}.index").is_file()


def hparams_fingerprint(hparams: HParams) -> str:
    """Returns twelve hex digits that identify the hparams that must not change when training resumes.

    Only fields that differ from their default are hashed, so a new field of `HParams` does not change old fingerprints.
    """
    defaults = HParams()
    names = [name for name in vars(hparams) if name not in MAY_DIFFER]
    changed = {name: getattr(hparams, name) for name in names if getattr(hparams, name) != getattr(defaults, name)}
    return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:12]
