"""The parts of the Beam pipeline: what a batch is, what a shard is called, and that it appears whole."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from apache_beam.coders import registry as coders

from disks import largest_file
from t2t_repro.decoding.beam_pipeline import Batch, match, read_batches, shard_name, write
from t2t_repro.errors import UserError

LINES = ["one", "", "x\ry\u0085z\u2028w", " two ", "", "Übergröße \U0001f100", "last"]


def texts(path: Path, batch_lines: int) -> list[tuple[int, list[str]]]:
    batches = list(read_batches((3, str(path)), batch_lines))
    assert {(batch.path, batch.file) for batch in batches} == {(str(path), 3)}
    return [(batch.first, batch.lines) for batch in batches]


@pytest.mark.parametrize("name", ["x.en", "x.en.gz"])
def test_lines_end_with_a_newline_alone_and_know_their_number(tmp_path: Path, name: str) -> None:
    data = b"\xef\xbb\xbf" + "\n".join([*LINES[:4], "\r", *LINES[5:]]).encode()  # a mark, a "\r\n", no end at the end
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert texts(tmp_path / name, 3) == [(0, LINES[:3]), (3, LINES[3:6]), (6, LINES[6:])]
    assert texts(tmp_path / name, 7) == [(0, LINES)]
    assert texts(tmp_path / name, 100) == [(0, LINES)]


def test_an_empty_file_has_no_batch(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert not list(read_batches((0, str(tmp_path / "x")), 3))


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("x", b"one\ntwo\nth\xffree\n", "x:3: not UTF-8 (byte 3 of the line is 0xff)"),
        ("x.gz", gzip.compress(b"one\nt\xfco\n", mtime=0), "x.gz:2: not UTF-8"),
        ("x.gz", gzip.compress(b"one\n" * 1000, mtime=0)[:-9], "x.gz: not a whole gzip file"),
        ("x.gz", b"one\n", "x.gz: not a whole gzip file"),
        ("", b"", "cannot be read (Is a directory)"),
    ],
    ids=["not UTF-8", "not UTF-8, packed", "cut off", "not packed", "a folder"],
)
def test_what_cannot_be_read_is_named(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    if name:
        (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError) as error:
        list(read_batches((0, str(tmp_path / name)), 10))
    assert f"{tmp_path}{'/' if name else ': '}{words}" in str(error.value)
    assert "\n" not in str(error.value)


def test_shards_in_the_order_of_their_names_are_in_the_order_of_the_input() -> None:
    places = [(0, 0), (0, 90), (0, 1000), (2, 0), (2, 10**9), (10, 0), (10, 2000)]
    names = [shard_name("out/x.de", Batch("", file, first, [])) for file, first in places]
    assert names == sorted(set(names))
    assert all(name.startswith("out/x.de-") for name in names)


def test_a_batch_goes_to_another_process_and_back() -> None:
    batch = Batch("x", 1, 2000, LINES)
    coder = coders.get_coder(Batch)
    assert coder.decode(coder.encode(batch)) == batch


def test_a_shard_written_twice_is_the_same_and_leaves_nothing_beside(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x-0"
    for _ in range(2):
        write(str(path), LINES)
        assert path.read_bytes() == "".join(f"{line}\n" for line in LINES).encode()
        assert list(path.parent.iterdir()) == [path]


def test_a_shard_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x-0"
    with largest_file(10), pytest.raises(UserError, match=r"x-0: cannot be written .*--decode_to_file"):
        write(str(path), LINES)
    assert not list(tmp_path.iterdir())
    write(str(path), ["one"])
    with largest_file(10), pytest.raises(UserError, match="cannot be written"):
        write(str(path), LINES)  # a second try that fails harms nothing
    assert [each.read_text() for each in tmp_path.iterdir()] == ["one\n"]
    with pytest.raises(UserError, match="cannot be written"):
        write(str(path / "below"), LINES)


def test_a_pattern_names_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("x-2.en", "x-10.en", "x-1.en.gz", "y.en"):
        (tmp_path / name).touch()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "x-3.en").touch()
    assert match(str(tmp_path / "x-*")) == [str(tmp_path / name) for name in ("x-1.en.gz", "x-10.en", "x-2.en")]
    assert match(str(tmp_path / "y.en")) == [str(tmp_path / "y.en")]
    assert match(str(tmp_path / "none*")) == match(str(tmp_path / "nowhere" / "x")) == []
