"""Splits, truncates or refuses texts that are longer than the texts in training."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from t2t_repro.data.text_rules import EOS_ID, is_empty
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.decoding.translation import Hypothesis, InputFile, Translation
from t2t_repro.errors import UserError, unknown

LONG_LINES = ("split", "truncate", "error")

SENTENCE_END = re.compile(r"(?<=[.!?;:…])[\"'”’»)\]]*\s+|(?<=[。！？；])[」』”’）]*")  # noqa: RUF001
"""Matches the white space after a sign that ends a sentence. After Chinese and Japanese signs it may be missing."""
SPACE = re.compile(r"(?<=\S)\s+")


@dataclass(frozen=True)
class Segment:
    """A whole text, or a part of a long text. Each segment is translated separately."""

    text_index: int
    """Index of the text among all texts."""
    number: int
    """Index of the segment in its text."""
    line_number: int
    """Line number of the text in its file."""
    string: str
    """The segment, including the white space around it."""
    ids: list[int]
    """The segment's tokens. White space around the segment has no tokens."""
    prefix_ids: Sequence[int] = ()
    """The required beginning of the output, without an end token."""
    is_truncated: bool = False
    """True if the end of the text was dropped."""


def cut_texts(
    texts: Sequence[str], vocabulary: Vocabulary, longest: int, long_lines: str, input_file: InputFile
) -> list[list[Segment]]:
    """Returns a list of segments for each text. The list of an empty text is empty.

    Args:
        longest: maximum number of tokens in a segment, counting the end token; 0 for no limit.
        long_lines: treatment of a text with more tokens: "split", "truncate", or "error" to refuse it.
        input_file: the file that the texts come from.

    Raises UserError if `long_lines` is unknown, or if it is "error" and a text is too long.
    """
    if long_lines not in LONG_LINES:
        raise unknown("long_lines", long_lines, LONG_LINES)

    def count(text: str) -> int:
        return len(vocabulary.encode([text.strip()], num_threads=1)[0])

    def cut(index: int, text: str, ids: list[int]) -> list[Segment]:
        line_number = input_file.line_number(index)
        if is_empty(text):
            return []
        if not longest or len(ids) <= longest:
            return [Segment(index, 0, line_number, text, ids)]
        if long_lines == "error":
            raise UserError(
                f"{input_file.name}:{line_number + 1}: {len(ids)} tokens are more than {longest}; shorten the line, "
                "use --long_lines=split or truncate, or raise max_input_size"
            )
        if long_lines == "truncate":
            return [Segment(index, 0, line_number, text, [*ids[: longest - 1], EOS_ID], is_truncated=True)]
        strings = [string for string in split_text(text, longest, count) if string.strip()]
        encoded = vocabulary.encode([string.strip() for string in strings])
        return [
            Segment(index, number, line_number, *pair) for number, pair in enumerate(zip(strings, encoded, strict=True))
        ]

    return [cut(index, *pair) for index, pair in enumerate(zip(texts, vocabulary.encode(texts), strict=True))]


def split_text(
    text: str, longest: int, count: Callable[[str], int], separators: Sequence[re.Pattern[str]] = (SENTENCE_END, SPACE)
) -> list[str]:
    """Splits a text into strings of at most `longest` tokens whose concatenation is the text.

    The text is split after sentences, a sentence that is too long between words, and a word that is too long between
    characters.

    Args:
        count: function that returns the number of tokens of a text.
        separators: patterns. The text is split after the matches of the first pattern. Parts that are still too long
            are split after the matches of the next pattern, and so on.
    """
    if count(text) <= longest:
        return [text]
    if not separators:
        return _merge(list(text), longest, count)
    bounds = [0, *(match.end() for match in separators[0].finditer(text)), len(text)]
    parts = [text[start:end] for start, end in itertools.pairwise(bounds) if start < end]
    shorter = [string for part in parts for string in split_text(part, longest, count, separators[1:])]
    return _merge(shorter, longest, count) if len(parts) > 1 else shorter


def _merge(parts: list[str], longest: int, count: Callable[[str], int]) -> list[str]:
    """Concatenates neighboring parts if the result has at most `longest` tokens."""
    merged = [parts[0]]
    for part in parts[1:]:
        if not part.strip() or count(merged[-1] + part) <= longest:
            merged[-1] += part
        else:
            merged.append(part)
    return merged


def join_texts(texts: Sequence[str], sources: Sequence[str]) -> str:
    """Joins the translations of segments. Two are joined with a space if white space separates their sources."""
    result = texts[0]
    for text, before, after in zip(texts[1:], sources[:-1], sources[1:], strict=True):
        result += (" " if before[-1:].isspace() or after[:1].isspace() else "") + text
    return result


def join_translations(parts: Sequence[Translation], segments: Sequence[Segment]) -> Translation:
    """Joins the translations of a text's segments.

    Joins the best hypotheses of all segments, then the second best, and so on until a segment has no more hypotheses.
    """
    if len(parts) == 1:
        return parts[0]
    offsets = [0, *itertools.accumulate(len(part.source_ids) for part in parts)]
    hypotheses = []
    for rank in zip(*(part.hypotheses for part in parts), strict=False):
        text = join_texts([part.text for part in rank], [segment.string for segment in segments])
        ids = tuple(token for part in rank for token in part.ids)
        token_scores = tuple(score for part in rank for score in part.token_scores)
        attention = (index + offset for part, offset in zip(rank, offsets, strict=False) for index in part.attention)
        hypotheses.append(Hypothesis(text, sum(part.score for part in rank), ids, token_scores, tuple(attention)))
    source_ids = tuple(token for part in parts for token in part.source_ids)
    return Translation(tuple(hypotheses), source_ids, len(parts))
