"""Tests that lines of text are read exactly, and that a file is written whole or not at all."""

from __future__ import annotations

import gzip
import io
import os
import re
import zlib
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from disks import largest_file
from properties import few
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import whole_file
from t2t_repro.files.textfile import decode_lines, read_lines
from user_errors import user_error


def lines_of(path: Path, contents: bytes) -> list[str]:
    """Writes a file and returns the lines that `read_lines` reads from it."""
    path.write_bytes(contents)
    return list(read_lines(str(path)))


def failure(path: Path | str) -> str:
    """Returns the message of the error that reading `path` raises."""
    return user_error(lambda: list(read_lines(str(path))))


@pytest.mark.parametrize(
    ("contents", "lines"),
    [
        (b"", []),
        (b"\n", [""]),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\n\nb\n\n", ["a", "", "b", ""]),
        (b"a\r\nb\r\n", ["a", "b"]),
        (b"a\rb\n", ["a\rb"]),
        (b"  a \t\n", ["  a \t"]),
        ("a\u0085b\u2028c\u2029d\x0b\x0ce\x1ff\n".encode(), ["a\u0085b\u2028c\u2029d\x0b\x0ce\x1ff"]),
        ("Größe 😀\n".encode(), ["Größe 😀"]),
    ],
)
def test_only_a_line_feed_ends_a_line(tmp_path: Path, contents: bytes, lines: list[str]) -> None:
    assert lines_of(tmp_path / "text", contents) == lines
    assert lines_of(tmp_path / "text.gz", gzip.compress(contents)) == lines


def test_a_missing_file_and_a_folder_are_named(tmp_path: Path) -> None:
    assert failure(tmp_path / "no.txt") == f"{tmp_path}/no.txt: no such file"
    assert failure(tmp_path / "no.gz") == f"{tmp_path}/no.gz: no such file"
    assert failure(tmp_path).startswith(f"{tmp_path}: cannot be read")


def test_bytes_that_are_not_utf8_are_named_and_the_lines_before_are_read(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes("gut\nGröße\n".encode() + "ab Größe\n".encode("latin-1"))
    assert failure(path).startswith(f"{path}:3: not UTF-8 (byte 6 of the line is 0xf6)")
    lines = read_lines(str(path))
    assert [next(lines), next(lines)] == ["gut", "Größe"]


def test_an_open_file_has_the_callers_name_in_errors() -> None:
    with pytest.raises(UserError, match="standard input:2: not UTF-8"):
        list(decode_lines(io.BytesIO(b"ok\n\xc3\n"), "standard input"))


def test_a_truncated_or_damaged_gz_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    whole = gzip.compress(os.urandom(3000).hex().encode())
    truncated = [whole[:length] for length in (1, 5, 11, -1, -8, -9, -100)]
    damaged = [
        bytes([*whole[:position], whole[position] ^ 0xFF, *whole[position + 1 :]]) for position in (15, len(whole) - 6)
    ]
    for contents in (*truncated, *damaged, b"plain text\n", zlib.compress(b"plain text\n")):
        path.write_bytes(contents)
        assert f"{path}: cut off or damaged gzip file" in failure(path)


def test_a_compressed_file_with_another_name_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "text.en"
    path.write_bytes(gzip.compress(b"a line\n"))
    assert failure(path) == f"{path}: compressed with gzip; unpack it first, or give a file whose name ends in .gz"
    path = tmp_path / "text.gz"
    path.write_bytes(b"a line\n")
    assert failure(path).endswith("get it again, or remove .gz from its name if it is plain")


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    with whole_file(path) as file:
        file.write(b"abc")
        assert not path.exists()
    assert path.read_bytes() == b"abc"
    assert os.listdir(path.parent) == ["file"]


def test_text_is_written_as_utf8_with_line_feeds(tmp_path: Path) -> None:
    with whole_file(tmp_path / "file", "w") as file:
        file.write("Größe\n")
    assert (tmp_path / "file").read_bytes() == "Größe\n".encode()


def test_an_error_leaves_only_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"old")
    with pytest.raises(ZeroDivisionError), whole_file(path) as file:
        file.write(b"new")
        raise ZeroDivisionError
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["file"]


def test_a_full_disk_is_an_error_that_leaves_no_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with largest_file(1000), pytest.raises(UserError, match="file: cannot be written"), whole_file(path) as file:
        file.write(bytes(5000))
    assert os.listdir(tmp_path) == []


def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UserError, match="cannot be written"), whole_file(tmp_path / "file" / "below"):
        pass
    (tmp_path / "folder").mkdir()
    with pytest.raises(UserError, match="folder: cannot be written"), whole_file(tmp_path / "folder"):
        pass
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_the_umask_decides_who_may_read_the_file(tmp_path: Path) -> None:
    umask = os.umask(0o027)
    try:
        with whole_file(tmp_path / "file") as file:
            file.write(b"")
    finally:
        os.umask(umask)
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o640


TEXT = st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]), max_size=20)
"""A line of text: any characters except a line feed and surrogates, which are not characters."""


@few
@given(st.lists(TEXT, max_size=8), st.booleans(), st.sampled_from(["", ".gz"]))
def test_any_written_lines_are_read_again(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], ends_with_line_feed: bool, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"lines{suffix}"
    text = "\n".join(lines) + "\n" * (ends_with_line_feed and bool(lines))
    with whole_file(path) as file:
        file.write(gzip.compress(text.encode()) if suffix else text.encode())
    expected = [line.removesuffix("\r") for line in lines]
    if expected:
        expected[0] = lines[0].removeprefix("\ufeff").removesuffix("\r")  # A byte order mark is not part of the text.
        if not ends_with_line_feed and not lines[-1]:
            del expected[-1]
    assert list(read_lines(str(path))) == expected


@few
@given(st.lists(TEXT, max_size=8))
def test_text_and_bytes_are_written_alike(tmp_path_factory: pytest.TempPathFactory, lines: list[str]) -> None:
    text, path = "\n".join(lines), tmp_path_factory.getbasetemp() / "text"
    with whole_file(path, "w") as file:
        file.write(text)
    assert path.read_bytes() == text.encode()


@few
@given(st.binary(max_size=60))
def test_any_bytes_are_read_or_refused(contents: bytes) -> None:
    expected = contents.removeprefix(b"\xef\xbb\xbf").split(b"\n")
    if not expected[-1]:
        del expected[-1]
    try:
        lines = list(decode_lines(io.BytesIO(contents), "x"))
    except UserError as error:
        assert re.match(r"x:\d+: not UTF-8|x: compressed with gzip", str(error))
    else:
        assert [line.encode() for line in lines] == [line.removesuffix(b"\r") for line in expected]
