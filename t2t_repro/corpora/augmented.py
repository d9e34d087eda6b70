"""Folders of augmented text, which t2t-augment writes and t2t-datagen reads: --train=C.

augment.json      the settings of t2t-augment, and the numbers of finished shards and pairs
00000.tsv.gz ...  shards with lines source<TAB>target
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from t2t_repro.corpora.parallel import Pair, read_tsv
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import from_json
from t2t_repro.files.untrusted import read_text

FILE_NAME = "augment.json"


@dataclass(frozen=True)
class Augmentation:
    """The content of augment.json."""

    settings: dict
    """Everything on which the pairs depend: the model, a hash of the text, the decode hparams and
    so on.
    """
    source_language: str
    target_language: str
    """Languages of the two sides; "" if unknown."""
    train_tag: str
    """First word of each source; "" for none."""
    shards: int
    """Number of shards of the whole text."""
    finished_shards: int = 0
    pairs: int = 0
    dropped: int = 0
    """Numbers of pairs in the finished shards, and of pairs that were dropped because a side was
    empty.
    """


def read_augmentation(folder: str | Path) -> Augmentation:
    """Returns the content of a folder's augment.json. Raises UserError if it is missing or
    damaged.
    """
    path = Path(folder, FILE_NAME)
    try:
        return from_json(Augmentation, read_text(path), str(path))
    except FileNotFoundError:
        raise UserError(
            f"{folder}: no {FILE_NAME}, so t2t-augment did not write this folder; give another"
        ) from None


def shard_path(folder: str | Path, number: int) -> Path:
    return Path(folder, f"{number:05d}.tsv.gz")


def read_augmented(folder: str) -> Iterator[Pair]:
    """Yields the pairs of all shards. Raises UserError if one is missing or damaged."""
    for number in range(read_augmentation(folder).shards):
        yield from read_tsv(str(shard_path(folder, number)))
