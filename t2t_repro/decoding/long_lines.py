"""Texts longer than what a model was trained on, cut where a reader would."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

SENTENCE_END = re.compile(r"(?<=[.!?;:…])[\"'”’»)\]]*\s+|(?<=[。！？；])[」』”’）]*")  # noqa: RUF001
"""Between two sentences: white space after a sign that ends one, or nothing in scripts that write none there."""
SPACE = re.compile(r"(?<=\S)\s+")


def pieces(text: str, longest: int, count: Callable[[str], int]) -> list[str]:
    """Cuts a text into pieces of at most `longest` tokens, which put together are the text.

    It is cut after sentences; a sentence that is too long between words; a word between characters.

    Args:
        count: the tokens of a text.
    """
    return _cut(text, longest, count, [SENTENCE_END, SPACE])


def _cut(text: str, longest: int, count: Callable[[str], int], places: list[re.Pattern[str]]) -> list[str]:
    if count(text) <= longest:
        return [text]
    if not places:
        parts = list(text)
    else:
        ends = [match.end() for match in places[0].finditer(text)]
        parts = [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True) if start < end]
        if len(parts) > 1:
            parts = [small for part in parts for small in _cut(part, longest, count, places[1:])]
        else:
            return _cut(text, longest, count, places[1:])
    return _packed(parts, longest, count)


def _packed(parts: list[str], longest: int, count: Callable[[str], int]) -> list[str]:
    """Neighbours put together as long as they fit."""
    packed = [parts[0]]
    for part in parts[1:]:
        if not part.strip() or count(packed[-1] + part) <= longest:
            packed[-1] += part
        else:
            packed.append(part)
    return packed


def joined(texts: Sequence[str], pieces: Sequence[str]) -> str:
    """Translations of pieces as one text, with a space where the source had white space between them."""
    result = texts[0]
    for text, before, after in zip(texts[1:], pieces[:-1], pieces[1:], strict=True):
        result += (" " if before[-1:].isspace() or after[:1].isspace() else "") + text
    return result
