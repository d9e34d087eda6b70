"""Finds the parts of a model that tensor2tensor trained, and writes them as a model folder."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from t2t_repro import registry
from t2t_repro.checkpoints.imported import write_imported
from t2t_repro.checkpoints.reader import (
    CHECKPOINT,
    Checkpoint,
    checkpoints_in,
    find_checkpoint,
    refuse_misfit,
)
from t2t_repro.data.vocabularies.kinds import load_vocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, counted
from t2t_repro.files.untrusted import parse_json, read_text
from t2t_repro.hparam import HParams
from t2t_repro.problem import Problem, SpaceID
from t2t_repro.tensor2tensor import hparams as old_hparams
from t2t_repro.tensor2tensor.variables import SCOPE, OldVariables

BYTES = 258
"""Number of entries in the vocabulary of tensor2tensor's problems on bytes, which has no file."""

FLAG_FILES = ("flags_t2t.txt", "flags.txt")
"""Files in which tensor2tensor's programs stored the flags of their runs, one --name=value in each
line.
"""
HPARAMS = "hparams.json"
LANGUAGES_IN_NAME = re.compile("translate_(en)(cs|de|es|et|fr|id|mk|ro|vi|zh)_")
"""Matches the names of tensor2tensor's translation problems, e.g. translate_encs_wmt32k: en to cs.
"""


@dataclass(frozen=True)
class Request:
    """The flags of t2t-import. Values that are not given are those of the folder of the checkpoint."""  # noqa: E501

    t2t_model: str = ""
    """folder of tensor2tensor's model; its last checkpoint is imported"""
    checkpoint: str = ""
    """instead of --t2t_model: a checkpoint, e.g. OLD_FOLDER/model.ckpt-250000"""
    average_last: int = field(default=1, metadata={"lower_bound": 1})
    """number of last checkpoints of --t2t_model to average"""
    hparams_json: str = ""
    """hparams.json of the training; default: that in the folder of the checkpoint"""
    hparams_set: str = ""
    """without hparams.json: a set here with the sizes of the model, e.g. transformer_big"""
    problem: str = ""
    """tensor2tensor's name of the problem; default: that in flags_t2t.txt"""
    vocab: str = ""
    """vocabulary file of sources and targets; default: the file that fits, in the old folder or its
    --data_dir
    """
    source_vocab: str = ""
    """vocabulary file of the sources, if the targets have another one"""
    target_vocab: str = ""
    """vocabulary file of the targets, if the sources have another one"""
    sentencepiece_model: str = ""
    """SentencePiece model of a model of OpenNMT-tf; two models, of sources and targets, are
    separated by a comma
    """
    vocab_type: Literal["", "subwords", "tokens", "character"] = ""
    """kind of the vocabulary files, tensor2tensor's VocabType; default: what their names or
    contents say
    """
    languages: str = ""
    """languages of sources and targets, e.g. en,de, for the paper's BLEU; default: those of the
    problem, or those in a name such as translate_ende_wmt32k
    """
    target_space_id: int = field(
        default=-1, metadata={"lower_bound": -1, "upper_bound": SpaceID.COUNT - 1}
    )
    """tensor2tensor's number for the kind of the targets; before its version 1.5.2, 8 for German
    and 6 for French; -1: that of the problem, or 0
    """


