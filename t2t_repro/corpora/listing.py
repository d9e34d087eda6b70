"""Reads lists of corpora: "europarl.en,europarl.de:1;news.tsv:4", or a file corpora.json."""

import math
import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from t2t_repro.corpora.parallel import Pair, read_pairs, read_rows, read_tsv
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import from_fields
from t2t_repro.files.textfile import OPENERS
from t2t_repro.files.untrusted import parse_json, read_text

READERS = {".tsv": read_tsv, ".jsonl": read_rows}
"""Functions that read a file with both sides, by suffix of its name without that of a compression."""
CURE = 'write {"NAME": {"files": ["a.en", "a.de"], "weight": 1}, ...}'


@dataclass(frozen=True)
class CorpusFiles:
    """The files of a corpus, and what a list says about it."""

    paths: tuple[str, ...]
    """Source and target file, or one file with both sides."""
    weight: float | None = None
    name: str = ""
    target_language: str = ""
    listed_in: str = ""
    """The corpora.json that has the corpus; "" for none."""

    @property
    def target_name(self) -> str:
        """Name of the target file, without its folder and the suffix of a compression."""
        return os.path.basename(_unpacked(self.paths[-1]))

    def read(self, languages: tuple[str, str]) -> Iterator[Pair]:
        """Yields the pairs. `languages` are the keys of source and target in a JSONL file."""
        if len(self.paths) == 2:
            return read_pairs(*self.paths)
        return READERS[_suffix(self.paths[0])](self.paths[0], languages)


@dataclass(frozen=True)
class Entry:
    """A value in corpora.json."""

    files: list = field(default_factory=list)
    weight: float = 1.0
    target_language: str = ""


def read_listing(flag: str, value: str) -> list[CorpusFiles]:
    """Returns the corpora that `value`, the value of a flag, lists.

    Raises UserError if a corpus has other files than it must, or a weight that is no number above 0.
    """
    corpora = []
    for item in value.split(";"):
        files, weight = _split_weight(flag, item)
        paths = tuple(path.strip() for path in files.split(","))
        if len(paths) == 1 and _suffix(paths[0]) == ".json" and weight is None:
            corpora += _read_json(paths[0])
        else:
            _check_files(f"{flag}={value}", paths, f"{flag}=text.en,text.de")
            corpora.append(CorpusFiles(paths, weight))
    return corpora


def _split_weight(flag: str, item: str) -> tuple[str, float | None]:
    """Returns "a.en,a.de" and 2.0 for "a.en,a.de:2". A colon in the name of an existing file begins no weight."""
    files, colon, weight = item.rpartition(":")
    if not colon or "/" in weight or os.path.exists(item.rpartition(",")[2].strip()):
        return item, None
    try:
        number = float(weight)
    except ValueError:
        number = 0.0
    return files, _checked_weight(f"{flag}={item.strip()}", number)


def _checked_weight(place: str, weight: float) -> float:
    if not 0 < weight < math.inf:
        raise UserError(f"{place}: the weight must be a number above 0, e.g. {place.rpartition(':')[0]}:2")
    return weight


def _check_files(place: str, paths: tuple[str, ...], example: str) -> None:
    if not all(paths) or len(paths) not in (1, 2) or (len(paths) == 1 and _suffix(paths[0]) not in READERS):
        raise UserError(
            f"{place}: name two files, source and target, without commas or semicolons in their names, or one file "
            f".tsv or .jsonl: {example}"
        )


def _read_json(path: str) -> list[CorpusFiles]:
    entries = parse_json(read_text(path, cure=CURE), path, CURE)
    if not isinstance(entries, dict) or not entries:
        raise UserError(f"{path}: no JSON object with a value for each corpus; {CURE}")
    corpora = []
    for name, fields in entries.items():
        place = f"{path}: {name}"
        entry = from_fields(Entry, fields, place)
        paths = tuple(os.path.join(os.path.dirname(path), str(file)) if file else "" for file in entry.files)
        _check_files(place, paths, CURE)
        if not 0 < entry.weight < math.inf:
            raise UserError(f"{place}: weight={entry.weight} must be above 0")
        weight = entry.weight if "weight" in fields else None
        corpora.append(CorpusFiles(paths, weight, name, entry.target_language, path))
    return corpora


def refuse_repeated(flag: str, corpora: list[CorpusFiles]) -> None:
    """Raises UserError if two corpora have the same target file, or source and target of a corpus are one file."""
    targets = set[str]()
    for corpus in corpora:
        target = os.path.realpath(corpus.paths[-1])
        if len(corpus.paths) == 2 and os.path.realpath(corpus.paths[0]) == target:
            raise UserError(f"{flag}: {corpus.paths[-1]} is source and target of a corpus; name two files")
        if target in targets:
            raise UserError(f"{flag}: {corpus.paths[-1]} is the target file of two corpora; name it once")
        targets.add(target)


def _unpacked(path: str) -> str:
    root, suffix = os.path.splitext(path)
    return root if suffix.lower() in OPENERS else path


def _suffix(path: str) -> str:
    return os.path.splitext(_unpacked(path))[1].lower()
