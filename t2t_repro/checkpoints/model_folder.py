"""A model folder (--output_dir) has everything that decoding, exporting and resuming need.

hparams.json      hyper-parameters of the model and its training
problem.json      the problem's name and settings, precision, random seed, and fingerprint of the
                  training data
vocab.*.model     the vocabulary
model.ckpt-*      checkpoints: weights under the model's variable names, optimizer state, step,
                  random seed, and the fingerprints of hparams, vocabulary and data
checkpoint        TensorFlow's list of the model.ckpt-* files, for tf.train.latest_checkpoint
averaged/         the mean of several checkpoints, written by t2t-avg-checkpoints
best/             the best checkpoint on the dev split: by default, that with the lowest dev loss
metrics.jsonl     measurements during training; tensorboard/ has the same measurements, and pictures
decoded/, results.json, report.md    output of t2t-reproduce
"""

import contextlib
import dataclasses
import hashlib
import json
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from t2t_repro import registry
from t2t_repro.checkpoints import reader
from t2t_repro.data.vocabularies.kinds import check_vocabulary_name, load_vocabularies
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, shortened
from t2t_repro.files.json_file import from_fields, from_json, to_json
from t2t_repro.files.output_files import locked, write_file
from t2t_repro.files.untrusted import parse_json, read_bytes, read_text
from t2t_repro.hparam import HParams, changed_values
from t2t_repro.problem import Problem

LOCK = ".lock"
"""Name of the file that t2t-trainer and t2t-reproduce keep locked, so that no second run uses the
folder.
"""
MAX_INDEX = 1 << 26
"""Maximum size of a checkpoint's index, which has a checksum of each variable. It has about 100
bytes for each.
"""


@dataclass(frozen=True)
class Origin:
    """The content of problem.json: the problem, data and random seed of a model's training."""

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
    """Value of --warm_start_from: model folder or checkpoint with the initial weights; "" for
    random weights.
    """
    data_dir: str = ""
    """Absolute path of the data directory of the last training run; "" if unknown, as for imported
    models.
    """
    source_vocabulary: str = ""
    """File name of the vocabulary of the sources; "" if sources and targets have the same
    vocabulary.
    """

    def __post_init__(self) -> None:
        for name in self.vocabularies:
            check_vocabulary_name(name)

    @classmethod
    def without_data(cls, problem: Problem, vocabulary: Vocabulary, random_seed: int = 0) -> Self:
        """Returns the origin of a model whose training data is unknown."""
        prefix = f"vocab.{problem.base_name}"
        sources = ""
        if vocabulary.separate_source_size:
            suffix = vocabulary.sources.suffix
            sources = f"{prefix}.{vocabulary.separate_source_size}.source{suffix}"
        return cls(
            problem=problem.name,
            settings=dataclasses.asdict(problem.settings),
            vocabulary=f"{prefix}.{vocabulary.size}{vocabulary.suffix}",
            data_fingerprint="",
            random_seed=random_seed,
            source_vocabulary=sources,
        )

    @property
    def vocabularies(self) -> list[str]:
        """File names of the vocabularies: of the targets, and of the sources if they have another
        one.
        """
        names = [self.vocabulary, self.source_vocabulary]
        return [name for name in names if name]


Content = tuple[HParams, Origin, Problem, Vocabulary]
"""Contents of the files that describe a model folder, apart from its checkpoints."""


