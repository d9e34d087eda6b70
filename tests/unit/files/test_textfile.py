"""Tests that lines of text are read exactly."""

from __future__ import annotations

import gzip
import random
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from properties import few
from t2t_repro.files.textfile import read_lines
from user_errors import user_error

PACKED = gzip.compress(random.Random(1).randbytes(3000).hex().encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("no.txt", None, "no.txt: no such file"),
        ("text", b"gut\nGr\xc3\xb6\xc3\x9fe\nab Gr\xf6\xdfe\n", "text:3: not UTF-8"),
        ("text", gzip.compress(b"a line\n", mtime=0), "text: compressed with gzip"),
        ("text.gz", b"plain text\n", "cut off or damaged gzip file"),
        *(("text.gz", PACKED[:length], "cut off or damaged gzip file") for length in (5, -1, -9, -60)),
        ("text.gz", PACKED[:15] + b"?" + PACKED[16:], "cut off or damaged gzip file"),
        ("text.gz", PACKED[:-6] + b"?" + PACKED[-5:], "cut off or damaged gzip file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, contents: bytes | None, words: str) -> None:
    if contents is not None:
        (tmp_path / name).write_bytes(contents)
    assert words in user_error(lambda: list(read_lines(str(tmp_path / name))))


@few
@given(st.text(st.sampled_from("\n\ra") | st.characters(exclude_categories=["Cs"])), st.sampled_from(["", ".gz"]))
@example("a\u0085b\u2028c\u2029d\x0b\x0ce\x1ff\na\rb\r\nc\r\r\n\n  a \t\n", "")
@example("\ufeffGröße 😀\r\n\r\nb", ".gz")
def test_only_a_line_feed_ends_a_line(tmp_path_factory: pytest.TempPathFactory, text: str, suffix: str) -> None:
    path = tmp_path_factory.getbasetemp() / f"lines{suffix}"
    path.write_bytes(gzip.compress(text.encode()) if suffix else text.encode())
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if lines:
        lines[0] = lines[0].removeprefix("\ufeff")  # a byte order mark is not part of the text
    assert list(read_lines(str(path))) == [line.removesuffix("\r") for line in lines]
