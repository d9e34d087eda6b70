"""Tests the WMT 2014 problems on small archives. The archives and their files have the published
names.
"""

import gzip
import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS
from tensorflow_datasets.core.download import checksums
from tensorflow_datasets.translate.wmt import DATASET_MAP

from t2t_repro import registry
from t2t_repro.corpora import parts
from t2t_repro.errors import UserError
from tars import write_tar
from user_errors import user_error

EUROPARL = "training-parallel-europarl-v7.tgz"
COMMONCRAWL = "training-parallel-commoncrawl.tgz"
NEWS = "training-parallel-nc-v9.tgz"
UN = "training-parallel-un.tgz"
GIGA = "training-giga-fren.tar"
DEV = "dev.tgz"
PLACES = {
    EUROPARL: "training/europarl-v7.{}-en.{}",
    COMMONCRAWL: "commoncrawl.{}-en.{}",
    NEWS: "training/news-commentary-v9.{}-en.{}",
    UN: "un/undoc.2000.{}-en.{}",
}
CORPORA = {
    "europarl_v7": EUROPARL,
    "commoncrawl": COMMONCRAWL,
    "newscommentary_v9": NEWS,
    "multiun": UN,
    "gigafren": GIGA,
    "newstest2013": DEV,
    "newstest2014": DEV,
}