class ModelFolder:
    """A folder with a trained model. The module's docstring lists the files.

    `content` has the hparams, origin, problem and vocabulary of a folder whose files are not
    written yet. If it is None, they are read. Raises UserError if `path` is not a model folder, or
    a file in it is damaged or names unknown code.
    """

    def __init__(self, path: str | Path, content: Content | None = None) -> None:
        self.path = Path(path)
        self.hparams, self.origin, self.problem, self.vocabulary = content or _read(self.path)

    @property
    def tags(self) -> list[str]:
        """Tags of the model's target languages; empty if it has only one, so that sources need no
        tag.
        """
        return [symbol for symbol in self.problem.symbols if symbol in self.vocabulary.tags]

    @classmethod
    def for_run(
        cls,
        path: str | Path,
        hparams: HParams,
        vocabulary: Vocabulary,
        origin: Origin,
        problem: Problem | None = None,
    ) -> Self:
        """Returns the model folder of a training run, which starts there or resumes. Writes
        nothing: see `save`.

        Raises UserError if the folder has files of others, or checkpoints of another problem, data
        or hparams.
        """
        folder = Path(path)
        _refuse_foreign(folder)
        if any(reader.checkpoints_in(folder / place) for place in ("", "averaged", "best")):
            existing = cls(folder)
            existing._refuse_other(hparams, origin, vocabulary)
            if reader.checkpoints_in(folder / "averaged") and not existing.checkpoints():
                raise UserError(
                    f"{path}: has only an averaged checkpoint; to start again, give another "
                    "--output_dir"
                )
        problem = problem or registry.problem(origin.problem, origin.settings)
        return cls(folder, (hparams, origin, problem, vocabulary))

    @classmethod
    def create(cls, *arguments: Any) -> Self:
        """Returns `for_run(*arguments)` with its files written."""
        folder = cls.for_run(*arguments)
        folder.save()
        return folder

    def save(self) -> None:
        """Writes hparams.json, problem.json and the vocabularies."""
        write_file(self.path / "hparams.json", to_json(self.hparams))
        write_file(self.path / "problem.json", to_json(self.origin))
        self.vocabulary.save(self.path / self.origin.vocabulary)
        if self.origin.source_vocabulary:
            self.vocabulary.sources.save(self.path / self.origin.source_vocabulary)

    @staticmethod
    def locked(path: str | Path) -> contextlib.AbstractContextManager[None]:
        """Returns a context in which no other t2t-trainer or t2t-reproduce can use the model folder
        `path`.

        Creates the folder if necessary.
        """
        refusal = (
            f"{path}: another t2t-trainer or t2t-reproduce is at work there; wait for its end, or "
            "give another --output_dir"
        )
        return locked(Path(path) / LOCK, refusal)

    def description_files(self) -> list[Path]:
        """Returns the paths of the folder's vocabularies, hparams.json and problem.json."""
        names = [*self.origin.vocabularies, "hparams.json", "problem.json"]
        return [self.path / name for name in names]

    def _refuse_other(self, hparams: HParams, origin: Origin, vocabulary: Vocabulary) -> None:
        """Raises UserError if a run with these arguments may not resume the training of this
        folder's model.
        """
        old_traits = _traits_of_run(self.hparams, self.origin, self.vocabulary)
        traits = _traits_of_run(hparams, origin, vocabulary)
        others = [name for name, value in traits.items() if old_traits.get(name) != value]
        if others:
            name = others[0]
            again = "the same again"
            if hasattr(hparams, name):
                values = [
                    f"{other}={old_traits.get(other)}"
                    for other in others
                    if hasattr(hparams, other)
                ]
                again = f"--hparams={','.join(values)} again"
            raise UserError(
                f"{self.path}: trained with {name} {old_traits.get(name)!r}, not "
                f"{traits[name]!r}; give {again}, or another --output_dir, with --warm_start_from "
                "to begin with this model's weights"
            )

    def checkpoints(self) -> list[str]:
        """Returns the paths of the checkpoints that training saved, oldest first."""
        return reader.checkpoints_in(self.path)

    def checkpoint(self, path: str = "", flag: str = "--checkpoint_path") -> str:
        """Returns the path of the checkpoint to use, which must exist.

        `path` is the value of `flag`: a checkpoint, or a folder with checkpoints, from the current
        folder or from this one, e.g. "best". "" stands for this folder. In a folder, the averaged
        checkpoint is used, or the latest checkpoint if that is newer.
        """
        if path:
            inside = str(self.path / path)
            is_inside = _exists(inside) and not _exists(path)
            return reader.find_checkpoint(inside if is_inside else path, flag)
        if checkpoint := reader.default_checkpoint(self.path):
            return checkpoint
        command = f"t2t-trainer --output_dir={shlex.quote(str(self.path))}"
        raise UserError(f"{self.path}: no checkpoint yet; run {command} until it saves one")

    def require_own(self, checkpoint: str, content: reader.Checkpoint) -> None:
        """Raises UserError unless a checkpoint was trained with the folder's vocabulary and
        hparams.
        """
        own_hparams = hparams_fingerprint(self.hparams)
        is_other = {
            "vocabulary": content.vocabulary_fingerprint != self.vocabulary.fingerprint,
            # A checkpoint of an imported model has no fingerprint of hparams.
            "hparams": content.hparams_fingerprint not in ("", own_hparams),
        }
        for kind in is_other:
            if is_other[kind]:
                raise UserError(
                    f"{checkpoint}: trained with other {kind} than {self.path} has; put that file "
                    "back, or give the --output_dir of its training"
                )

    def identity(self, checkpoint: str) -> tuple[Any, ...]:
        """Returns everything that the outputs of a checkpoint's model depend on, wherever the
        folder is.
        """
        weights = hashlib.sha256(read_bytes(f"{checkpoint}.index", MAX_INDEX)).hexdigest()
        fingerprints = self.vocabulary.fingerprint, hparams_fingerprint(self.hparams)
        return self.origin.problem, self.origin.settings, *fingerprints, weights

    def model(self, checkpoint: str, precision: str = "float32") -> Any:
        """Returns the model that hparams.json describes, with the weights of a checkpoint in the
        model's dtypes.

        `precision` is that of training or of decoding (see `Layer`). Raises UserError if the
        checkpoint is damaged, or does not fit the folder's hparams or vocabulary.
        """
        content = reader.read_checkpoint(checkpoint)
        self.require_own(checkpoint, content)
        from t2t_repro import devices  # imported here, because it loads TensorFlow
        from t2t_repro.models.model import model_with_weights

        devices.use_tf32(False)
        # The check comes first, because a wrong hparams.json must not fill the memory.
        return model_with_weights(
            content.weights,
            lambda model: reader.refuse_misfit(model, content, checkpoint),
            self.hparams,
            self.vocabulary.size,
            self.problem.target_space_id,
            precision,
            self.vocabulary.separate_source_size,
        )

    def decoding_model(self, checkpoint: str, precision: str = "float32") -> Any:
        """Returns `model(checkpoint, precision)` for decoding only: its weights must not change any
        more.
        """
        from t2t_repro.layers.base import Layer  # imported here, because it loads TensorFlow

        model = self.model(checkpoint, precision)
        if isinstance(model, Layer):
            model.fold_weights()
        return model


