"""Writes a model folder with a model that tensor2tensor trained."""

from __future__ import annotations

import dataclasses
import os
import re
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.checkpoints.reader import find_checkpoint
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, first_line
from t2t_repro.hparam import HParams
from t2t_repro.problem import Problem
from t2t_repro.tensor2tensor import hparams as old_hparams
from t2t_repro.tensor2tensor.old_folder import OldFolder, last_checkpoints, read_hparams
from t2t_repro.tensor2tensor.variables import OldVariables

BYTES = 258
"""Number of entries in the vocabulary of tensor2tensor's problems on bytes, which has no file."""

LANGUAGES_IN_NAME = re.compile("translate_(en)(cs|de|es|et|fr|id|mk|ro|vi|zh)_")
"""Matches the names of tensor2tensor's translation problems, e.g. translate_encs_wmt32k: en to cs."""


@dataclass(frozen=True)
class Request:
    """A model to import. If a field is "", `Import` looks for its value in the folder of the checkpoint."""

    checkpoint: str
    """A checkpoint without ".index", or the folder with it."""
    average_last: int = 1
    """Number of the folder's last checkpoints to average."""
    hparams_json: str = ""
    """tensor2tensor's file of hparams."""
    hparams_set: str = ""
    """Name of a set here that has the same sizes, if there is no hparams.json."""
    problem: str = ""
    """Name of tensor2tensor's problem."""
    source_vocab: str = ""
    target_vocab: str = ""
    """Files of the vocabularies of sources and targets. They may be the same file."""
    vocab_type: str = ""
    """Kind of both files; "" if their names say it."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Settings of the problem t2t_text. If one of them is given, the model folder has this problem."""


