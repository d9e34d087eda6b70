"""Tests parts of the Beam pipeline: reading batches of lines, and naming and writing shards."""

from __future__ import annotations

import contextlib
import gzip
import os
from dataclasses import replace
from pathlib import Path

import pytest

from disks import largest_file
from t2t_repro.beam.pipeline import (
    BeamJob,
    LineBatch,
    fingerprint,
    input_files,
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
    assert {(batch.path, batch.file_number) for batch in batches} <= {(str(path), 3)}
    return [(batch.first_line, batch.lines) for batch in batches]


@pytest.mark.parametrize("name", ["x.en", "x.en.gz"])
def test_only_newlines_end_lines_and_batches_know_their_line_numbers(tmp_path: Path, name: str) -> None:
    # The file has a byte order mark, a line that ends with "\r\n", and no newline at its end.
    content = b"\xef\xbb\xbf" + "\n".join([*LINES[:4], "\r", *LINES[5:]]).encode()
    (tmp_path / name).write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert numbered_batches(tmp_path / name, 3) == [(0, LINES[:3]), (3, LINES[3:6]), (6, LINES[6:])]
    assert numbered_batches(tmp_path / name, 7) == [(0, LINES)]
    (tmp_path / "empty").touch()
    assert numbered_batches(tmp_path / "empty", 3) == []
    assert numbered_batches(tmp_path / name, 100) == [(0, LINES)]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x", b"one\ntwo\nth\xffree\n", "x:3: not UTF-8 (byte 3 of the line is 0xff)"),
        ("x.gz", gzip.compress(b"one\nt\xfco\n", mtime=0), "x.gz:2: not UTF-8"),
        ("x.gz", gzip.compress(b"one\n" * 1000, mtime=0)[:-9], "x.gz: cut off or damaged gzip file"),
    ],
    ids=["not UTF-8", "not UTF-8, packed", "cut off"],
)
def test_an_unreadable_file_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as error:
        list(read_batches((0, str(tmp_path / name)), 10))
    assert f"{tmp_path}/{message}" in str(error.value)
    assert "\n" not in str(error.value)


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


def test_files_and_shards_are_found_by_pattern_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("x-2.en", "x-10.en", "x-1.en.gz", "a[1].en", "a1.en"):
        (tmp_path / name).touch()
    assert input_files(str(tmp_path / "x-*")) == [str(tmp_path / name) for name in ("x-1.en.gz", "x-10.en", "x-2.en")]
    assert input_files(str(tmp_path / "a[1].en")) == [str(tmp_path / "a[1].en")]
    assert input_files(str(tmp_path / "none*")) == input_files(str(tmp_path / "nowhere" / "x")) == []
    positions = [(0, 0), (0, 90), (0, 1000), (2, 0), (2, 10**9), (10, 0)]
    names = [shard_name(f"{tmp_path}/y", LineBatch("", number, line, [])) for number, line in positions]
    for name in (*reversed(names), f"{tmp_path}/y-old", f"{names[0]}.gz", f"{tmp_path}/y-1-2"):
        Path(name).touch()
    assert shards(f"{tmp_path}/y") == names


def test_a_run_resumes_only_with_the_same_input_model_and_settings(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("one\n")
    index = tmp_path / "a,b" / "model.ckpt-1.index"
    index.parent.mkdir()
    index.touch()
    job = BeamJob("m", str(index.with_suffix("")), DecodeHParams(), f"{tmp_path}/y", resume=True)
    paths, marker = [f"{tmp_path}/x"], tmp_path / "y.unfinished"

    def begin(job: BeamJob, batch_lines: int = 2) -> None:
        """Begins a run that is interrupted at once."""
        with contextlib.suppress(KeyboardInterrupt), unfinished(job, paths, batch_lines):
            raise KeyboardInterrupt

    begin(job)
    assert not marker.exists()  # no shard was written
    marker.write_text('{"decode": 1}\n')
    with pytest.raises(UserError, match="not a file of t2t-translate-beam; move it away"):
        begin(job)
    assert marker.read_text() == '{"decode": 1}\n'
    marker.unlink()
    Path(shard_name(f"{tmp_path}/y", LineBatch("", 0, 0, []))).touch()
    with pytest.raises(UserError, match="y-00000-000000000000 exists already"):
        begin(job)
    marker.write_text(f"{fingerprint(job, paths, 2)}\n")
    begin(replace(job, decode_hparams=DecodeHParams(batch_size=9)))
    assert marker.exists()
    others = {"precision": "bfloat16", "long_lines": "error", "decode_hparams": DecodeHParams(alpha=1)}
    for name, value in others.items():
        with pytest.raises(UserError, match="does not belong to an unfinished run"):
            begin(replace(job, **{name: value}))
    with pytest.raises(UserError, match="does not belong to an unfinished run"):
        begin(job, batch_lines=3)
    os.utime(index, ns=(0, 0))
    with pytest.raises(UserError, match="does not belong to an unfinished run"):
        begin(job)
