"""Tests that published test sets are read from sacreBLEU's folder, archives or the network, and
damage is reported.
"""

import hashlib
from pathlib import Path

import pytest
from sacrebleu.dataset import DATASETS

from t2t_repro.corpora.archives import MissingArchiveError
from t2t_repro.metrics import test_sets
from tars import write_tar
from user_errors import user_error

NAME = "wmt14/full"
SOURCE = """<srcset setid="newstest2014" srclang="any">
<doc sysid="ref" docid="bbc.1" genre="news" origlang="en">
<p>
<seg id="1">Standard &amp; Poor's  says &lt;no&gt;.</seg>
<seg id="2">The&#160;end\u2028of\u00a0it.</seg>
</p>
</doc>
</srcset>
"""
REFERENCE = SOURCE.replace("says", "sagt").replace("The", "Das")
ROWS = [
    ("Standard & Poor's says <no>.", "Standard & Poor's sagt <no>."),
    ("The\xa0end of it.", "Das\xa0end of it."),
]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns the folder in which sacreBLEU stores the test set NAME. Disables downloads."""
    home = tmp_path / "sacrebleu" / NAME
    monkeypatch.setattr(DATASETS[NAME], "_outdir", str(home))
    monkeypatch.setattr(DATASETS[NAME], "_rawdir", str(home / "raw"))
    monkeypatch.setattr(DATASETS[NAME], "data", ["file:///no/such/folder/test-full.tgz"])
    return home


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Writes a small archive of the test set NAME, makes sacreBLEU expect its checksum, and returns
    its path.
    """
    files = dict(
        zip(DATASETS[NAME].langpairs["en-de"], (SOURCE.encode(), REFERENCE.encode()), strict=True)
    )
    path = write_tar(tmp_path / "tmp" / "test-full.tgz", files)
    monkeypatch.setattr(DATASETS[NAME], "md5", [hashlib.md5(path.read_bytes()).hexdigest()])
    return path


def fill(home: Path, source: str, reference: str) -> None:
    """Writes the text files of the test set NAME into sacreBLEU's folder `home`."""
    home.mkdir(parents=True)
    for field, text in zip(
        ("src", "ref", "docid", "genre", "origlang"), (source, reference, "", "", ""), strict=True
    ):
        (home / f"wmt14_full.en-de.{field}").write_bytes(text.encode())


def failure(folder: Path, name: str = NAME, language_pair: str = "en-de") -> str:
    return user_error(test_sets.read, name, language_pair, folder)


def test_sacrebleus_own_folder_is_read_first(home: Path, tmp_path: Path) -> None:
    fill(home, "R&amp;D\none\u2028line\u0085\n", "F&E\neine Zeile\r\n")
    assert test_sets.read(NAME, "en-de", tmp_path) == [
        ("R&D", "F&E"),
        ("one\u2028line\u0085", "eine Zeile"),
    ]


def test_an_archive_in_the_folder_is_read_and_stored_by_sacrebleu(
    home: Path, archive: Path
) -> None:
    assert test_sets.read(NAME, "en-de", archive.parent) == ROWS
    archive.unlink()
    assert test_sets.read(NAME, "en-de", archive.parent) == ROWS
    assert (home / "wmt14_full.en-de.src").is_file()


def test_a_damaged_archive_is_reported(home: Path, archive: Path) -> None:
    archive.write_bytes(archive.read_bytes()[:-5])
    message = failure(archive.parent)
    assert message.startswith(f"{archive}: ") and "get it again" in message


def test_an_unavailable_set_is_reported_with_its_url_and_folders(
    home: Path, tmp_path: Path
) -> None:
    with pytest.raises(MissingArchiveError) as error:
        test_sets.read(NAME, "en-de", tmp_path)
    for word in (
        f"put them into {tmp_path}: test-full.tgz",
        "file:///no/such/folder",
        "$SACREBLEU",
    ):
        assert word in str(error.value)
    assert (
        failure(tmp_path, "wmt14/ful") == "unknown test set 'wmt14/ful'; did you mean 'wmt14/full'?"
    )
    assert "wmt14/full 'de-fr'; did you mean 'en-fr'" in failure(tmp_path, NAME, "de-fr")


@pytest.mark.parametrize(
    ("source", "reference", "fault"), [("a\nb\n", "a\n", "have 2 and 1 lines"), ("", "", "empty")]
)
def test_an_incomplete_set_is_reported(
    home: Path, tmp_path: Path, source: str, reference: str, fault: str
) -> None:
    fill(home, source, reference)
    message = failure(tmp_path)
    assert "wmt14_full.en-de.src" in message and fault in message and f"remove {home}" in message
