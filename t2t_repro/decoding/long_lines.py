"""Texts longer than those a model was trained on: split after sentences, truncated or refused."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from t2t_repro.data.text_rules import EOS_ID, is_empty
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.decoding.translation import Hypothesis, InputFile, Translation
from t2t_repro.errors import UserError, unknown

LONG_LINES = ("split", "truncate", "error")

SENTENCE_END = re.compile(r"(?<=[.!?;:…])[\"'”’»)\]]*\s+|(?<=[。！？；])[」』”’）]*")  # noqa: RUF001
"""White space after a sign that ends a sentence; no white space in scripts that write none there."""
SPACE = re.compile(r"(?<=\S)\s+")


@dataclass(frozen=True)
class Piece:
    """A text, or a part of it that is translated separately."""

    text_index: int
    """Index of the text in its list."""
    number: int
    """Index of the piece in its text."""
    line_number: int
    """Line number of the text in its file."""
    string: str
    """The piece with the white space around it."""
    ids: list[int]
    """The tokens of the piece without the white space around it."""
    prefix_ids: list[int] = field(default_factory=list)
    """The required beginning of the output, without an end token."""
    is_truncated: bool = False
    """Whether the end of the text was dropped."""


class Cutter:
    """Cuts texts into pieces that a model can translate.

    Args:
        longest: maximum number of tokens in a piece, with the end token; 0 for no limit.
        long_lines: what to do with a longer text: "split", "truncate" or "error".
        input_file: where the texts come from.

    Raises:
        UserError: unknown `long_lines`.
    """

    def __init__(self, vocabulary: Vocabulary, longest: int, long_lines: str, input_file: InputFile) -> None:
        if long_lines not in LONG_LINES:
            raise unknown("long_lines", long_lines, LONG_LINES)
        self._vocabulary, self._longest, self._long_lines, self._input_file = (
            vocabulary,
            longest,
            long_lines,
            input_file,
        )

    def cut(self, texts: Sequence[str], prefixes: Sequence[str]) -> list[list[Piece]]:
        """Returns the pieces of each text, none for an empty text. The first piece of a text has its prefix.

        Raises:
            UserError: long_lines is "error" and a text is too long.
        """
        prefix_ids = [ids[:-1] for ids in self._vocabulary.encode(prefixes)] if prefixes else [[] for _ in texts]
        pieces: list[list[Piece]] = []
        for index, (text, ids) in enumerate(zip(texts, self._vocabulary.encode(texts), strict=True)):
            line_number = self._input_file.line_number(index)
            strings, is_truncated = [] if is_empty(text) else [(text, ids)], False
            if strings and 0 < self._longest < len(ids):
                strings, is_truncated = self._shorten(text, ids, line_number)
            pieces.append(
                [
                    Piece(
                        index, number, line_number, *string_and_ids, [] if number else prefix_ids[index], is_truncated
                    )
                    for number, string_and_ids in enumerate(strings)
                ]
            )
        return pieces

    def _shorten(self, text: str, ids: list[int], line_number: int) -> tuple[list[tuple[str, list[int]]], bool]:
        """Returns the (string, ids) of a long text's pieces, and whether the text was truncated."""
        if self._long_lines == "error":
            raise UserError(
                f"{self._input_file.name}:{line_number + 1}: {len(ids)} tokens are more than {self._longest}; "
                "shorten the line, use --long_lines=split or truncate, or raise max_input_size"
            )
        if self._long_lines == "truncate":
            return [(text, [*ids[: self._longest - 1], EOS_ID])], True
        strings = [string for string in split_text(text, self._longest, self._count) if string.strip()]
        return list(zip(strings, self._vocabulary.encode([string.strip() for string in strings]), strict=True)), False

    def _count(self, text: str) -> int:
        return len(self._vocabulary.encode([text.strip()], num_threads=1)[0])


def split_text(text: str, longest: int, count: Callable[[str], int]) -> list[str]:
    """Splits a text into strings of at most `longest` tokens whose concatenation is the text.

    The text is split after sentences, a sentence that is too long between words, and a word that is too long between
    characters.

    Args:
        count: returns the number of tokens of a text.
    """
    return _split(text, longest, count, [SENTENCE_END, SPACE])


def _split(text: str, longest: int, count: Callable[[str], int], separators: list[re.Pattern[str]]) -> list[str]:
    """Splits a text at the first separator, and parts that are still too long at the others, then at characters."""
    if count(text) <= longest:
        return [text]
    if not separators:
        return _merge(list(text), longest, count)
    bounds = [0, *(match.end() for match in separators[0].finditer(text)), len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(bounds) if start < end]
    shorter = [string for part in parts for string in _split(part, longest, count, separators[1:])]
    return _merge(shorter, longest, count) if len(parts) > 1 else shorter


def _merge(parts: list[str], longest: int, count: Callable[[str], int]) -> list[str]:
    """Concatenates neighbours as long as they fit."""
    merged = [parts[0]]
    for part in parts[1:]:
        if not part.strip() or count(merged[-1] + part) <= longest:
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def join_texts(texts: Sequence[str], sources: Sequence[str]) -> str:
    """Joins translations of pieces, with a space if there was white space between the sources."""
    result = texts[0]
    for text, before, after in zip(texts[1:], sources[:-1], sources[1:], strict=True):
        result += (" " if before[-1:].isspace() or after[:1].isspace() else "") + text
    return result


def join_translations(parts: Sequence[Translation], pieces: Sequence[Piece]) -> Translation:
    """Joins the translations of a text's pieces: the best hypothesis of each piece, the second best, and so on.

    The result has as many hypotheses as the piece with the fewest.
    """
    if len(parts) == 1:
        return parts[0]
    offsets = [0, *itertools.accumulate(len(part.source_ids) for part in parts)]
    hypotheses = []
    for rank in zip(*(part.hypotheses for part in parts), strict=False):
        attention = (
            [position + offset for position in part.attention] for part, offset in zip(rank, offsets, strict=False)
        )
        hypotheses.append(
            Hypothesis(
                join_texts([part.text for part in rank], [piece.string for piece in pieces]),
                sum(part.score for part in rank),
                tuple(itertools.chain.from_iterable(part.ids for part in rank)),
                tuple(itertools.chain.from_iterable(part.token_scores for part in rank)),
                tuple(itertools.chain.from_iterable(attention)),
            )
        )
    source_ids = tuple(itertools.chain.from_iterable(part.source_ids for part in parts))
    return Translation(tuple(hypotheses), source_ids, len(parts))
