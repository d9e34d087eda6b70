"""WMT 2014 English to German and English to French: the training data and the test set of the
paper's section 5.1.

TensorFlow Datasets' builder wmt14_translate lists the corpora of each split, their addresses,
checksums and paths. This module uses the list but downloads and reads the files itself, because the
builder's parsers load whole files into memory and keep SGML entities, and its downloads hang for
minutes without a network and cannot be interrupted. TensorFlow Datasets is in the extra "datasets":
pip install "t2t_repro[datasets]".
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_repro import registry
from t2t_repro.corpora.archives import Archive, MissingArchiveError, unpack
from t2t_repro.corpora.parallel import Pair, read_pairs
from t2t_repro.corpora.parts import line_ranges
from t2t_repro.errors import require_extra
from t2t_repro.problem import Problem, SpaceID, setting

BUILDER_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""The splits' names in TensorFlow Datasets, by their names in this project."""
DEV = "wmt13"
FULL = "wmt14/full"


class Wmt14(Problem):
    """Base class of the problems with data of WMT 2014: translation from English. The dev split is
    newstest2013.

    A subclass has the `languages` "en" and "de" or "fr".
    """

    test_sets = (DEV, "wmt14", FULL)
    dev_set = DEV
    is_self_contained = False

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields all pairs of a split's corpora, one corpus after the other.

        Raises UserError if an archive or file is missing or damaged. The message names all missing
        archives.
        """
        corpora = self._corpora(split)
        folder = unpack(corpora, tmp_dir)
        for source, target in corpora.values():
            yield from read_pairs(folder / source, folder / target)

    def parts(self, split: str, number: int, tmp_dir: str) -> Sequence[Any]:
        corpora = self._corpora(split)
        folder = unpack(corpora, tmp_dir)
        paths = [tuple(str(folder / file) for file in files) for files in corpora.values()]
        return [(pair, part) for pair in paths for part in line_ranges(pair)]

    def read_part(self, part: Any, split: str, number: int, tmp_dir: str) -> Iterator[Pair]:
        (source, target), lines = part
        return read_pairs(source, target, lines)

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        """Yields the pairs of a test set. The names are sacreBLEU's.

        "wmt13" is newstest2013. "wmt14" holds the pairs of newstest2014 that the official
        evaluation used, and "wmt14/full" holds all 3,003 pairs of newstest2014. If sacreBLEU's
        archive of "wmt14/full" is missing, this method reads the archive that TensorFlow Datasets
        uses instead.
        """
        if name == DEV:
            return self.generate("dev", tmp_dir)
        # Imported late, because sacreBLEU is slow to import.
        from t2t_repro.metrics import test_sets

        try:
            rows = test_sets.read(name, "-".join(self.languages), tmp_dir)
        except MissingArchiveError as missing:
            if name != FULL:
                raise
            corpora = self._corpora("test")
            try:
                folder = unpack(corpora, tmp_dir)
            except MissingArchiveError:
                raise MissingArchiveError(
                    f"{missing}; or put {', '.join(map(str, corpora))} into {tmp_dir}"
                ) from None
            ((source, target),) = corpora.values()
            return read_pairs(folder / source, folder / target)
        return ({"inputs": source, "targets": reference} for source, reference in rows)

    def _corpora(self, split: str) -> dict[Archive, tuple[str, str]]:
        """Returns, for each archive of a split, the paths of the English and the foreign file
        inside the archive.
        """
        require_extra("datasets", "tensorflow_datasets")
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.download.checksums import get_all_url_infos
        from tensorflow_datasets.translate.wmt import DATASET_MAP

        language = self.languages[1]
        builder = tfds.builder_cls("wmt14_translate")(config=f"{language}-en")
        # Look up sizes and checksums in the lists of all builders, because this builder's list
        # lacks two corpora.
        published = get_all_url_infos()
        corpora = {}
        for name in builder.subsets[BUILDER_SPLITS[split]]:
            corpus = DATASET_MAP[name]
            (url,) = corpus.get_url(language)
            foreign, english = corpus.get_path(language)
            archive = Archive(url)
            if info := published.get(url):
                archive = Archive(url, int(info.size), f"sha256:{info.checksum}")
            corpora[archive] = (english, foreign)
        return corpora


@registry.register_problem
class WmtEnde(Wmt14):
    """WMT 2014 English to German, 4.5 million pairs as in the paper; downloads 1.7 GB to
    --tmp_dir.
    """

    languages = file_suffixes = ("en", "de")
    target_space_id = SpaceID.DE_TOK

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        vocab_size: int = setting(37000)


@registry.register_problem
class WmtEnfr(Wmt14):
    """WMT 2014 English to French, 41 million pairs (the paper: 36 million); downloads 6.7 GB to
    --tmp_dir.
    """

    languages = file_suffixes = ("en", "fr")
    target_space_id = SpaceID.FR_TOK

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        vocab_size: int = setting(32000)