Put = Callable[[str, Mapping[str, bytes]], Path]


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Replaces all download addresses by missing local files, and sacreBLEU's folder by an empty
    folder.
    """
    for corpus, name in CORPORA.items():
        monkeypatch.setattr(DATASET_MAP[corpus], "_urls", (f"file:///nowhere/{name}",))
    for name in ("wmt14", "wmt14/full"):
        home = tmp_path / "sacrebleu" / name
        monkeypatch.setattr(DATASETS[name], "_outdir", str(home))
        monkeypatch.setattr(DATASETS[name], "_rawdir", str(home / "raw"))
        monkeypatch.setattr(
            DATASETS[name], "data", [f"file:///nowhere/{os.path.basename(DATASETS[name].data[0])}"]
        )


@pytest.fixture
def put(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Put:
    """Returns a function that writes an archive and registers its size and checksum with TensorFlow
    Datasets.
    """

    def put(name: str, files: Mapping[str, bytes]) -> Path:
        path = write_tar(tmp_path / name, files)
        contents = path.read_bytes()
        info = checksums.UrlInfo(len(contents), hashlib.sha256(contents).hexdigest(), name)
        monkeypatch.setitem(checksums.get_all_url_infos(), f"file:///nowhere/{name}", info)
        return path

    return put


def put_corpus(put: Put, name: str, english: bytes, foreign: bytes) -> Path:
    """Writes the archive `name`, whose texts are `english` and `foreign`.

    It has German-English files, whose lines begin with "de", and French-English files, whose lines
    begin with "fr".
    """
    files = {}
    for language in ("de", "fr"):
        for side, text in (("en", english), (language, foreign)):
            text = b"".join(
                language.encode() + b" " + line if line.strip() else line
                for line in text.splitlines(True)
            )
            if name == GIGA:
                files[f"giga-fren.release2.fixed.{side}.gz"] = gzip.compress(text)
            else:
                files[PLACES[name].format(language, side)] = text
    return put(name, files)


def pairs(problem: str, folder: Path, split: str = "train") -> list[tuple[str, str]]:
    return [
        (pair["inputs"], pair["targets"])
        for pair in registry.problem(problem).generate(split, str(folder))
    ]


@pytest.mark.parametrize(("language", "vocab_size", "space"), [("de", 37000, 8), ("fr", 32000, 6)])
def test_the_papers_settings(language: str, vocab_size: int, space: int) -> None:
    problem = registry.problem(f"wmt_en{language}")
    assert (problem.settings.vocab_size, problem.target_space_id) == (vocab_size, space)
    assert (problem.target_language, problem.file_suffixes) == (language, ("en", language))
    assert (
        registry.problem(f"wmt_en{language}_rev").target_language == "en"
        and not problem.is_self_contained
    )


def test_each_language_has_its_corpora(
    tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in (EUROPARL, COMMONCRAWL, UN, NEWS, GIGA):
        put_corpus(put, name, f"{name}\n\nlast".encode(), b"x\n\ny")
    for language, names in (
        ("de", [EUROPARL, COMMONCRAWL, NEWS]),
        ("fr", [EUROPARL, COMMONCRAWL, UN, NEWS, GIGA]),
    ):
        expected = [
            pair
            for name in names
            for pair in (
                (f"{language} {name}", f"{language} x"),
                ("", ""),
                (f"{language} last", f"{language} y"),
            )
        ]
        assert pairs(f"wmt_en{language}", tmp_path) == expected
        assert pairs(f"wmt_en{language}_rev", tmp_path) == pairs(f"wmt_en{language}", tmp_path)
        problem = registry.problem(f"wmt_en{language}")
        monkeypatch.setattr(parts, "PART_LINES", 2)
        ranges = problem.parts("train", 0, str(tmp_path))
        rows = [
            pair for part in ranges for pair in problem.read_part(part, "train", 0, str(tmp_path))
        ]
        assert [tuple(row.values()) for row in rows] == expected and len(ranges) > len(names)


def test_the_dev_split_is_newstest2013_and_needs_one_archive(tmp_path: Path, put: Put) -> None:
    put(
        DEV,
        {
            f"dev/newstest2013.{language}": f"{language}\n".encode()
            for language in ("en", "de", "fr", "cs")
        },
    )
    assert pairs("wmt_ende", tmp_path, "dev") == [("en", "de")]


def test_all_missing_archives_are_named(tmp_path: Path, put: Put) -> None:
    put_corpus(put, COMMONCRAWL, b"x", b"y")
    message = user_error(pairs, "wmt_enfr", tmp_path)
    assert f"put them into {tmp_path}" in message
    assert [name for name in CORPORA.values() if f"(file:///nowhere/{name})" in message] == [
        EUROPARL,
        NEWS,
        UN,
        GIGA,
    ]
    assert os.listdir(tmp_path) == [COMMONCRAWL]


def test_the_checksums_of_all_archives_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    published = checksums.get_all_url_infos()
    for corpus, name in CORPORA.items():
        (url,) = DATASET_MAP[corpus].get_url("fr")
        assert (
            url.endswith(f"/{name}")
            and published[url].size > 30_000_000
            and len(published[url].checksum) == 64
        )


SGML = """<refset setid="newstest2014">
<doc docid="a" genre="news" origlang="de">
<seg id="1">{0} &amp; Co.  KG\u2028heute</seg>
<seg id="2">&quot;{0}&quot; &lt;{0}&gt; caf\u00e9\u00a0: oui</seg>\r
</doc>
</refset>
"""


def test_the_full_test_set_is_read_from_the_dev_archive_if_necessary(
    tmp_path: Path, put: Put
) -> None:
    files = {
        "dev/newstest2014-deen-src.de.sgm": SGML.format("Der").encode(),
        "dev/newstest2014-deen-ref.en.sgm": SGML.format("The").encode(),
    }
    put(DEV, files)
    problem = registry.problem("wmt_ende")
    assert [tuple(pair.values()) for pair in problem.test_set("wmt14/full", str(tmp_path))] == [
        ("The & Co. KG heute", "Der & Co. KG heute"),
        ('"The" <The> café : oui', '"Der" <Der> café : oui'),
    ]
    with pytest.raises(UserError, match=r"test-filtered\.tgz .*set \$SACREBLEU"):
        problem.test_set("wmt14", str(tmp_path))


def test_sacrebleus_archive_of_a_test_set_is_preferred(
    tmp_path: Path, put: Put, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(DEV, {"dev/newstest2014-fren-src.fr.sgm": b"", "dev/newstest2014-fren-ref.en.sgm": b""})
    for name, archive, text in (
        ("wmt14", "test-filtered.tgz", "few"),
        ("wmt14/full", "test-full.tgz", "all"),
    ):
        paths = DATASETS[name].langpairs["en-fr"]
        path = write_tar(tmp_path / archive, {path: SGML.format(text).encode() for path in paths})
        monkeypatch.setattr(DATASETS[name], "md5", [hashlib.md5(path.read_bytes()).hexdigest()])
        test_set = list(registry.problem("wmt_enfr").test_set(name, str(tmp_path)))
        assert [pair["inputs"].split()[0] for pair in test_set] == [text, f'"{text}"']
        assert [pair["targets"] for pair in test_set] == [pair["inputs"] for pair in test_set]
