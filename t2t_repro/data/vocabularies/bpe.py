"""subword-nmt's vocabularies: the file of codes that its learn-bpe writes.

They encode as subword-nmt 0.3.8 does, with the end id added. The rules were written down from its
apply_bpe.py.
"""

import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, pairwise

from t2t_repro.data.vocabularies.vocabulary import (
    MAX_CACHED,
    MAX_PIECES,
    ListVocabulary,
    ids_by_piece,
)
from t2t_repro.errors import UserError, shortened
from t2t_repro.files.untrusted import as_text

SPECIAL = ("<pad>", "</s>", "<unk>")
"""Pieces of the ids 0, 1 and 2. Decoding writes the last one for a symbol that the codes lack."""
UNKNOWN_ID = 2
END = "</w>"
"""Stands at the end of a symbol that ends a word. In version 0.1 of the codes, it begins as a
symbol of its own.
"""
CONTINUED = "@@"
"""Stands at the end of a piece that does not end its word."""
JOINT = f"{CONTINUED} |{CONTINUED} ?$"
"""Regular expression for what decoding removes between pieces, for Python and for TensorFlow."""
LINE_ENDS = "\r\n "
"""Characters that subword-nmt removes at both ends of a line. It splits the words only at spaces.
"""
VERSION = re.compile(r"#version:(?:.*\s)?0\.([12])(?:\.0+)*\s*")
"""Matches the first line of a file of codes. Without this line, the version is 0.1."""
CURE = "use the file that subword-nmt learn-bpe writes"
Merges = dict[tuple[int, int], tuple[int, int]]
"""For each pair of neighboring symbols, its rank among all pairs and the symbol that replaces it.
"""


def merge(word: list[int], merges: Merges) -> None:
    """Replaces pairs of symbols in a word, first that of the lowest rank at all its places, from
    left to right.
    """
    while pairs := [(merges[pair], pair) for pair in pairwise(word) if pair in merges]:
        (_, result), (left, right) = min(pairs)
        start = 0
        while start < len(word):
            if word[start : start + 2] == [left, right]:
                word[start : start + 2] = [result]
            start += 1


def ranked_merges(pairs: Iterable[Sequence[str]], number_of: Mapping[str, int]) -> Merges:
    """Returns the merges of pairs of symbols, from the lowest rank on. `number_of` has the number
    of each symbol.
    """
    return {
        (number_of[left], number_of[right]): (rank, number_of[left + right])
        for rank, (left, right) in enumerate(pairs)
    }


class BpeVocabulary(ListVocabulary):
    """A vocabulary of subword-nmt. A word stands between spaces, as text was tokenized for the
    original model.

    The pieces are written as subword-nmt prints them: "lo@@" within a word, and "lo" at its end.
    After `SPECIAL` come both forms of each character of the codes, in the order of Unicode, and
    then those of the symbol that each line of the codes makes. A symbol that the codes do not make
    is unknown.
    """

    kind = "bpe"
    suffix = ".bpe"

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        super().__init__(model, source)
        self.has_final_symbol, codes = _codes(as_text(model, source, CURE), source)
        """True if `END` is the last symbol of a word, False if it is a part of the last symbol."""
        parts = list(chain.from_iterable(codes))
        chars = sorted({char for part in parts for char in part.removesuffix(END)})
        ends = [char + END for char in chars]
        symbols = list(dict.fromkeys([*chars, *ends, END, *parts, *map("".join, codes)]))
        self.symbol_of = {symbol: number for number, symbol in enumerate(symbols)}
        """Number of each symbol. A character that the codes lack has the next number, that of the
        unknown symbol.
        """
        pieces = []
        for char in chars:
            pieces += [char + CONTINUED, char]
        for symbol in map("".join, codes):
            if symbol.endswith(END):
                pieces.append(symbol.removesuffix(END))
                continue
            pieces.append(symbol + CONTINUED)
            if self.has_final_symbol:
                pieces.append(symbol)
        self._all_pieces = [*SPECIAL, *dict.fromkeys(pieces)]
        id_of = ids_by_piece(self._all_pieces, len(SPECIAL))
        self.inner_ids = [id_of.get(symbol + CONTINUED, UNKNOWN_ID) for symbol in symbols]
        """Id of each symbol within a word; the last one is that of the unknown symbol."""
        self.last_ids = [id_of.get(symbol.removesuffix(END), UNKNOWN_ID) for symbol in symbols]
        """Id of each symbol at the end of a word; the last one is that of the unknown symbol."""
        self.inner_ids.append(UNKNOWN_ID)
        self.last_ids.append(UNKNOWN_ID)
        self.merges = ranked_merges(codes, self.symbol_of)
        self.ids_of_word = functools.lru_cache(MAX_CACHED)(self._ids_of_word)

    def _ids(self, text: str) -> list[int]:
        words = filter(None, text.strip(LINE_ENDS).split(" "))
        return list(chain.from_iterable(map(self.ids_of_word, words)))

    def _ids_of_word(self, word: str) -> list[int]:
        characters = [*word, END] if self.has_final_symbol else [*word[:-1], word[-1] + END]
        unknown = len(self.symbol_of)
        symbols = [self.symbol_of.get(char, unknown) for char in characters]
        merge(symbols, self.merges)
        if symbols[-1] == self.symbol_of[END]:
            symbols.pop()
        *inner, last = symbols
        return [*map(self.inner_ids.__getitem__, inner), self.last_ids[last]]

    def _text(self, ids: list[int]) -> str:
        return re.sub(JOINT, "", " ".join(map(self._all_pieces.__getitem__, ids)))


def _codes(text: str, source: str) -> tuple[bool, list[tuple[str, str]]]:
    """Returns True if the version is 0.1, and the pairs of symbols, each at its first place in the
    file.
    """
    lines = text.rstrip("\n").split("\n")
    has_version = lines[0].startswith("#version:")
    version = VERSION.fullmatch(lines[0])
    if has_version and not version:
        raise UserError(f"{source}:1: {shortened(lines[0])!r} must name version 0.1 or 0.2; {CURE}")
    if len(lines) > MAX_PIECES // 2:
        raise UserError(
            f"{source}: has {len(lines):,} lines, more than {MAX_PIECES // 2:,}; use fewer codes"
        )
    first = 1 if has_version else 0
    codes: dict[tuple[str, str], None] = {}
    for number, line in enumerate(lines[first:] or [""], first + 1):
        left, _, right = line.strip(LINE_ENDS).partition(" ")
        if not right or " " in right:
            raise UserError(
                f"{source}:{number}: must be two symbols, not {shortened(line)!r}; {CURE}"
            )
        codes[left, right] = None
    return not version or version[1] == "1", list(codes)
