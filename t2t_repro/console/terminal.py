"""Breaks text into lines that fit the terminal, without breaking a word, a flag or a command that
can be copied.
"""

import contextlib
import os
import re
import sys
import textwrap
from collections.abc import Mapping
from typing import IO

COMMAND = re.compile(r"""t2t-[\w-]+(?: --(?:'[^']*'|"[^"]*"|\S)+)+""")
"""Matches one of this project's programs with its flags."""
TERM_COLUMNS = 24
"""Maximum number of columns for the names in `definitions`."""


def width_of(stream: IO[str]) -> int:
    """Returns the number of columns for text: those of the stream's terminal, from 40 to 120;
    without terminal, 80.
    """
    with contextlib.suppress(OSError):
        return min(max(os.get_terminal_size(stream.fileno()).columns or 80, 40), 120)
    return 80


def wrapped(text: str, width: int) -> str:
    """Returns `text` with lines of at most `width` characters, if no word is longer.

    The lines that a row of a table becomes begin at its second column; those of an indented line
    are indented more. A command gets a line of its own if it then fits; otherwise its lines end in
    backslashes, as a shell needs them.
    """
    lines = []
    for line in text.split("\n"):
        start = re.match(r" *\S+(?: \S+){,3} {2,}| *", line)
        column = len(start[0]) if start else 0
        indent = " " * column
        if 0 < column == len(line) - len(line.lstrip()):
            indent += "    "
        glued = COMMAND.sub(lambda match: match[0].replace(" ", "\0"), line)
        for part in _wrap(glued, width, indent) or [""]:
            pieces = [part]
            if len(part) > width:
                pieces = _wrap(part.replace("\0", " "), width - 2, f"{indent}    ")
            lines.append(" \\\n".join(pieces).replace("\0", " "))
    return "\n".join(lines)


def _wrap(line: str, width: int, indent: str) -> list[str]:
    return textwrap.wrap(
        line,
        width,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
        expand_tabs=False,
        replace_whitespace=False,
    )


def definitions(texts: Mapping[str, str]) -> str:
    """Returns a line for each name with its text, in two columns that fit the terminal of standard
    output.
    """
    column = min(max(map(len, texts), default=0), TERM_COLUMNS)
    lines = (f"{name.ljust(column)}  {text}".rstrip() for name, text in texts.items())
    return wrapped("\n".join(lines), width_of(sys.stdout))