class Import:
    """A model of tensor2tensor: its weights, hparams and vocabulary in our form. `write` writes the
    model folder.

    Raises UserError if something is missing, damaged or cannot be imported, or two files contradict
    each other.
    """

    variables_class: ClassVar[type[OldVariables]] = OldVariables
    prefix: ClassVar[str] = CHECKPOINT

    def __init__(self, request: Request) -> None:
        if bool(request.t2t_model) == bool(request.checkpoint):
            raise UserError(
                "--t2t_model or --checkpoint: give one of them, the folder of a model or a file"
            )
        self._request, self._folder = (
            request,
            Path(request.t2t_model or Path(request.checkpoint).parent),
        )
        self._flags = _flags(self._folder)
        if request.t2t_model:
            self.checkpoints = _last_checkpoints(self._folder, request.average_last, self.prefix)
        else:
            self.checkpoints = [find_checkpoint(request.checkpoint, "--checkpoint")]
        from t2t_repro.models.model import (
            model_without_values,
        )  # imported here, because it loads TensorFlow

        self.variables = self.variables_class(self.checkpoints)
        self.hparams, self._hparams_source = self._hparams()
        source_size, size = self.variables.vocab_sizes()
        model = model_without_values(
            self.hparams, size, source_vocab_size=source_size if source_size != size else 0
        )
        refuse_misfit(model, Checkpoint(self.variables.weights, ""), self.variables.path)
        name = request.problem or self._flags.get("problem", "")
        self.problem = _problem(name, request)
        self.vocabulary, self._vocabulary_paths = self._vocabulary(
            name.removesuffix(registry.REVERSED)
        )
        if (
            self.vocabulary.separate_source_size
            and f"{SCOPE}target_embedding/table" not in self.variables.weights
        ):
            raise UserError(
                f"{self.variables.path}: both sides share an embedding; give one --vocab for both"
            )

    def _hparams(self) -> tuple[HParams, str]:
        """Returns the hparams, and the name of their set or the path of their file."""
        request, sizes = self._request, self.variables.sizes()
        places = [
            self._folder,
            *self._places("output_dir"),
        ]  # an average lies in another folder than its training
        files = [str(place / HPARAMS) for place in places if (place / HPARAMS).is_file()]
        if request.hparams_set and not request.hparams_json:
            return old_hparams.fit(
                registry.hparams(request.hparams_set), sizes
            ), request.hparams_set
        if not (source := request.hparams_json or next(iter(files), "")):
            raise UserError(
                f"{self._folder}: no hparams.json there, and the weights do not tell the number "
                "of heads; give --hparams_json or --hparams_set"
            )
        old = parse_json(read_text(source), source)
        try:
            if not isinstance(old, dict):
                raise UserError("not a JSON object; restore the file")
            return old_hparams.translate(old, sizes), source
        except UserError as error:
            raise UserError(f"{source}: {error}") from None

    def _vocabulary(self, problem: str) -> tuple[Vocabulary, list[str]]:
        """Returns the vocabulary of the targets with that of the sources, and the paths of their
        one or two files.

        Raises UserError if no vocabulary has one entry for each row of the embedding, or several
        vocabularies do.
        """
        request = self._request
        paths = request.source_vocab or request.vocab, request.target_vocab or request.vocab
        found: list[tuple[Vocabulary, str]] = []
        for side, path, size in zip(
            ("source", "target"), paths, self.variables.vocab_sizes(), strict=True
        ):
            if not path:
                found.append(self._vocabulary_file(size, side, problem))
                continue
            vocabulary = self._load(path, side)
            if vocabulary.size != size:
                raise UserError(
                    f"{path}: has {vocabulary.size:,} entries, but the {side} embedding of "
                    f"{self.variables.path} has {size:,}; give the vocabulary of its training"
                )
            found.append((vocabulary, path))
        (source, source_path), (target, target_path) = found
        vocabulary = target.with_sources(source)
        return vocabulary, [source_path, target_path] if vocabulary.separate_source_size else [
            target_path
        ]

    def _load(self, path: str | Path, side: str) -> Vocabulary:
        return load_vocabulary(path, self._request.vocab_type)

    def _vocabulary_file(self, size: int, side: str, problem: str) -> tuple[Vocabulary, str]:
        """Returns the vocabulary of `size` entries in the folders of the training, and the path of
        its file.
        """
        places = [self._folder, *self._places("data_dir")]
        files = sorted(
            {file for place in places for file in place.glob("vocab.*") if file.is_file()}
        )
        files = [file for file in files if file.name.startswith(f"vocab.{problem}.")] or files
        fitting: dict[str, tuple[Vocabulary, str]] = {}
        for file in files:
            try:
                vocabulary = self._load(file, side)
            except UserError:
                if len(files) == 1:
                    raise
                continue  # this file may belong to another problem
            if vocabulary.size == size:
                fitting.setdefault(vocabulary.fingerprint, (vocabulary, str(file)))
        if len(fitting) == 1:
            return fitting.popitem()[1]
        if not fitting and size == BYTES:
            return ByteVocabulary(), "no file"
        names = ", ".join(str(file) for file in files) or "none"
        raise UserError(
            f"{self._folder}: {len(fitting) or 'no'} vocabularies have the {size:,} entries of "
            f"the {side} embedding (found: {names}); give --vocab, or --source_vocab and "
            "--target_vocab"
        )

    def _places(self, flag: str) -> list[Path]:
        """Returns the existing folders that a flag of the training can mean.

        A relative path is relative to the folder in which tensor2tensor ran. So it is tried from
        all folders above this one, and from the current folder.
        """
        path = self._flags.get(flag)
        starts = dict.fromkeys([*self._folder.absolute().parents, Path.cwd()])
        return [folder for start in starts if path and (folder := start / path).is_dir()]

    def _hparams_line(self) -> str:
        return (
            f"hparams: {self._hparams_source}; its "
            f"learning_rate_schedule={self.hparams.learning_rate_schedule}"
        )

    def report(self) -> str:
        """Returns lines that say what is imported, and which variables of the checkpoint are not
        used.
        """
        hparams, problem = self.hparams, self.problem
        count = sum(value.size for value in self.variables.weights.values())
        unused = [f"{kind} ({number})" for kind, number in sorted(self.variables.unused.items())]
        sides = [self.vocabulary.sources, self.vocabulary][-len(self._vocabulary_paths) :]
        vocabularies = " to ".join(
            f"{vocabulary.size:,} {vocabulary.kind} ({path})"
            for vocabulary, path in zip(sides, self._vocabulary_paths, strict=True)
        )
        layers = " and ".join(
            map(str, dict.fromkeys([hparams.encoder_layers, hparams.decoder_layers]))
        )
        languages = problem.languages[:: -1 if problem.was_reversed else 1]
        return "\n".join(
            [
                f"{', '.join(self.checkpoints)}: step {self.variables.step:,}, {count:,} "
                f"parameters, layers: {layers}, width {hparams.hidden_size}, "
                f"{'pre-norm' if hparams.norm_before else 'post-norm'}",
                self._hparams_line(),
                f"vocabulary: {vocabularies}",
                f"problem: {problem.name}"
                + (f", {' to '.join(languages)}" if all(languages) else ""),
                f"not used: {', '.join(unused) or 'nothing'}",
            ]
        )

    def write(self, output_dir: str) -> str:
        """Writes the model folder, and returns the path of its checkpoint. Raises UserError if the
        folder has files.
        """
        content = self.hparams, self.problem, self.vocabulary
        return write_imported(output_dir, content, self.variables.weights, self.variables.step)


