"""The progress of an unfinished t2t-datagen, from which the next run resumes: the file `.<problem>.unfinished`."""

from __future__ import annotations

import hashlib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from t2t_repro.data import records
from t2t_repro.hparam import JsonFile


@dataclass
class ResumeState(JsonFile):
    """The vocabulary and the shards that a run has finished."""

    fingerprint: str
    """Identifies the run's text and settings. A run over other text or with other settings starts over."""
    vocabulary_fingerprint: str
    """Identifies the vocabulary."""
    shards: dict
    """For each finished shard, by file name: "sha256" and "index_sha256" of the shard and its index, and the counts of
    `encoding.Encoded`."""
    vocabulary_given: bool = False
    """True if the vocabulary came from --vocab_file."""

    def add(self, shard: Path, sha256: str, counts: dict[str, int]) -> None:
        """Records that a shard and its index are finished."""
        self.shards[shard.name] = {"sha256": sha256, "index_sha256": _sha256(records.index_path(shard)), **counts}

    def counts(self) -> Counter[str]:
        """Returns the sums of all shards' counts."""
        total = Counter[str]()
        for shard in self.shards.values():
            total.update({name: count for name, count in shard.items() if not name.endswith("sha256")})
        return total

    def has(self, shard: Path) -> bool:
        """Returns True if a shard is finished, and it and its index are unchanged since then."""
        figures: dict[str, Any] = self.shards.get(shard.name, {})
        files = {"sha256": shard, "index_sha256": records.index_path(shard)}
        return all(file.is_file() and _sha256(file) == figures.get(name) for name, file in files.items())


def _sha256(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
