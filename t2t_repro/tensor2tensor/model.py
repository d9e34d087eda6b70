"""Finds the parts of a model that tensor2tensor trained, and writes them as a model folder."""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from t2t_repro import registry
from t2t_repro.checkpoints.imported import ImportedModel
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
from t2t_repro.tensor2tensor.hparams import fit, translate
from t2t_repro.tensor2tensor.variables import SCOPE, T2TVariables

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
    """The flags of t2t-import. Without a flag, the checkpoint's folder has the value."""

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


class Import(ImportedModel):
    """A model of tensor2tensor: its weights, hparams and vocabulary in our form. `write` writes the
    model folder.

    Raises UserError if something is missing, damaged or cannot be imported, or two files contradict
    each other.
    """

    variables_class: ClassVar[type[T2TVariables]] = T2TVariables
    prefix: ClassVar[str] = CHECKPOINT

    def __init__(self, request: Request) -> None:
        if bool(request.t2t_model) == bool(request.checkpoint):
            raise UserError(
                "--t2t_model or --checkpoint: give one of them, the folder of a model or a file"
            )
        self._request = request
        self._folder = Path(request.t2t_model or Path(request.checkpoint).parent)
        self._flags = _flags(self._folder)
        if request.t2t_model:
            self.checkpoints = _last_checkpoints(self._folder, request.average_last, self.prefix)
        else:
            self.checkpoints = [find_checkpoint(request.checkpoint, "--checkpoint")]
        # imported here, because it loads TensorFlow
        from t2t_repro.models.model import model_without_values

        self.variables = self.variables_class(self.checkpoints)
        self.weights = self.variables.weights
        self.step = self.variables.step
        self.hparams, self._hparams_source = self._hparams()
        source_size, size = self.variables.vocab_sizes()
        model = model_without_values(
            self.hparams, size, source_vocab_size=source_size if source_size != size else 0
        )
        refuse_misfit(model, Checkpoint(self.weights, ""), self.variables.path)
        name = request.problem or self._flags.get("problem", "")
        self.problem = _problem(name, request)
        base_name = name.removesuffix(registry.REVERSED)
        source, self._source_path = self._vocabulary("source", source_size, base_name)
        target, self._target_path = self._vocabulary("target", size, base_name)
        self.vocabulary = target.with_sources(source)
        is_shared = f"{SCOPE}target_embedding/table" not in self.weights
        if self.vocabulary.separate_source_size and is_shared:
            raise UserError(
                f"{self.variables.path}: both sides share an embedding; give one --vocab for both"
            )

    def _hparams(self) -> tuple[HParams, str]:
        """Returns the hparams, and the name of their set or the path of their file."""
        request = self._request
        sizes = self.variables.sizes()
        if request.hparams_set and not request.hparams_json:
            return fit(registry.hparams(request.hparams_set), sizes), request.hparams_set
        # An average lies in another folder than its training.
        places = [self._folder, *self._places("output_dir")]
        files = [str(place / HPARAMS) for place in places if (place / HPARAMS).is_file()]
        if request.hparams_json:
            files = [request.hparams_json]
        if not files:
            raise UserError(
                f"{self._folder}: no hparams.json there, and the weights do not tell the number "
                "of heads; give --hparams_json or --hparams_set"
            )
        source = files[0]
        t2t_hparams = parse_json(read_text(source), source)
        try:
            if not isinstance(t2t_hparams, dict):
                raise UserError("not a JSON object; restore the file")
            return translate(t2t_hparams, sizes), source
        except UserError as error:
            raise UserError(f"{source}: {error}") from None

    def _vocabulary(self, side: str, size: int, problem: str) -> tuple[Vocabulary, str]:
        """Returns the vocabulary of a side, "source" or "target", and the path of its file.

        Raises UserError if no vocabulary has one entry for each row of the embedding, or several
        vocabularies do.
        """
        path = getattr(self._request, f"{side}_vocab") or self._request.vocab
        if not path:
            return self._vocabulary_file(size, side, problem)
        vocabulary = self._load(path, side)
        if vocabulary.size != size:
            raise UserError(
                f"{path}: has {vocabulary.size:,} entries, but the {side} embedding of "
                f"{self.variables.path} has {size:,}; give the vocabulary of its training"
            )
        return vocabulary, path

    def _load(self, path: str | Path, side: str) -> Vocabulary:
        return load_vocabulary(path, self._request.vocab_type)

    def _vocabulary_file(self, size: int, side: str, problem: str) -> tuple[Vocabulary, str]:
        """Returns the vocabulary of `size` entries in the folders of the training, and the path of
        its file.
        """
        places = [self._folder, *self._places("data_dir")]
        paths = {path for place in places for path in place.glob("vocab.*") if path.is_file()}
        of_problem = {path for path in paths if path.name.startswith(f"vocab.{problem}.")}
        files = sorted(of_problem or paths)
        fitting: dict[str, tuple[Vocabulary, str]] = {}
        for file in files:
            try:
                vocabulary = self._load(file, side)
            except UserError:
                # If there are several files, this one may belong to another problem.
                if len(files) == 1:
                    raise
                continue
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
        hparams = self.hparams
        vocabulary = self.vocabulary
        layers = dict.fromkeys([str(hparams.encoder_layers), str(hparams.decoder_layers)])
        vocabularies = f"{vocabulary.size:,} {vocabulary.kind} ({self._target_path})"
        if vocabulary.separate_source_size:
            sources = vocabulary.sources
            vocabularies = (
                f"{sources.size:,} {sources.kind} ({self._source_path}) to {vocabularies}"
            )
        unused = [f"{kind} ({number})" for kind, number in sorted(self.variables.unused.items())]
        lines = [
            f"{', '.join(self.checkpoints)}: step {self.step:,}, {self._size()}, "
            f"layers: {' and '.join(layers)}, width {hparams.hidden_size}, "
            f"{'pre-norm' if hparams.norm_before else 'post-norm'}",
            self._hparams_line(),
            f"vocabulary: {vocabularies}",
            self._problem_line(),
            f"not used: {', '.join(unused) or 'nothing'}",
        ]
        return "\n".join(lines)


