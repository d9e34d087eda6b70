"""Folders of augmented text, which t2t-augment writes and t2t-datagen reads: --train=C.

augment.json      the settings of t2t-augment, and the numbers of finished shards and pairs
00000.tsv.gz ...  shards with lines source<TAB>target
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from t2t_repro.corpora.parallel import Pair, read_tsv
from t2t_repro.errors import UserError, counted
from t2t_repro.files.json_file import from_json
from t2t_repro.files.untrusted import read_text

FILE_NAME = "augment.json"
CURE = "run t2t-augment again, or give another folder"


@dataclass(frozen=True)
class Augmentation:
    """The content of augment.json."""

    problem: str
    """Name of the problem of the model that translated the text."""
    checkpoint: str
    """File name of the model's checkpoint; several for an ensemble, separated by commas."""
    model: str
    """Twelve hex digits that identify the model: its weights, vocabulary and hparams."""
    decode_hparams: dict
    """Those settings of decoding on which the translations depend, by name, as strings."""
    long_lines: str
    precision: str
    text: str
    """Hash of the lines of the text."""
    lines: int
    """Number of lines of the text."""
    synthetic: str
    """The side that the model wrote: "source" or "target"."""
    source_language: str
    target_language: str
    """Languages of the two sides; "" if unknown."""
    train_tag: str
    """The first word of each source; "" for none."""
    shard_lines: int
    """Number of lines of the text that become a shard."""
    shards: int
    """Number of shards of the whole text."""
    finished_shards: int = 0
    pairs: int = 0
    """Number of pairs in the finished shards."""
    dropped: int = 0
    """Number of pairs that the finished shards lack because a side was empty."""

    def require_complete(self, folder: str) -> None:
        """Raises UserError unless all shards are finished."""
        if self.finished_shards != self.shards:
            raise UserError(
                f"{folder}: t2t-augment has finished only {self.finished_shards:,} of {counted(self.shards, 'shard')}; "
                "run it again with the same flags"
            )


def read_augmentation(folder: str | Path) -> Augmentation:
    """Returns the content of a folder's augment.json. Raises UserError if it is missing or damaged."""
    path = Path(folder, FILE_NAME)
    try:
        return from_json(Augmentation, read_text(path, cure=CURE), str(path))
    except FileNotFoundError:
        raise UserError(f"{folder}: no {FILE_NAME}, so t2t-augment did not write this folder; name files") from None


def shard_path(folder: str | Path, number: int) -> Path:
    """Returns the path of a shard; `number` counts from 0."""
    return Path(folder, f"{number:05d}.tsv.gz")


def read_augmented(folder: str | Path) -> Iterator[Pair]:
    """Yields the pairs of all finished shards. Raises UserError if a shard is missing or damaged."""
    for number in range(read_augmentation(folder).finished_shards):
        yield from read_tsv(str(shard_path(folder, number)))
