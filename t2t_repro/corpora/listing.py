"""Reads lists of corpora: "europarl.en,europarl.de:1;news.tsv:4;augmented/", or a file
corpora.json.
"""

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from t2t_repro.corpora.augmented import Augmentation, read_augmentation, read_augmented, shard_path
from t2t_repro.corpora.parallel import Pair, read_pairs, read_rows, read_tsv
from t2t_repro.corpora.parts import line_ranges
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import from_fields
from t2t_repro.files.textfile import OPENERS
from t2t_repro.files.untrusted import parse_json, read_text

SUFFIXES = (".tsv", ".jsonl")
"""Suffixes of the name of a file with both sides, without that of a compression."""
CURE = 'write {"NAME": {"files": ["a.en", "a.de"], "weight": 1}, ...}'


@dataclass(frozen=True)
class Corpus:
    """A value in corpora.json."""

    files: list = field(default_factory=list)
    """Paths of the source and the target file, of one file with both sides, or of a folder of
    t2t-augment.
    """
    weight: float = 0.0
    """0.0 if the list gives no weight."""
    target_language: str = ""


@dataclass(frozen=True)
class CorpusFiles(Corpus):
    """The files of a corpus, and what a list says about it."""

    name: str = ""
    listed_in: str = ""
    """The corpora.json that has the corpus; "" for none."""

    @property
    def target_name(self) -> str:
        """Name of the target file, without its folder and the suffix of a compression."""
        return os.path.basename(_unpacked(self.files[-1].rstrip("/")))

    @property
    def augmentation(self) -> Augmentation | None:
        """The settings of t2t-augment if the corpus is a folder, else None. UserError if they are
        damaged.
        """
        is_folder = len(self.files) == 1 and os.path.isdir(self.files[0])
        return read_augmentation(self.files[0]) if is_folder else None

    def read(self, languages: tuple[str, str], part: Any = None) -> Iterator[Pair]:
        """Yields the pairs, or only those of one of the `parts`.

        `languages` are the keys of source and target in a JSONL file.
        """
        if len(self.files) == 2:
            source, target = self.files
            return read_pairs(source, target, part)
        [path] = self.files
        if self.augmentation:
            return read_augmented(path) if part is None else read_tsv(part)
        return read_tsv(path, part) if _suffix(path) == ".tsv" else read_rows(path, languages, part)

    def parts(self) -> Sequence[Any]:
        """Returns parts of the corpus that several processes can read at the same time; see
        `Problem.parts`.
        """
        if augmentation := self.augmentation:
            return [str(shard_path(self.files[0], number)) for number in range(augmentation.shards)]
        return line_ranges(self.files)


def read_listing(flag: str, value: str) -> list[CorpusFiles]:
    """Returns the corpora that `value`, the value of a flag, lists.

    Raises UserError if a corpus has other files than it must, or a weight that is no number above
    0.
    """
    corpora = []
    for item in value.split(";"):
        paths, colon, weight = item.rpartition(":")
        # A colon in the name of an existing file begins no weight.
        if not colon or "/" in weight or os.path.exists(item.rpartition(",")[2].strip()):
            paths = item
            weight = ""
        elif not _is_weight(weight):
            raise UserError(
                f"{flag}={item}: the weight must be a number above 0, e.g. {flag}={paths}:2"
            )
        files = [path.strip() for path in paths.split(",")]
        if len(files) == 1 and _suffix(files[0]) == ".json":
            if weight:
                raise UserError(
                    f"{flag}={item}: omit :{weight}; write weights into {paths}, one for each "
                    "corpus"
                )
            corpora += _read_json(files[0])
        else:
            corpus = CorpusFiles(files, float(weight or 0))
            corpora.append(_checked(corpus, f"{flag}={item or value}", f"{flag}=text.en,text.de"))
    return corpora


def _is_weight(value: str | float) -> bool:
    try:
        return 0 < float(value) < math.inf
    except ValueError:
        return False


def _read_json(path: str) -> list[CorpusFiles]:
    try:
        entries = parse_json(read_text(path, cure=CURE), path, CURE)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file; {CURE}") from None
    if not isinstance(entries, dict) or not entries:
        raise UserError(f"{path}: no JSON object with a value for each corpus; {CURE}")
    corpora = []
    for name, fields in entries.items():
        place = f"{path}: {name}"
        corpus = from_fields(Corpus, fields, place)
        if not _is_weight(fields.get("weight", 1)):
            raise UserError(f"{place}: weight={corpus.weight} must be a number above 0")
        files = []
        for file in corpus.files:
            if file and "://" not in str(file):
                file = os.path.join(os.path.dirname(path), str(file))
            files.append(file)
        listed = CorpusFiles(files, corpus.weight, corpus.target_language, name, path)
        corpora.append(_checked(listed, place, CURE))
    return corpora


def _checked(corpus: CorpusFiles, place: str, example: str) -> CorpusFiles:
    files = corpus.files
    if augmentation := corpus.augmentation:
        if augmentation.finished_shards < augmentation.shards:
            raise UserError(
                f"{files[0]}: shards are missing; run t2t-augment again with the same flags"
            )
        return corpus
    has_both_sides = len(files) == 2 or (len(files) == 1 and _suffix(files[0]) in SUFFIXES)
    if not all(files) or not has_both_sides:
        raise UserError(
            f"{place}: name two files, source and target, without commas or semicolons in their "
            f"names, one file .tsv or .jsonl, or a folder of t2t-augment: {example}"
        )
    return corpus


def _unpacked(path: str) -> str:
    root, suffix = os.path.splitext(path)
    return root if suffix.lower() in OPENERS else path


def _suffix(path: str) -> str:
    return os.path.splitext(_unpacked(path))[1].lower()