def _traits_of_run(hparams: HParams, origin: Origin, vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns what a run must have in common with the run that it resumes, by names for people."""
    traits = {
        "problem": origin.problem,
        "vocabulary of fingerprint": vocabulary.fingerprint,
        "data of fingerprint": origin.data_fingerprint,
        "--random_seed": origin.random_seed,
        "--precision": origin.precision,
        "--warm_start_from": origin.warm_start_from.rstrip("/"),
    }
    for name in hparams.affecting("weights", "outputs", "training"):
        traits[name] = getattr(hparams, name)
    traits["--freeze"] = traits.pop("frozen")  # --hparams cannot have its commas
    return traits


def _read(path: Path) -> Content:
    try:
        text = read_text(path / "problem.json")
        hparams = read_hparams(path)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise UserError(
            f"{path}: no {Path(error.filename).name} there, so this is not a model folder; run "
            "t2t-trainer, or, if tensor2tensor trained the model, t2t-import "
            f"--t2t_model={shlex.quote(str(path))}"
        ) from None
    origin = from_json(Origin, text, str(path / "problem.json"))
    _require_registered(path, "problem", origin.problem, registry.has_problem)
    problem = registry.problem(origin.problem, origin.settings)
    vocabulary = load_vocabularies(path, origin.vocabulary, origin.source_vocabulary)
    return hparams, origin, problem, vocabulary


def read_hparams(folder: Path) -> HParams:
    """Returns the hparams in a folder's hparams.json, as an instance of the hparams class of their
    model.

    Raises UserError if the file is damaged or the model is not registered, and OSError if the file
    is missing.
    """
    path = folder / "hparams.json"
    fields = parse_json(read_text(path), str(path))
    model = HParams.model
    if isinstance(fields, dict):
        model = str(fields.get("model", model))
    _require_registered(folder, "model", model, registry.has_model)
    return from_fields(registry.hparams_class(model), fields, str(path))


def hparams_of(checkpoint: str) -> HParams | None:
    """Returns the hparams in the model folder of a checkpoint.

    Returns None if they are missing or damaged.
    """
    for folder in _possible_folders(checkpoint):
        with contextlib.suppress(OSError, UserError):
            return read_hparams(folder)
    return None


def vocabulary_of(checkpoint: str) -> Vocabulary | None:
    """Returns the vocabulary in the model folder of a checkpoint.

    Returns None if it is missing or damaged.
    """
    for folder in _possible_folders(checkpoint):
        with contextlib.suppress(OSError, UserError):
            origin = from_json(Origin, read_text(folder / "problem.json"), str(folder))
            return load_vocabularies(folder, origin.vocabulary, origin.source_vocabulary)
    return None


def _possible_folders(checkpoint: str) -> list[Path]:
    """Returns the folders that can be the model folder of a checkpoint.

    Averaged and best checkpoints are in a subfolder.
    """
    folder = Path(checkpoint).parent
    return [folder, folder.parent]


def _require_registered(
    folder: Path, kind: str, name: str, is_registered: Callable[[str], bool]
) -> None:
    """Raises UserError if the problem or model that a folder was trained with is unknown to this
    program.
    """
    if not is_registered(name):
        raise UserError(
            f"{folder}: trained with the {kind} {shortened(name)!r}, which this program does not "
            "know; give --t2t_usr_dir, the folder with the code that defines it"
        )


def _refuse_foreign(folder: Path) -> None:
    """Raises UserError unless a folder is missing, is empty except for hidden files, or has our
    hparams.json.
    """
    if all(path.name.startswith(".") for path in folder.glob("*")):
        return
    try:
        read_hparams(folder)
    except (OSError, UserError):
        raise UserError(
            f"{folder}: has files, but no hparams.json of t2t-trainer; give another --output_dir "
            "(t2t-import makes a model folder from one of tensor2tensor)"
        ) from None


def open_folders(
    output_dirs: str, checkpoint_paths: str = ""
) -> tuple[list[ModelFolder], list[str]]:
    """Returns the model folders that --output_dir names, and the path of the checkpoint to use in
    each.

    Both flags can have several values, separated by commas. For an empty one of --checkpoint_path,
    `ModelFolder.checkpoint` chooses the checkpoint.

    Raises UserError if a folder or checkpoint is missing or damaged, or the models cannot decode
    together.
    """
    dirs = folder_paths(output_dirs, "--output_dir")
    paths = split_paths(checkpoint_paths) if checkpoint_paths else [""] * len(dirs)
    if len(paths) != len(dirs):
        raise UserError(
            f"--checkpoint_path names {len(paths)}, --output_dir {len(dirs)}; give one for each "
            "folder"
        )
    folders = [ModelFolder(path) for path in dirs]
    expected = _traits(folders[0])
    for folder in folders[1:]:
        for name, value in _traits(folder).items():
            if value != expected[name] and value and expected[name]:
                raise UserError(
                    f"{folder.path}: trained with {name} {value}, but {folders[0].path} with "
                    f"{expected[name]}; models that decode together need the same"
                )
    return folders, [folder.checkpoint(path) for folder, path in zip(folders, paths, strict=True)]


def _traits(folder: ModelFolder) -> dict[str, str]:
    """Returns the traits in which models that decode together must agree, by name.

    The value is "" if a trait is unknown.
    """
    languages = folder.problem.languages
    return {
        "vocabulary of fingerprint": folder.vocabulary.fingerprint,
        "problem": folder.origin.problem,
        # Imported models may have the same problem, t2t_text, in which the languages are settings.
        "direction": "-".join(languages) if all(languages) else "",
    }


def refuse_ensemble(flag: str, path: str) -> None:
    """Raises UserError if the value of --`flag` names several model folders."""
    if len(split_paths(path)) > 1:
        raise UserError(f"--{flag}={path}: this program takes only one model; give one folder")


def folder_paths(text: str, flag: str) -> list[str]:
    """Returns the model folders in the value of a flag; see `split_paths`. Raises UserError if a
    path is empty.
    """
    paths = split_paths(text)
    if "" in paths:
        raise UserError(f"{flag}={text}: the name of a folder is empty; remove the extra comma")
    return paths


def split_paths(text: str) -> list[str]:
    """Returns the paths in a flag's value, separated by commas. The path of a folder or checkpoint
    is not split.
    """
    return [text] if _exists(text) else [part.strip() for part in text.split(",")]


def _exists(path: str) -> bool:
    """Returns True if a folder or a checkpoint has this path."""
    return Path(path).is_dir() or Path(f"{path}.index").is_file()


def hparams_fingerprint(hparams: HParams) -> str:
    """Returns twelve hex digits that identify the hparams that must not change when training
    resumes.

    Only the model and values that differ from their defaults are hashed, so a new field does not
    change old fingerprints.
    """
    changed = changed_values(hparams) | {"model": hparams.model}
    for name in hparams.affecting("length"):
        changed.pop(name, None)
    return hashlib.sha256(json.dumps(changed, sort_keys=True).encode()).hexdigest()[:12]
