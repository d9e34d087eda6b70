"""Reads the texts of a file in UTF-8: its lines, which only "\\n" ends, or the segments of an SGML
file.
"""

import bz2
import codecs
import functools
import gzip
import html
import io
import lzma
import re
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import IO, Any

import numpy as np

from t2t_repro.errors import UserError

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""Functions that open a compressed file, by suffix of its name."""
MAGIC = {
    ".gz": rb"\x1f\x8b",
    ".bz2": rb"BZh\d1AY&SY",
    ".xz": rb"\xfd7zXZ",
    ".zip": rb"PK\x03\x04",
    ".lzma": rb"\x5d\0\0",
    ".zst": rb"\x28\xb5\x2f\xfd",
    ".lz4": rb"\x04\x22\x4d\x18",
    ".7z": rb"7z\xbc\xaf",
    ".Z": rb"\x1f\x9d",
    ".tar": rb"(?s).{257}ustar",
}
"""Regular expressions for the beginnings of archives and compressed files, by suffix."""
BLOCK = 1 << 24
"""Number of bytes that `line_offsets` reads at once."""
MAX_LINE = 1 << 20
"""Most bytes of a line. No sentence is as long, but a file without newlines could fill the memory.
"""
MAX_SGML = 1 << 26
"""Most bytes of an SGML file, which is read at once. Test sets have less than a hundredth."""
SGML = re.compile(r"\.(sgml?|xml)(\.(gz|bz2|xz))?$", re.IGNORECASE)
"""End of the name of an SGML file."""
SGML_START = re.compile(
    rb"\s*<(\?xml|!DOCTYPE|srcset|refset|tstset|mteval|(doc|seg)\s[^<>]*id\s*=)", re.IGNORECASE
)
"""Beginning of an SGML file."""
ELEMENT = re.compile(
    r"<!--.*?(?:-->|\Z)|<doc\b([^<>]*)>|<seg\b([^<>]*?)(?:/>|>(?:(.*?)</seg\s*>)?)",
    re.DOTALL | re.IGNORECASE,
)
"""A comment, a start tag of a document, or a segment. Groups: the attributes of the two, and the
segment's text if it ends.
"""
MARKUP = re.compile(
    r"<!\[CDATA\[(.*?)(?:\]\]>|\Z)|<!--.*?(?:-->|\Z)|</?[a-z][^<>]*>", re.DOTALL | re.IGNORECASE
)
"""Markup in a segment. Group: text in which "&" and "<" stand for themselves."""
ENTITY = re.compile(r"&(#\d+|#x[\da-f]+|[a-z]\w*);", re.IGNORECASE)

url_opener: Callable[[str], IO[bytes]] | None = None
"""Function that opens a file whose path has "://". An annex for other file systems sets it."""


def read_lines(path: str) -> Iterator[str]:
    """Yields the lines of a plain or compressed file (.gz, .bz2, .xz), or the segments of a file
    .sgm, .xml or .sgm.gz.

    Lines end in "\\n" or "\\r\\n", which is not part of them. Other separators, such as U+0085,
    U+2028 or a single "\\r", do not end a line. A last line without "\\n" counts as a line.

    Raises UserError if the file is missing, damaged or not UTF-8, or a line has more than
    `MAX_LINE` bytes.
    """
    if SGML.search(path):
        yield from read_segments(path).values()
        return
    with _opened(path) as file:
        yield from decode_lines(file, path)


def read_segments(path: str) -> dict[tuple[str, str], str]:
    """Returns the segments of an SGML file as WMT publishes test sets: <seg id="1">text</seg> in
    <doc docid="a">.

    The keys are the ids of the document and of the segment in it, the values are the texts. As
    sacreBLEU does, replaces all white space in a text by single spaces. Raises UserError as
    `read_lines` does, if there is no segment, and if a segment does not end or has the number of
    another one.
    """
    segments = dict[tuple[str, str], str]()
    counts = Counter[str]()
    document = ""
    with _opened(path) as file:
        contents = file.read(MAX_SGML + 1)
    _refuse_packed(contents, path)
    if len(contents) > MAX_SGML:
        raise UserError(
            f"{path}: more than {MAX_SGML:,} bytes of SGML; give its text as a file of lines"
        )
    for element in ELEMENT.finditer(_text(contents, path)):
        of_document, of_segment, text = element.groups()
        if of_document is not None:
            document = _attribute(of_document, "docid") or _attribute(of_document, "id")
        if of_segment is None:
            continue
        counts[document] += 1
        number = _attribute(of_segment, "id") or str(counts[document])
        name = f"segment {number}" + (f" of document {document}" if document else "")
        text = "" if element[0].endswith("/>") else text
        if text is None or "<seg" in text.lower() or len(text) > MAX_LINE:
            raise UserError(f"{path}: {name} has no </seg>; mend the file")
        if (document, number) in segments:
            raise UserError(
                f"{path}: there are two texts with the name {name}; give each reference its own "
                "file"
            )
        text = MARKUP.sub(lambda match: html.escape(match[1] or ""), text)
        segments[document, number] = " ".join(unescape(text).split())
    if not segments:
        raise UserError(f"{path}: no <seg> element; if it is no SGML file, give it another name")
    return segments


def _attribute(attributes: str, name: str) -> str:
    match = re.search(rf"(?<!\S){name}\s*=\s*(\"[^\"]*\"|'[^']*'|\S+)", attributes, re.IGNORECASE)
    return match[1].strip("\"'") if match else ""


def unescape(text: str) -> str:
    """Returns text with SGML entities replaced by their characters: "AT&amp;T" becomes "AT&T"."""
    return ENTITY.sub(lambda match: html.unescape(match[0]), text)


@contextmanager
def _opened(path: str) -> Iterator[IO[bytes]]:
    try:
        with url_opener(path) if url_opener and "://" in path else open(path, "rb") as file:
            opener = OPENERS.get(path[path.rfind(".") :].lower())
            yield opener(file) if opener else file
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise UserError(f"{path}: cut off or damaged ({error}); get it again") from None


def line_offsets(path: str, every: int) -> list[int]:
    """Returns the positions in bytes of the lines 0, `every`, 2 * `every` and so on of a plain
    file, and of its end.
    """
    offsets = [0]
    position = 0
    lines = 0
    with _opened(path) as file:
        while block := file.read(BLOCK):
            count = block.count(b"\n")
            # Only then has the block a line to return.
            if (lines + count) // every > lines // every:
                ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
                offsets += (position + ends[every - lines % every - 1 :: every] + 1).tolist()
            position += len(block)
            lines += count
    return [*offsets, position] if offsets[-1] < position else offsets


def read_range(path: str, first_line: int, start: int, stop: int) -> Iterator[str]:
    """Yields the lines of a plain file from byte `start` to byte `stop`; the first is line
    `first_line`.
    """
    with _opened(path) as file:
        file.seek(start)
        yield from decode_lines(io.BytesIO(file.read(stop - start)), path, first_line)


def is_plain(path: str) -> bool:
    """Returns True if the lines of a file are as they are in its bytes, by the file's name."""
    return not SGML.search(path) and path[path.rfind(".") :].lower() not in OPENERS


