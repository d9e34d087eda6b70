"""WMT 2014, English to German and to French: what the paper's section 5.1 trains on, and its test set.

TensorFlow Datasets' builder wmt14_translate says which corpora make up a split, where they are published, with which
checksums and under which paths. The files are read here: its own parsers take a whole file into memory and leave
SGML's entities in the text, and its downloads wait minutes where there is no network and cannot be interrupted.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from t2t_repro import registry
from t2t_repro.corpora.archives import Archive, MissingArchiveError, unpack
from t2t_repro.corpora.parallel import Pair, read_pairs, unescape
from t2t_repro.problem import Problem, setting
from t2t_repro.textfile import read_lines

BUILDER_SPLITS = {"train": "train", "dev": "validation", "test": "test"}
"""What TensorFlow Datasets calls our splits."""
DEV, FULL = "wmt13", "wmt14/full"
SEGMENT = re.compile(r"<seg [^>]*>(.*)</seg>")


class Wmt14(Problem):
    """English to `foreign` on the data of the WMT 2014 translation task; dev is newstest2013."""

    foreign: ClassVar[str]
    """The other language, in two letters."""
    test_sets: ClassVar[tuple[str, ...]] = (DEV, "wmt14", FULL)
    dev_set: ClassVar[str] = DEV

    @property
    def is_self_contained(self) -> bool:
        """No: there are gigabytes to download."""
        return False

    def generate(self, split: str, tmp_dir: str) -> Iterator[Pair]:
        """The pairs of each corpus as published, in the builder's order, those with an empty side included.

        Raises:
            UserError: an archive cannot be had (all that are missing are named) or is damaged, a file is not UTF-8, or
                the two files of a corpus have different numbers of lines.
        """
        other = {"train": "dev", "dev": "train"}[split]
        corpora = self._corpora(split)
        folder = unpack(corpora, tmp_dir, self._corpora(other))
        for source, target in corpora.values():
            yield from read_pairs(folder / source, folder / target)

    def test_set(self, name: str, tmp_dir: str) -> Iterator[Pair]:
        """newstest2013 under sacreBLEU's name for it, "wmt13", and newstest2014.

        Of the latter, "wmt14" is the pairs of the official evaluation and "wmt14/full" all 3,003, both as sacreBLEU's.
        Where sacreBLEU's archive of the full set is not to be had, the builder's copy of it serves as well.

        Raises:
            UserError: no such set, or its source is missing or damaged.
        """
        if name not in self.test_sets:
            return super().test_set(name, tmp_dir)
        if name == DEV:
            return self.generate("dev", tmp_dir)
        from t2t_repro.metrics import test_sets  # here, since sacreBLEU takes a while to import

        try:
            rows = test_sets.read(name, f"en-{self.foreign}", tmp_dir)
        except MissingArchiveError as error:
            if name != FULL:
                raise
            return self._newstest2014(tmp_dir, error)
        return ({"inputs": source, "targets": reference} for source, reference in rows)

    def _newstest2014(self, tmp_dir: str, missing: MissingArchiveError) -> Iterator[Pair]:
        """All of newstest2014 from the builder's archive; raises `missing` with its name where that is missing too."""
        corpora = self._corpora("test")
        try:
            folder = unpack(corpora, tmp_dir)
        except MissingArchiveError:
            raise MissingArchiveError(f"{missing}; or put {', '.join(map(str, corpora))} into {tmp_dir}") from None
        ((source, target),) = corpora.values()
        return read_pairs(folder / source, folder / target, segments)

    def _corpora(self, split: str) -> dict[Archive, tuple[str, str]]:
        """The archives of a split, and the paths inside each of its English and its foreign file."""
        import tensorflow_datasets as tfds
        from tensorflow_datasets.core.download.checksums import get_all_url_infos
        from tensorflow_datasets.translate.wmt import DATASET_MAP

        builder = tfds.builder_cls("wmt14_translate")(config=f"{self.foreign}-en")
        published = get_all_url_infos()  # of all builders: this one's own list lacks the UN's and the Giga corpus
        corpora = {}
        for name in builder.subsets[BUILDER_SPLITS[split]]:
            corpus = DATASET_MAP[name]
            (url,), (foreign, english) = corpus.get_url(self.foreign), corpus.get_path(self.foreign)
            info = published.get(url)
            archive = Archive(url, int(info.size), f"sha256:{info.checksum}") if info else Archive(url)
            corpora[archive] = (english, foreign)
        return corpora


def segments(path: str) -> Iterator[str]:
    """The sentences of an SGML file, without its marks and with single spaces, as sacreBLEU has them."""
    for line in read_lines(path):
        found = SEGMENT.match(line)
        if found:
            yield unescape(" ".join(found[1].split()))


@registry.register_problem
class WmtEnde(Wmt14):
    """WMT 2014 English to German, 4.5 million pairs as in the paper; downloads 1.7 GB to --tmp_dir."""

    foreign = "de"
    file_suffixes = ("en", "de")
    target_space_id: ClassVar[int] = 8  # German words, in tensor2tensor's numbering

    @dataclass(frozen=True)
    class Settings(Problem.Settings):
        """The paper's vocabulary."""

        vocab_size: int = setting(37000)


@registry.register_problem
class WmtEnfr(Wmt14):
    """WMT 2014 English to French, 41 million pairs (the paper: 36 million); downloads 6.7 GB to --tmp_dir."""

    foreign = "fr"
    file_suffixes = ("en", "fr")
    target_space_id: ClassVar[int] = 6  # French words
