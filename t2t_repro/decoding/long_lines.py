"""Treatment of texts that are longer than the texts in training: they are split, truncated or
refused.
"""

import bisect
import itertools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from t2t_repro.data.vocabularies.text_rules import EOS_ID, is_empty
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.sentences import CLOSING, split_sentences
from t2t_repro.decoding.translation import Hypothesis, InputFile, Translation
from t2t_repro.errors import UserError, refuse_unknown

LONG_LINES = ("split", "sentences", "truncate", "error")

Count = Callable[[Sequence[str]], list[int]]
"""Returns the number of tokens of each text."""
CLAUSE_END = re.compile(rf"(?<=[;:,]){CLOSING}\s+|(?<=[；：，、])")  # noqa: RUF001
SPACE = re.compile(r"(?<=\S)\s+")
CHARACTER = re.compile(r"(?<=\S)\s*")


@dataclass(frozen=True)
class Segment:
    """A whole text, or a part of a long text. Each segment is translated separately."""

    text_index: int
    """Index of the segment's text in the list of all texts, from 0."""
    number: int
    """Index of the segment among the segments of its text, from 0."""
    line_number: int
    """Line number, from 0, of the segment's text in the input file."""
    string: str
    """The segment's text, including the white space around it, without a tag."""
    ids: list[int]
    """Token ids of the segment without the white space around it, ended by the end token. A tag is
    the first id.
    """
    prefix_ids: Sequence[int] = ()
    """Token ids with which the output must begin, without an end token; empty for no requirement.
    """
    is_truncated: bool = False
    """True if the text was too long and its end was dropped."""


def cut_texts(
    texts: Sequence[str],
    vocabulary: Vocabulary,
    longest: int,
    long_lines: str,
    input_file: InputFile,
) -> list[list[Segment]]:
    """Returns a list of segments for each text. The list of an empty text is empty.

    If a text begins with one of the vocabulary's tags, each of its segments has the tag.

    Args:
        longest: maximum number of tokens in a segment, counting the end token; 0 for no limit.
        long_lines: how to treat a text of more than `longest` tokens: "split" it, "truncate" it, or
            raise an "error"; "sentences" splits every text into its sentences.
        input_file: the file that the texts come from, for line numbers and error messages.
    """
    refuse_unknown("long_lines", long_lines, LONG_LINES)
    segments_of_texts = []
    rows = vocabulary.encode_sources(texts)
    pairs = zip(vocabulary.split_tags(texts), rows, strict=True)
    for index, ((tag, text), ids) in enumerate(pairs):
        line_number = input_file.line_numbers[index]
        segment = Segment(index, 0, line_number, text, ids)
        is_long = 0 < longest < len(ids)
        if is_empty(text):
            segments = []
        elif long_lines == "sentences" or (is_long and long_lines == "split"):
            tag_ids = ids[:1] if tag else []
            segments = _split(segment, tag_ids, longest if is_long else len(ids), vocabulary)
        elif not is_long:
            segments = [segment]
        elif long_lines == "truncate":
            kept_ids = [*ids[: longest - 1], EOS_ID]
            segments = [replace(segment, ids=kept_ids, is_truncated=True)]
        else:
            raise UserError(
                f"{input_file.name}:{line_number + 1}: {len(ids)} tokens are more than {longest}; "
                "shorten the line, use --long_lines=split, sentences or truncate, or raise "
                "max_input_size"
            )
        segments_of_texts.append(segments)
    return segments_of_texts


def _split(
    whole: Segment, tag_ids: list[int], longest: int, vocabulary: Vocabulary
) -> list[Segment]:
    """Splits the text of segment `whole` into segments of at most `longest` tokens, which begin
    with `tag_ids`.
    """

    def count(texts: Sequence[str]) -> list[int]:
        stripped = [text.strip() for text in texts]
        return [len(ids) for ids in vocabulary.encode(stripped, num_threads=1)]

    parts = split_text(whole.string, longest - len(tag_ids), count)
    strings = [part for part in parts if not is_empty(part)]
    rows = vocabulary.encode([string.strip() for string in strings])
    return [
        replace(whole, number=number, string=string, ids=tag_ids + row)
        for number, (string, row) in enumerate(zip(strings, rows, strict=True))
    ]


