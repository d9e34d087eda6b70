"""Reads the texts of a file in UTF-8: its lines, which only "\\n" ends, or the segments of an SGML file."""

from __future__ import annotations

import bz2
import codecs
import functools
import gzip
import lzma
import re
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any
from xml.sax import saxutils

from t2t_repro.errors import UserError

OPENERS: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
"""Functions that open a compressed file, by suffix of its name."""
MAGIC = {".gz": b"\x1f\x8b", ".bz2": b"BZh", ".xz": b"\xfd7zXZ", ".zip": b"PK\x03\x04", ".zst": b"\x28\xb5\x2f\xfd"}
"""Bytes with which compressed files begin, by suffix."""
MAX_LINE = 1 << 20
"""Most bytes of a line. No sentence is as long, but a file without newlines could fill the memory."""
SGML = re.compile(r"\.sgml?(\.(gz|bz2|xz))?$", re.IGNORECASE)
"""End of the name of an SGML file."""
ELEMENT = re.compile(r"<doc\b([^>]*)>|<seg\b([^>]*)>(?:(.*?)</seg\s*>)?", re.DOTALL | re.IGNORECASE)
"""A start tag of a document, or a segment. Groups: the attributes of both, and the segment's text if it ends."""


def read_lines(path: str) -> Iterator[str]:
    """Yields the lines of a plain or compressed file (.gz, .bz2, .xz), or the segments of a file .sgm or .sgm.gz.

    Lines end in "\\n" or "\\r\\n", which is not part of them. Other separators, such as U+0085, U+2028 or a single
    "\\r", do not end a line. A last line without "\\n" counts as a line.

    Raises UserError if the file is missing, damaged or not UTF-8, or a line has more than `MAX_LINE` bytes.
    """
    yield from read_segments(path).values() if SGML.search(path) else _lines(path)


def read_segments(path: str) -> dict[tuple[str, str], str]:
    """Returns the segments of an SGML file as WMT publishes test sets: <seg id="1">text</seg> in <doc docid="a">.

    The keys are the ids of the document and of the segment in it, the values are the texts. As sacreBLEU does, replaces
    all white space in a text by single spaces. Raises UserError as `read_lines` does, if there is no segment, and if a
    segment does not end or has the number of another one.
    """
    segments, document = dict[tuple[str, str], str](), ""
    for element in ELEMENT.finditer("\n".join(_lines(path))):
        of_document, of_segment, text = element.groups()
        if of_document is not None:
            document = _attribute(of_document, "docid")
            continue
        number = _attribute(of_segment, "id") or str(len(segments) + 1)
        name = f"segment {number}" + (f" of document {document}" if document else "")
        if text is None or "<seg" in text.lower():
            raise UserError(f"{path}: {name} has no </seg>; mend the file")
        if (document, number) in segments:
            raise UserError(f"{path}: there are two texts with the name {name}; give one file for each reference")
        segments[document, number] = unescape(" ".join(text.split()))
    if not segments:
        raise UserError(f"{path}: no <seg> element; if it is no SGML file, give it another name")
    return segments


def _attribute(attributes: str, name: str) -> str:
    match = re.search(rf"\b{name}\s*=\s*(\"[^\"]*\"|'[^']*'|\S+)", attributes, re.IGNORECASE)
    return match[1].strip("\"'") if match else ""


def unescape(text: str) -> str:
    """Returns text with SGML entities replaced by their characters: "AT&amp;T" becomes "AT&T"."""
    return saxutils.unescape(text, {"&quot;": '"', "&apos;": "'"})


def _lines(path: str) -> Iterator[str]:
    try:
        with OPENERS.get(path[path.rfind(".") :], open)(path, "rb") as file:
            yield from decode_lines(file, path)
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        if isinstance(error, OSError) and error.errno:
            raise
        raise UserError(f"{path}: cut off or damaged ({error}); get it again") from None


def decode_lines(file: IO[bytes], source: str) -> Iterator[str]:
    """Yields the lines of a file that is open in binary mode as `read_lines` does; messages call it `source`."""
    start = b""
    for number, line in enumerate(iter(functools.partial(file.readline, MAX_LINE + 1), b""), 1):
        if number == 1:
            start, line = line, line.removeprefix(codecs.BOM_UTF8)
        if len(line) > MAX_LINE:
            raise UserError(f"{source}:{number}: a line of more than {MAX_LINE:,} bytes; split it into sentences")
        try:
            text = line.decode("utf-8")
        except UnicodeDecodeError as error:
            cure = f"not UTF-8 ({error}); convert the file, e.g. with iconv"
            if suffix := next((suffix for suffix, magic in MAGIC.items() if start.startswith(magic)), ""):
                cure = "compressed; unpack the file" + (f", or end its name in {suffix}" if suffix in OPENERS else "")
            raise UserError(f"{source}:{number}: {cure}") from None
        yield text.removesuffix("\n").removesuffix("\r")