def _flags(folder: Path) -> dict[str, str]:
    """Returns the flags of tensor2tensor's run that wrote a folder, by name."""
    values: dict[str, str] = {}
    for file in FLAG_FILES:
        if (folder / file).exists():
            values |= re.findall(r"^--(\w+)=(.*)$", read_text(folder / file), re.MULTILINE)
    return values


def _last_checkpoints(path: Path, count: int, prefix: str) -> list[str]:
    """Returns the paths of a folder's last `count` checkpoints, oldest first. Raises UserError if
    it has fewer.
    """
    paths = checkpoints_in(path, prefix)
    if len(paths) < count:
        cure = "another folder"
        if prefix == CHECKPOINT:
            others = [str(index.with_suffix("")) for index in path.glob("*ckpt-*.index")]
            cure = f"--checkpoint={others[0] if others and not paths else 'FILE'}"
        raise UserError(
            f"{path}: has {counted(len(paths), 'checkpoint')} {prefix}-*, not {count}; give "
            f"--average_last={len(paths) or 1} or {cure}"
        )
    return paths[-count:]


def _problem(name: str, request: Request) -> Problem:
    """Returns the problem of the training, or t2t_text if it is not registered here or the request
    has settings.

    t2t_text has the settings of the request, and otherwise the settings of the training's problem.
    """
    requested: dict[str, Any] = {}
    if request.languages:
        requested["languages"] = request.languages
    if request.target_space_id >= 0:
        requested["target_space"] = request.target_space_id
    defaults: dict[str, Any] = {}
    languages: list[str] = []
    if name and registry.has_problem(name):
        training = registry.problem(name)
        if not requested:
            return training
        languages += training.languages
        defaults["target_space"] = training.target_space_id
    elif pair := LANGUAGES_IN_NAME.match(name):
        languages += pair.groups()
    if name.endswith(registry.REVERSED):
        languages.reverse()
    if languages and all(languages):
        defaults["languages"] = ",".join(languages)
    return registry.problem("t2t_text", defaults | requested)