def split_text(text: str, longest: int, count: Count) -> list[str]:
    """Returns consecutive parts of a text that have at most `longest` tokens each. Their
    concatenation is the text.

    A text is split into its sentences. Short sentences are not joined again, because a model that
    was trained on single sentences translates several at once badly. A sentence that is too long is
    split between clauses, a clause between words, and a word between characters, into as few parts
    as possible. `count` returns the numbers of tokens of texts.
    """
    return _shorten(split_sentences(text), longest, count, (CLAUSE_END, SPACE, CHARACTER))


def _shorten(
    texts: Sequence[str], longest: int, count: Count, separators: Sequence[re.Pattern[str]]
) -> list[str]:
    """Splits long texts at the first of `separators`, their parts at the next one if needed, and
    then joins parts.
    """
    shorter = []
    for text, tokens in zip(texts, count(texts), strict=True):
        if tokens <= longest:
            shorter.append(text)
        else:
            parts = _cut(text, separators[0])
            if len(separators) > 1:
                parts = _shorten(parts, longest, count, separators[1:])
            shorter += _merge(parts, longest, count)
    return shorter


def _cut(text: str, separator: re.Pattern[str]) -> list[str]:
    bounds = [0, *(match.end() for match in separator.finditer(text)), len(text)]
    return [text[start:end] for start, end in itertools.pairwise(bounds) if start < end]


def _merge(parts: list[str], longest: int, count: Count) -> list[str]:
    """Joins neighboring parts while the result has at most `longest` tokens. Returns the joined
    parts.
    """
    merged = []
    start = 0
    number = 1
    while start < len(parts):
        number = _number(parts, start, 2 * number, longest, count)
        merged.append("".join(parts[start : start + number]))
        start += number
    return merged


def _number(parts: Sequence[str], start: int, most: int, longest: int, count: Count) -> int:
    """Returns the number of parts from `start` on that have at most `longest` tokens together, or
    1; `most` is a guess.

    Bisects, because a line may have a million parts, and counting the tokens of each join would
    take minutes.
    """

    def is_long(number: int) -> bool:
        return count(["".join(parts[start : start + number])])[0] > longest

    while start + most <= len(parts) and not is_long(most):
        most *= 2
    return max(1, bisect.bisect_left(range(most), True, lo=1, key=is_long) - 1)


def join_texts(texts: Sequence[str], sources: Sequence[str]) -> str:
    """Joins translations of segments, with a space between two translations if white space
    separates their sources.
    """
    result = texts[0]
    for text, before, after in zip(texts[1:], sources[:-1], sources[1:], strict=True):
        if before[-1:].isspace() or after[:1].isspace():
            result += " "
        result += text
    return result


def join_translations(parts: Sequence[Translation], segments: Sequence[Segment]) -> Translation:
    """Returns the translation of a text, joined from the translations of the text's segments.

    The best hypotheses of all segments are joined to the text's best hypothesis, the second best to
    the text's second best, and so on until a segment has no more hypotheses.
    """
    if len(parts) == 1:
        return parts[0]
    chain = itertools.chain.from_iterable
    strings = [segment.string for segment in segments]
    offsets = [0, *itertools.accumulate(len(part.source_ids) for part in parts)]
    hypotheses = []
    for rank in zip(*(part.hypotheses for part in parts), strict=False):
        attention = [
            index + offset
            for part, offset in zip(rank, offsets, strict=False)
            for index in part.attention
        ]
        hypotheses.append(
            Hypothesis(
                join_texts([part.text for part in rank], strings),
                sum(part.score for part in rank),
                tuple(chain(part.ids for part in rank)),
                tuple(chain(part.token_scores for part in rank)),
                tuple(attention),
            )
        )
    source_ids = tuple(chain(part.source_ids for part in parts))
    return Translation(tuple(hypotheses), source_ids, len(parts))
