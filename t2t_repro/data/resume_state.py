"""Stores the progress of an unfinished run of t2t-datagen in `.<problem>.unfinished`. The next run resumes it."""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_repro.data import records
from t2t_repro.errors import UserError, shortened
from t2t_repro.files.json_file import JsonFile

SHA256 = re.compile("[0-9a-f]{64}")


def state_path(data_dir: str | Path, problem: str) -> Path:
    """Returns the path of the file that an unfinished run of t2t-datagen leaves. `problem` is without "_rev"."""
    return Path(data_dir) / f".{problem}.unfinished"


@dataclass
class ResumeState(JsonFile):
    """Progress of a run of t2t-datagen: hashes of its input and vocabulary, and the shards that it has finished."""

    fingerprint: str
    """Hash of the text, the settings and the user's vocabulary. A run with another fingerprint does not resume."""
    vocabulary_fingerprint: str
    """Twelve hex digits that identify the vocabulary."""
    shards: dict
    """For each finished shard, by file name, a dict of two counts and four hashes. The counts are "text_bytes" and
    "byte_pieces" of the whole shard (see `encoding.Encoded`). The hashes are "sha256" of the shard, "index_sha256" of
    the file of its index, "rows_sha256" of the rows of the index (see `records.rows_sha256`), and "text_sha256" of the
    shard's text."""
    vocabulary_given: bool = False
    """True if the vocabulary came from --vocab_file."""

    def __post_init__(self) -> None:
        """Raises UserError if an entry of `shards` is damaged."""
        check_shards(self.shards)

    def add(self, shard: Path, hashes: dict[str, str], counts: dict[str, int]) -> None:
        """Marks a shard and its index as finished. `hashes` has the shard's hashes except "index_sha256"."""
        self.shards[shard.name] = {**hashes, "index_sha256": _sha256(records.index_path(shard)), **counts}

    def counts(self) -> Counter[str]:
        """Returns "text_bytes" and "byte_pieces" (see `encoding.Encoded`), summed over all finished shards."""
        total = Counter[str]()
        for shard in self.shards.values():
            total.update({name: count for name, count in shard.items() if isinstance(count, int)})
        return total

    def has(self, shard: Path) -> bool:
        """Returns True if a shard is finished, and the files of the shard and its index have not changed since."""
        figures: dict[str, Any] = self.shards.get(shard.name, {})
        files = {"sha256": shard, "index_sha256": records.index_path(shard)}
        return all(file.is_file() and _sha256(file) == figures.get(name) for name, file in files.items())


def check_shards(shards: dict) -> None:
    """Raises UserError unless each value of `shards` is a dict of hashes and counts that has a "sha256"."""
    for name, figures in shards.items():
        is_sound = isinstance(figures, dict) and "sha256" in figures
        if not is_sound or not all(_is_figure(*figure) for figure in figures.items()):
            raise UserError(
                f"shards: {shortened(name)} has {shortened(repr(figures))}, not the hashes and counts of a shard; "
                "restore the file"
            )


def _is_figure(name: str, value: Any) -> bool:
    """Returns True if a value of a shard's dict is valid: a SHA-256 for a name that ends in "sha256", else a count."""
    if name.endswith("sha256"):
        return isinstance(value, str) and SHA256.fullmatch(value) is not None
    return type(value) is int and value >= 0


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
