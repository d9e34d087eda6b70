"""Published test sets by name, as sacreBLEU has them: sources and references of the pairs that scores are quoted on."""

from __future__ import annotations

import contextlib
import copy
from pathlib import Path

from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.base import Dataset
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset
from sacrebleu.utils import SACREBLEU_DIR

from t2t_repro.corpora import archives
from t2t_repro.corpora.archives import UNREADABLE, Archive, MissingArchiveError
from t2t_repro.corpora.parallel import unescape
from t2t_repro.errors import UserError, unknown
from t2t_repro.textfile import read_lines


def names(language_pair: str) -> list[str]:
    """The test sets there are for a language pair, e.g. "en-de"."""
    return sorted(name for name, dataset in DATASETS.items() if language_pair in dataset.langpairs)


def read(name: str, language_pair: str, folder: str | Path = SACREBLEU_DIR) -> list[tuple[str, ...]]:
    """Source and references of each sentence of a test set, as people read them.

    sacreBLEU looks in its own folder first ($SACREBLEU, by default ~/.sacrebleu), and keeps the set there.

    Args:
        folder: where the set's archives may lie under their published names, or are downloaded to.

    Raises:
        UserError: an unknown name or language pair, a set that neither a folder has nor the network, or a damaged one.
    """
    if name not in DATASETS:
        raise unknown("test set", name, DATASETS)
    dataset = DATASETS[name]
    if language_pair not in dataset.langpairs:
        pairs = ", ".join(sorted(dataset.langpairs))
        raise UserError(f"test set {name} has no language pair {language_pair!r}; there are: {pairs}")
    paths = _files(dataset, language_pair, folder)
    columns = [list(read_lines(path)) for path in paths]
    if len({len(lines) for lines in columns}) > 1 or not columns[0]:
        counts = ", ".join(f"{path} has {len(lines):,} lines" for path, lines in zip(paths, columns, strict=True))
        raise UserError(f"{counts}: not a whole test set; remove {Path(paths[0]).parent} to have it made anew")
    if isinstance(dataset, FakeSGMLDataset):  # sacreBLEU leaves SGML's entities in the text
        columns = [[unescape(line) for line in lines] for lines in columns]
    return list(zip(*columns, strict=True))


def _files(dataset: Dataset, language_pair: str, folder: str | Path) -> list[str]:
    """Paths of sacreBLEU's plain text: the source's, then the references'."""
    urls = dataset.data or []
    checksums = [f"md5:{md5}" for md5 in dataset.md5 or []] or [""] * len(urls)
    published = [Archive(url, checksum=checksum) for url, checksum in zip(urls, checksums, strict=True)]
    dataset = copy.copy(dataset)

    def paths() -> list[str]:
        return [dataset.get_source_file(language_pair), *dataset.get_reference_files(language_pair)]

    # First what sacreBLEU has without the network; then it "downloads" from the disk what we found and checked. By
    # itself it takes for whole what an interrupted download has left, and ends the program where a checksum is wrong.
    dataset.data = []
    with contextlib.suppress(OSError):
        return paths()
    try:
        dataset.data = [path.resolve().as_uri() for path in archives.find(published, folder)]
    except MissingArchiveError as error:
        raise MissingArchiveError(f"{error}; or set $SACREBLEU to a folder where sacreBLEU has the set") from None
    try:
        return paths()
    except UNREADABLE as error:
        place = Path(SACREBLEU_DIR, dataset.name)
        raise UserError(
            f"{place}: sacreBLEU cannot make test set {dataset.name} there ({error}); remove that folder and try again"
        ) from None