def decode_lines(file: IO[bytes], source: str, first_line: int = 1) -> Iterator[str]:
    """Yields the lines of a file that is open in binary mode as `read_lines` does; messages call it
    `source`.
    """
    lines = iter(functools.partial(file.readline, MAX_LINE + 1), b"")
    for number, line in enumerate(lines, first_line):
        if number == 1:
            _refuse_packed(line, source)
            line = line.removeprefix(codecs.BOM_UTF8)
            if SGML_START.match(line):
                raise UserError(
                    f"{source}: SGML; end its name in .sgm, so that its segments are read"
                )
        if len(line) > MAX_LINE:
            raise UserError(
                f"{source}:{number}: a line of more than {MAX_LINE:,} bytes; split it into "
                "sentences"
            )
        yield _text(line, f"{source}:{number}").removesuffix("\n").removesuffix("\r")


def _refuse_packed(start: bytes, source: str) -> None:
    """Raises UserError if a file begins as an archive or a compressed file."""
    for suffix, magic in MAGIC.items():
        if re.match(magic, start):
            cure = f", or end its name in {suffix}" if suffix in OPENERS else ""
            raise UserError(f"{source}: compressed or packed as files {suffix}; unpack it{cure}")


def _text(contents: bytes, source: str) -> str:
    try:
        return contents.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{source}: not UTF-8 ({error}); convert the file, e.g. with iconv"
        ) from None
