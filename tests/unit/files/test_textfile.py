"""Tests that lines of text are read exactly."""

from __future__ import annotations

import gzip
import random
import zlib
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import given

from properties import few
from t2t_repro.files.output_files import whole_file
from t2t_repro.files.textfile import read_lines
from user_errors import user_error


def lines_of(path: Path, contents: bytes) -> list[str]:
    """Writes a file and returns the lines that `read_lines` reads from it."""
    path.write_bytes(contents)
    return list(read_lines(str(path)))


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
        (b"a\r\r\n", ["a\r"]),
        (b"  a \t\n", ["  a \t"]),
        ("a\u0085b\u2028c\u2029d\x0b\x0ce\x1ff\n".encode(), ["a\u0085b\u2028c\u2029d\x0b\x0ce\x1ff"]),
        ("Größe 😀\n".encode(), ["Größe 😀"]),
    ],
)
def test_only_a_line_feed_ends_a_line(tmp_path: Path, contents: bytes, lines: list[str]) -> None:
    assert lines_of(tmp_path / "text", contents) == lines
    assert lines_of(tmp_path / "text.gz", gzip.compress(contents)) == lines


PACKED = gzip.compress(random.Random(1).randbytes(3000).hex().encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("no.txt", None, "no.txt: no such file"),
        ("no.gz", None, "no.gz: no such file"),
        (".", None, "cannot be read"),
        (
            "text",
            "gut\nGröße\n".encode() + "ab Größe\n".encode("latin-1"),
            "text:3: not UTF-8 (byte 6 of the line is 0xf6",
        ),
        (
            "text",
            gzip.compress(b"a line\n"),
            "text: compressed with gzip; unpack it first, or give a file whose name ends",
        ),
        ("text.gz", b"plain text\n", "cut off or damaged gzip file"),
        ("text.gz", zlib.compress(b"plain text\n"), "cut off or damaged gzip file"),
        *(
            ("text.gz", PACKED[:length], "text.gz: cut off or damaged gzip file")
            for length in (1, 5, 11, -1, -8, -9, -60)
        ),
        *(
            ("text.gz", PACKED[:place] + bytes([PACKED[place] ^ 255]) + PACKED[place + 1 :], "damaged gzip file")
            for place in (15, len(PACKED) - 6)
        ),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, contents: bytes | None, words: str) -> None:
    if contents is not None:
        (tmp_path / name).write_bytes(contents)
    lines = read_lines(str(tmp_path / name))
    if words.startswith("text:3"):
        assert [next(lines), next(lines)] == ["gut", "Größe"]
    assert words in user_error(lambda: list(lines))


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