def _flags(folder: Path) -> dict[str, str]:
    """Returns the flags of tensor2tensor's run that wrote a folder, by name."""
    files = [folder / name for name in FLAG_FILES if (folder / name).exists()]
    matches = [
        re.fullmatch(r"--(\w+)=(.*)", line)
        for file in files
        for line in read_text(file).splitlines()
    ]
    return {match[1]: match[2] for match in matches if match}


def _last_checkpoints(path: Path, count: int, prefix: str) -> list[str]:
    """Returns the paths of a folder's last `count` checkpoints, oldest first. Raises UserError if
    it has fewer.
    """
    paths = checkpoints_in(path, prefix)
    if len(paths) < count:
        others = [str(index.with_suffix("")) for index in path.glob("*ckpt-*.index") if not paths]
        raise UserError(
            f"{path}: has {counted(len(paths), 'checkpoint')} {prefix}-*, not {count}; give "
            f"--average_last={len(paths) or 1} or "
            + (
                f"--checkpoint={(others or ['FILE'])[0]}"
                if prefix == CHECKPOINT
                else "another folder"
            )
        )
    return paths[-count:]


def _problem(name: str, request: Request) -> Problem:
    """Returns the problem of the training, or t2t_text if it is not registered here or the request
    has settings.

    t2t_text has the settings of the request, and otherwise those of the problem of the training.
    """
    defaults: dict[str, Any] = {}
    given: dict[str, Any] = {"languages": request.languages} if request.languages else {}
    given |= {"target_space": request.target_space_id} if request.target_space_id >= 0 else {}
    direction = -1 if name.endswith(registry.REVERSED) else 1
    if name and registry.has_problem(name):
        training = registry.problem(name)
        if not given:
            return training
        languages = training.languages[::direction]
        defaults = {
            "languages": ",".join(languages) if all(languages) else "",
            "target_space": training.target_space_id,
        }
    elif pair := LANGUAGES_IN_NAME.match(name):
        defaults = {"languages": ",".join(pair.groups()[::direction])}
    return registry.problem("t2t_text", defaults | given)
