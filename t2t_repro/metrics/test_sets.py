"""A reader of published test sets, each with sources and references, under the names that sacreBLEU
gives them.
"""

import contextlib
import copy
from pathlib import Path

from sacrebleu.dataset import DATASETS
from sacrebleu.dataset.base import Dataset
from sacrebleu.dataset.fake_sgml import FakeSGMLDataset
from sacrebleu.utils import SACREBLEU_DIR

from t2t_repro.corpora import archives
from t2t_repro.corpora.archives import UNREADABLE, Archive, MissingArchiveError
from t2t_repro.errors import UserError, refuse_different_counts, refuse_unknown
from t2t_repro.files.textfile import read_lines, unescape


def names(language_pair: str) -> list[str]:
    """Returns the names of the test sets for a language pair, e.g. "en-de". Raises UserError if
    there is none.
    """
    if test_sets := sorted(
        name for name, dataset in DATASETS.items() if language_pair in dataset.langpairs
    ):
        return test_sets
    raise UserError(
        f"sacreBLEU has no test set for the language pair {language_pair!r}; an example is en-de"
    )


def read(
    name: str, language_pair: str, folder: str | Path = SACREBLEU_DIR
) -> list[tuple[str, ...]]:
    """Returns the source and the references of each sentence in a test set, as plain text.

    The text is read from sacreBLEU's own folder ($SACREBLEU, by default ~/.sacrebleu). If the test
    set is missing there, sacreBLEU first extracts it from its archives in `folder`, which are
    downloaded if they are missing, too.

    Raises UserError if the name or the language pair is unknown, or the test set is damaged or
    cannot be downloaded.
    """
    refuse_unknown("test set", name, DATASETS)
    dataset = DATASETS[name]
    refuse_unknown(f"language pair of test set {name}", language_pair, dataset.langpairs)
    paths = _files(dataset, language_pair, folder)
    columns = [list(read_lines(path)) for path in paths]
    cure = f"remove {Path(paths[0]).parent} and try again"
    refuse_different_counts(paths, list(map(len, columns)), cure)
    if not columns[0]:
        raise UserError(f"{paths[0]}: empty; {cure}")
    if isinstance(dataset, FakeSGMLDataset):
        # In these test sets, sacreBLEU keeps entities such as &amp;
        columns = [list(map(unescape, lines)) for lines in columns]
    return list(zip(*columns, strict=True))


def _files(dataset: Dataset, language_pair: str, folder: str | Path) -> list[str]:
    """Returns the paths of a test set's source and references in sacreBLEU's folder. Creates
    missing files.
    """
    urls = dataset.data or []
    checksums = [f"md5:{md5}" for md5 in dataset.md5 or []] or [""] * len(urls)
    published = [
        Archive(url, checksum=checksum) for url, checksum in zip(urls, checksums, strict=True)
    ]
    dataset = copy.copy(dataset)

    def paths() -> list[str]:
        return [dataset.get_source_file(language_pair), *dataset.get_reference_files(language_pair)]

    # The first attempt gives sacreBLEU no URLs, so that it uses only the files in its folder. If
    # some are missing, the second attempt gives it file:// URLs of archives that `archives.find`
    # has downloaded and verified. sacreBLEU's own download would accept a partial file, and would
    # end the program if a checksum differs.
    dataset.data = []
    with contextlib.suppress(OSError):
        return paths()
    try:
        dataset.data = [path.resolve().as_uri() for path in archives.find(published, folder)]
    except MissingArchiveError as error:
        raise MissingArchiveError(
            f"{error}; or set $SACREBLEU to a folder in which sacreBLEU has the set"
        ) from None
    try:
        return paths()
    except UNREADABLE as error:
        raise UserError(
            f"{Path(SACREBLEU_DIR, dataset.name)}: sacreBLEU cannot write test set {dataset.name} "
            f"there ({error}); remove that folder and try again"
        ) from None