class Import:
    """A model of tensor2tensor: its weights, hparams and vocabulary in our form. `write` writes the model folder.

    Args:
        request: what to import.

    Raises:
        UserError: something is missing, damaged or cannot be imported, or two files contradict each other.
    """

    def __init__(self, request: Request) -> None:
        path = Path(request.checkpoint)
        is_folder = path.is_dir()
        self.folder = OldFolder(path if is_folder else path.parent)
        if not is_folder and request.average_last > 1:
            raise UserError(f"--average_last needs the folder of the checkpoints, not {path}; give --t2t_model")
        if is_folder:
            paths = last_checkpoints(path, request.average_last)
        else:
            paths = [find_checkpoint(request.checkpoint, "--checkpoint")]
        self.checkpoints = paths
        self.variables = OldVariables(paths)
        try:
            self.hparams, self._hparams_source = self._hparams(request)
            self.weights = self.variables.weights(self.hparams)
        except (ValueError, IndexError, ZeroDivisionError) as error:
            raise UserError(
                f"{paths[-1]}: a weight has another number of dimensions than in tensor2tensor's transformer "
                f"({first_line(error)}); it is a checkpoint of another model"
            ) from None
        name = request.problem or self.folder.flags.get("problem", "")
        self.problem = self._problem(name, request.settings)
        self.vocabulary, self._vocabulary_paths = self._vocabulary(request, name.removesuffix(registry.REVERSED))

    def _hparams(self, request: Request) -> tuple[HParams, str]:
        """Returns the hparams, and the name of their set or the path of their file."""
        sizes = self.variables.sizes()
        if request.hparams_set:
            if old := self.folder.hparams_file():
                raise UserError(f"{old}: has the hparams of the training; omit --hparams_set")
            return old_hparams.fit(
                registry.hparams(request.hparams_set), sizes, request.hparams_set
            ), request.hparams_set
        file = Path(request.hparams_json) if request.hparams_json else self.folder.hparams_file()
        if file is None:
            raise UserError(
                f"{self.folder.path}: no hparams.json there, and the weights do not tell the number of heads; give "
                "--hparams_json or --hparams_set"
            )
        return old_hparams.translate(read_hparams(file), sizes, str(file)), str(file)

    def _problem(self, name: str, settings: dict[str, Any]) -> Problem:
        """Returns the problem of the training, or t2t_text if it is not registered here or `settings` are given.

        t2t_text has the given settings, and otherwise those of the problem of the training.
        """
        defaults: dict[str, Any] = {}
        direction = -1 if name.endswith(registry.REVERSED) else 1
        if name and registry.has_problem(name):
            training = registry.problem(name)
            if not settings:
                return training
            languages = training.languages[::direction]
            defaults["languages"] = ",".join(languages) if all(languages) else ""
            defaults["target_space"] = training.target_space_id
        elif pair := LANGUAGES_IN_NAME.match(name):
            defaults["languages"] = ",".join(pair.groups()[::direction])
        problem = registry.problem("t2t_text", defaults | settings)
        if "languages" in settings:
            problem.check()
        return problem

    def _vocabulary(self, request: Request, problem: str) -> tuple[Vocabulary, list[str]]:
        """Returns the vocabulary of the targets with that of the sources, and the paths of their one or two files.

        Raises:
            UserError: no vocabulary has one entry for each row of the embedding, or several vocabularies do.
        """
        sides = zip(("source", "target"), (request.source_vocab, request.target_vocab), strict=True)
        (source, source_path), (target, target_path) = (
            self._load_vocabulary(path, size, side, request.vocab_type)
            if path
            else self._find_vocabulary(size, side, problem, request.vocab_type)
            for (side, path), size in zip(sides, self.variables.vocab_sizes(), strict=True)
        )
        vocabulary = target.with_sources(source)
        return vocabulary, [source_path, target_path] if vocabulary.separate_source_size else [target_path]

    def _load_vocabulary(self, path: str, size: int, side: str, kind: str) -> tuple[Vocabulary, str]:
        """Returns the vocabulary in the file that the user named, and the file's path."""
        vocabulary = load_vocabulary(path, kind)
        if vocabulary.size != size:
            raise UserError(
                f"{path}: has {vocabulary.size:,} entries, but the {side} embedding of {self.variables.path} has "
                f"{size:,}; give the vocabulary of its training"
            )
        return vocabulary, path

    def _find_vocabulary(self, size: int, side: str, problem: str, kind: str) -> tuple[Vocabulary, str]:
        """Returns the vocabulary of `size` entries in the folders of the training, and the path of its file."""
        files = self.folder.vocabulary_files(problem)
        fitting: dict[Path, Vocabulary] = {}
        for file in files:
            try:
                vocabulary = load_vocabulary(file, kind)
            except UserError:
                if len(files) == 1:
                    raise
                continue  # this file may belong to another problem
            if vocabulary.size == size:
                fitting[file] = vocabulary
        if len({vocabulary.fingerprint for vocabulary in fitting.values()}) == 1:
            file, vocabulary = next(iter(fitting.items()))
            return vocabulary, str(file)
        if not fitting and size == BYTES:
            return ByteVocabulary(), "no file"
        names = ", ".join(str(file) for file in files) or "none"
        raise UserError(
            f"{self.folder.path}: {len(fitting) or 'no'} vocabularies have the {size:,} entries of the {side} "
            f"embedding (found: {names}); give --vocab, or --source_vocab and --target_vocab"
        )

    def report(self) -> str:
        """Returns lines that say what is imported, and which variables of the checkpoint are not used."""
        sizes = self.hparams
        layers = f"{sizes.encoder_layers} layers"
        if sizes.decoder_layers != sizes.encoder_layers:
            layers = f"{sizes.encoder_layers} encoder and {sizes.decoder_layers} decoder layers"
        norm = "pre-norm" if sizes.norm_before else "post-norm"
        count = sum(value.size for value in self.weights.values())
        unused = [f"{kind} ({number})" for kind, number in sorted(self.variables.unused.items())]
        sides = [self.vocabulary.sources, self.vocabulary][-len(self._vocabulary_paths) :]
        vocabularies = " to ".join(
            f"{vocabulary.size:,} {vocabulary.kind} ({path})"
            for vocabulary, path in zip(sides, self._vocabulary_paths, strict=True)
        )
        pair = self.problem.languages[:: -1 if self.problem.was_reversed else 1]
        languages = f", {' to '.join(pair)}" if all(pair) else ""
        return "\n".join(
            [
                f"{', '.join(self.checkpoints)}: step {self.variables.step:,}, {count:,} parameters, "
                f"{layers} of width {sizes.hidden_size}, {norm}",
                f"hparams: {self._hparams_source}",
                f"vocabulary: {vocabularies}",
                f"problem: {self.problem.name}{languages}",
                f"not used: {', '.join(unused) or 'nothing'}",
            ]
        )

    def write(self, output_dir: str) -> str:
        """Writes the model folder, and returns the path of its checkpoint. The folder appears when it is complete.

        Raises:
            UserError: the folder exists and is not empty, it cannot be written, it is the current folder, or a weight
                has a wrong shape.
        """
        import tensorflow as tf  # imported here, because the import takes seconds

        from t2t_repro.checkpoints.checkpoint_files import keep_only, write_checkpoint

        path, step = Path(os.path.realpath(output_dir)), self.variables.step
        # The finished folder replaces an empty one, so a shell in that one would be left without a folder.
        if path == Path.cwd() or (os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir()))):
            raise UserError(f"--output_dir={output_dir}: exists already; give a new folder")
        state = tf.train.Checkpoint(
            weights={name: tf.Variable(value) for name, value in self.weights.items()},
            step=tf.Variable(step, dtype=tf.int64),
            vocabulary_fingerprint=tf.Variable(self.vocabulary.fingerprint),
        )
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary_folder = tempfile.TemporaryDirectory(prefix=f".{path.name}.", dir=path.parent)
        except OSError as error:
            reason = error.strerror or error
            raise UserError(f"--output_dir={output_dir}: cannot be written ({reason}); give another folder") from None
        with temporary_folder as temporary:
            new = Path(temporary, "model")
            folder = ModelFolder.create(new, self.hparams, self.vocabulary, self._origin(), self.problem)
            checkpoint = write_checkpoint(state, new, step)
            keep_only(new, [checkpoint])
            folder.model(checkpoint)  # fails if a weight of the model is missing or has another shape
            new.rename(path)
        return str(Path(output_dir, Path(checkpoint).name))

    def _origin(self) -> Origin:
        """Returns the content of problem.json. The fingerprint of the training data is "", because it is unknown."""
        vocabulary, source_size = self.vocabulary, self.vocabulary.separate_source_size
        name = f"vocab.{self.problem.base_name}.{vocabulary.size}{vocabulary.suffix}"
        sources = f"vocab.{self.problem.base_name}.{source_size}.source{vocabulary.sources.suffix}"
        settings = dataclasses.asdict(self.problem.settings)
        return Origin(self.problem.name, settings, name, "", 0, source_vocabulary=sources if source_size else "")
