"""Tests that lines of text are read exactly."""

import bz2
import gzip
import itertools
import lzma
import random
from pathlib import Path

import hypothesis.strategies as st
import pytest
from hypothesis import example, given

from properties import few
from t2t_repro.files import textfile
from t2t_repro.files.textfile import MAX_LINE, MAX_SGML, read_lines
from user_errors import user_error

COMPRESS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
PACKED = gzip.compress(random.Random(1).randbytes(3000).hex().encode(), mtime=0)


@pytest.mark.parametrize(
    ("name", "contents", "words"),
    [
        ("no.txt", None, "no.txt: no such file"),
        ("text", b"gut\nGr\xc3\xb6\xc3\x9fe\nab Gr\xf6\xdfe\n", "text:3: not UTF-8"),
        (
            "text",
            gzip.compress(b"a line\n", mtime=0),
            "text: compressed or packed as files .gz; unpack it, or end its name in .gz",
        ),
        ("text", lzma.compress(b"a line\n"), "end its name in .xz"),
        ("text", bz2.compress(b"a line\n"), "end its name in .bz2"),
        ("text", b"PK\x03\x04\n\0\0\0\0\0\xff", "packed as files .zip; unpack it"),
        (
            "text.tar.gz",
            gzip.compress(b"a.en".ljust(257, b"\0") + b"ustar\n", mtime=0),
            "packed as files .tar",
        ),
        ("text", b"<srcset setid='a'>\n<seg id=1>a</seg>", "text: SGML; end its name in .sgm"),
        ("text", b"a\n" + b"b" * (MAX_LINE + 1), "text:2: a line of more than 1,048,576 bytes"),
        (
            "text.sgm",
            b"<seg id=1>" + b"b" * (MAX_LINE + 1) + b"</seg>",
            "text.sgm: segment 1 has no </seg>",
        ),
        (
            "text.sgm",
            b"<seg id=1>b</seg>".ljust(MAX_SGML + 1),
            "more than 67,108,864 bytes of SGML",
        ),
        ("text.xz", lzma.compress(b"a line\n")[:-9], "cut off or damaged"),
        ("text.bz2", b"plain text\n", "cut off or damaged"),
        ("text.sgm", b"<p>a</p>", "text.sgm: no <seg> element"),
        ("text.sgm", b"<seg id=1>a\n<SEG id=2>b</seg>", "text.sgm: segment 1 has no </seg>"),
        (
            "text.sgm",
            b'<doc docid="d"><seg id="1">a</seg><seg id=1>b</seg>',
            "two texts with the name segment 1 of document d",
        ),
        ("text.gz", b"plain text\n", "cut off or damaged"),
        *(("text.gz", PACKED[:length], "cut off or damaged") for length in (5, -1, -9, -60)),
        ("text.gz", PACKED[:15] + b"?" + PACKED[16:], "cut off or damaged"),
        ("text.gz", PACKED[:-6] + b"?" + PACKED[-5:], "cut off or damaged"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, name: str, contents: bytes | None, words: str
) -> None:
    if contents is not None:
        (tmp_path / name).write_bytes(contents)
    assert words in user_error(lambda: list(read_lines(str(tmp_path / name))))


@few
@given(
    st.text(st.sampled_from("\n\ra") | st.characters(exclude_categories=["Cs"])),
    st.sampled_from([*COMPRESS]),
)
@example("a\u0085b\u2028c\u2029d\x0b\x0ce\x1ff\na\rb\r\nc\r\r\n\n  a \t\n", "")
@example("\ufeffGröße 😀\r\n\r\nb", ".gz")
def test_only_a_line_feed_ends_a_line(
    tmp_path_factory: pytest.TempPathFactory, text: str, suffix: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"lines{suffix}"
    path.write_bytes(COMPRESS[suffix](text.encode()))
    lines = text.split("\n")
    if not lines[-1]:
        lines.pop()
    if lines:
        lines[0] = lines[0].removeprefix("\ufeff")  # a byte order mark is not part of the text
    assert list(read_lines(str(path))) == [line.removesuffix("\r") for line in lines]


SGML = """<srcset setid="t" srclang="any"><DOC sysid="ref" docid="a">
<!-- <seg id="1">old</seg> --><hl><seg seg-id="9" id="1">AT&amp;T <b>&#228;</b> 1 < 2</seg></hl> <p><Seg  ID='2' > two
lines  &lt;b&gt; </SEG><seg><![CDATA[3 < &amp;]]><!-- no --></seg></p></DOC>
<doc id=b><seg id="1"></seg><seg id="2"/><seg>R&D ?a=1&copy=2 &copy; &amp;lt;</seg></doc></srcset>"""  # noqa: E501


@pytest.mark.parametrize("suffix", ["", ".GZ", ".bz2", ".xz"])
@pytest.mark.parametrize("name", ["text.SGM", "text.sgml", "text.xml"])
def test_segments_are_found_wherever_they_stand(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"{name}{suffix}"
    path.write_bytes(COMPRESS[suffix.lower()](SGML.encode()))
    assert list(read_lines(str(path))) == [
        "AT&T ä 1 < 2",
        "two lines <b>",
        "3 < &amp;",
        "",
        "",
        "R&D ?a=1&copy=2 © &lt;",
    ]


@pytest.mark.parametrize("every", [1, 2, 3, 100])
def test_ranges_of_lines_have_the_lines_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, every: int
) -> None:
    path = tmp_path / "x"
    for text in ("", "one", "one\n", "\n\n", "\ufeffa\r\nbb\n\nccc\u2028d\n\nlast"):
        path.write_bytes(text.encode())
        for block in (1, 3, 1000):
            monkeypatch.setattr(textfile, "BLOCK", block)
            offsets = textfile.line_offsets(str(path), every)
            lines = [
                list(textfile.read_range(str(path), 1 + every * number, *bounds))
                for number, bounds in enumerate(itertools.pairwise(offsets))
            ]
            assert sum(lines, []) == list(read_lines(str(path)))  # noqa: RUF017
            assert all(len(part) == every for part in lines[:-1])
