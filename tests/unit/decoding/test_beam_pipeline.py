"""Tests parts of the Beam pipeline: reading batches of lines, and naming and writing shards."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from apache_beam.coders import registry as coders

from disks import largest_file
from t2t_repro.decoding.beam_pipeline import (
    BeamJob,
    LineBatch,
    input_files,
    match,
    read_batches,
    refuse_overlap,
    shard_name,
    shards,
    unfinished,
    write,
)
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams

LINES = ["one", "", "x\ry\u0085z\u2028w", " two ", "", "Übergröße \U0001f100", "last"]


def numbered_batches(path: Path, batch_lines: int) -> list[tuple[int, list[str]]]:
    batches = list(read_batches((3, str(path)), batch_lines))
    assert {(batch.path, batch.file_number) for batch in batches} == {(str(path), 3)}
    return [(batch.first_line, batch.lines) for batch in batches]


@pytest.mark.parametrize("name", ["x.en", "x.en.gz"])
def test_only_newlines_end_lines_and_batches_know_their_line_numbers(tmp_path: Path, name: str) -> None:
    # The file has a byte order mark, a line that ends with "\r\n", and no newline at its end.
    content = b"\xef\xbb\xbf" + "\n".join([*LINES[:4], "\r", *LINES[5:]]).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert numbered_batches(tmp_path / name, 3) == [(0, LINES[:3]), (3, LINES[3:6]), (6, LINES[6:])]
    assert numbered_batches(tmp_path / name, 7) == [(0, LINES)]
    assert numbered_batches(tmp_path / name, 100) == [(0, LINES)]


def test_an_empty_file_has_no_batch(tmp_path: Path) -> None:
    (tmp_path / "x").touch()
    assert not list(read_batches((0, str(tmp_path / "x")), 3))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x", b"one\ntwo\nth\xffree\n", "x:3: not UTF-8 (byte 3 of the line is 0xff)"),
        ("x.gz", gzip.compress(b"one\nt\xfco\n", mtime=0), "x.gz:2: not UTF-8"),
        ("x.gz", gzip.compress(b"one\n" * 1000, mtime=0)[:-9], "x.gz: cut off or damaged gzip file"),
        ("x.gz", b"one\n", "x.gz: cut off or damaged gzip file"),
        ("", b"", "cannot be read (Is a directory)"),
    ],
    ids=["not UTF-8", "not UTF-8, packed", "cut off", "not packed", "a folder"],
)
def test_an_unreadable_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    if name:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        list(read_batches((0, str(tmp_path / name)), 10))
    assert f"{tmp_path}{'/' if name else ': '}{message}" in str(error.value)
    assert "\n" not in str(error.value)


def test_sorted_shard_names_are_in_the_order_of_the_input() -> None:
    positions = [(0, 0), (0, 90), (0, 1000), (2, 0), (2, 10**9), (10, 0), (10, 2000)]
    names = [shard_name("out/x.de", LineBatch("", file_number, line, [])) for file_number, line in positions]
    assert names == sorted(set(names))
    assert all(name.startswith("out/x.de-") for name in names)


def test_a_batch_survives_the_way_to_another_process() -> None:
    batch = LineBatch("x", 1, 2000, LINES)
    coder = coders.get_coder(LineBatch)
    assert coder.decode(coder.encode(batch)) == batch


def test_a_shard_can_be_written_twice_and_leaves_no_other_file(tmp_path: Path) -> None:
    path = tmp_path / "new" / "x-0"
    for _ in range(2):
        write(str(path), LINES)
        assert path.read_bytes() == "".join(f"{line}\n" for line in LINES).encode()
        assert list(path.parent.iterdir()) == [path]


def test_a_shard_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x-0"
    with largest_file(10), pytest.raises(UserError, match=r"x-0: cannot be written .*--decode_to_file"):
        write(str(path), LINES)
    assert not list(tmp_path.iterdir())
    write(str(path), ["one"])
    with largest_file(10), pytest.raises(UserError, match="cannot be written"):
        write(str(path), LINES)  # the failing write must not damage the existing shard
    assert [shard.read_text() for shard in tmp_path.iterdir()] == ["one\n"]
    with pytest.raises(UserError, match="cannot be written"):
        write(str(path / "below"), LINES)


def test_a_pattern_matches_files_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("x-2.en", "x-10.en", "x-1.en.gz", "y.en"):
        (tmp_path / name).touch()
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "x-3.en").touch()
    assert match(str(tmp_path / "x-*")) == [str(tmp_path / name) for name in ("x-1.en.gz", "x-10.en", "x-2.en")]
    assert match(str(tmp_path / "y.en")) == [str(tmp_path / "y.en")]
    assert match(str(tmp_path / "none*")) == match(str(tmp_path / "nowhere" / "x")) == []


def test_other_files_with_the_same_beginning_are_no_shards(tmp_path: Path) -> None:
    names = ["y-00000-000000000000", "y-00001-000000002000", "y-old", "y-00000-000000000000.gz", "y-1-2"]
    for name in names:
        (tmp_path / name).touch()
    assert shards(f"{tmp_path}/y") == [str(tmp_path / name) for name in names[:2]]


def test_a_run_does_not_write_its_input(tmp_path: Path) -> None:
    shard, journal = tmp_path / "y-00000-000000000000", tmp_path / "y.unfinished"
    for path in (shard, journal):
        path.touch()
    (tmp_path / "link").symlink_to(shard.name)
    job = BeamJob("", "", DecodeHParams(), f"{tmp_path}/y")
    for path in (shard, journal, tmp_path / "link"):
        with pytest.raises(UserError, match=r"is also an input \(--decode_from_file\)"):
            refuse_overlap(job, str(path), [str(path)])
    for pattern in ("*", "y*", "y-00000-*", "*.unfinished"):
        with pytest.raises(UserError, match=r"also matches the output .*; choose another --decode_to_file"):
            refuse_overlap(job, f"{tmp_path}/{pattern}", [])
    refuse_overlap(job, f"{tmp_path}/x*", [f"{tmp_path}/x"])


def test_a_file_is_found_by_its_name_even_if_the_name_is_a_pattern(tmp_path: Path) -> None:
    for name in ("a[1].en", "a1.en", "b*.en", "bc.en"):
        (tmp_path / name).touch()
    for name in ("a[1].en", "a1.en", "b*.en"):
        assert input_files(str(tmp_path / name)) == [str(tmp_path / name)]
    paths = input_files(str(tmp_path / "a*.en"))
    assert paths == [str(tmp_path / name) for name in ("a1.en", "a[1].en")]
    (tmp_path / "c.index").touch()
    with unfinished(BeamJob("", str(tmp_path / "c"), DecodeHParams(), str(tmp_path / "out")), paths, 7):
        pass


def test_a_journal_of_another_program_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "y.unfinished"
    path.write_text('{"line": 1}\n')
    job = BeamJob("", "", DecodeHParams(), f"{tmp_path}/y")
    with pytest.raises(UserError, match="not a file of t2t-translate-beam; move it away"), unfinished(job, [], 1):
        pass
    assert path.read_text() == '{"line": 1}\n'
