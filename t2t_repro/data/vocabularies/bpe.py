"""subword-nmt's vocabularies: the file of codes that its learn-bpe writes.

They encode as subword-nmt 0.3.8 does, with the end id added. The rules were written down from its apply_bpe.py.
"""

import functools
import re
from collections.abc import Sequence
from itertools import pairwise

from t2t_repro.data.vocabularies.vocabulary import MAX_PIECES, ListVocabulary
from t2t_repro.errors import UserError, shortened

SPECIAL = ("<pad>", "</s>", "<unk>")
"""Pieces of the ids 0, 1 and 2. Decoding writes the last one for a symbol that the codes lack."""
UNKNOWN_ID = 2
END = "</w>"
"""Stands at the end of a symbol that ends a word. In version 0.1 of the codes, it begins as a symbol of its own."""
CONTINUED = "@@"
"""Stands at the end of a piece that does not end its word."""
JOINT = f"{CONTINUED} |{CONTINUED} ?$"
"""Regular expression for what decoding removes between pieces, for Python and for TensorFlow."""
LINE_ENDS = "\r\n "
"""Characters that subword-nmt removes at both ends of a line. It splits the words only at spaces."""
VERSION = re.compile(r"#version:(?:.*\s)?0\.([12])(?:\.0+)*\s*")
"""Matches the first line of a file of codes. Without this line, the version is 0.1."""
MAX_CACHED_WORDS = 1 << 18
"""Maximum number of words whose ids a vocabulary remembers."""

Merge = tuple[int, int, int]
"""Ids of two neighboring symbols, and of the symbol that replaces them."""


class Merges:
    """The merges of byte-pair encoding: neighboring symbols, in the order in which they are replaced.

    Args:
        merges: each pair of symbols once.
    """

    def __init__(self, merges: Sequence[Merge]) -> None:
        self.merges = merges
        self._ranks = {(left, right): rank for rank, (left, right, _) in enumerate(merges)}

    def apply(self, symbols: Sequence[int]) -> list[int]:
        """Returns the symbols of a word after all merges. Each one replaces its pair everywhere, from left to right."""
        word, none = list(symbols), len(self.merges)
        while (rank := min((self._ranks.get(pair, none) for pair in pairwise(word)), default=none)) < none:
            left, right, result = self.merges[rank]
            merged, start = [], 0
            while start < len(word):
                is_pair = word[start : start + 2] == [left, right]
                merged.append(result if is_pair else word[start])
                start += 1 + is_pair
            word = merged
        return word


class BpeVocabulary(ListVocabulary):
    """A vocabulary of subword-nmt. A word stands between spaces, as text was tokenized for the original model.

    The pieces are written as subword-nmt prints them: "lo@@" within a word, and "lo" at its end. After `SPECIAL` come
    both forms of each character of the codes, in the order of Unicode, and then those of the symbol that each line of
    the codes makes. A symbol that the codes do not make is unknown.
    """

    kind, suffix = "bpe", ".bpe"

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        super().__init__(model, source)
        version, codes = _codes(model, source)
        self.has_final_symbol = version == "0.1"
        """True if `END` is the last symbol of a word, False if it is a part of the last symbol."""
        characters = sorted({char for pair in codes for symbol in pair for char in symbol.removesuffix(END)})
        symbols = [*characters, *(char + END for char in characters), END, *(part for code in codes for part in code)]
        symbols = list(dict.fromkeys([*symbols, *map("".join, codes)]))
        self.symbol_of = {symbol: number for number, symbol in enumerate(symbols)}
        """Number of each symbol. A character that the codes lack has the next number, that of the unknown symbol."""
        pieces = [form for char in characters for form in (char + CONTINUED, char)]
        for made in map("".join, codes):
            forms = [made + CONTINUED, made] if self.has_final_symbol else [made + CONTINUED]
            pieces += [made.removesuffix(END)] if made.endswith(END) else forms
        self._all_pieces = [*SPECIAL, *dict.fromkeys(pieces)]
        id_of = {piece: number for number, piece in enumerate(self._all_pieces) if number >= len(SPECIAL)}
        self.inner_ids = [*(id_of.get(symbol + CONTINUED, UNKNOWN_ID) for symbol in symbols), UNKNOWN_ID]
        """Id of each symbol within a word."""
        self.last_ids = [*(id_of.get(symbol.removesuffix(END), UNKNOWN_ID) for symbol in symbols), UNKNOWN_ID]
        """Id of each symbol at the end of a word."""
        symbol = self.symbol_of.__getitem__
        self.merges = Merges([(symbol(left), symbol(right), symbol(left + right)) for left, right in codes])
        self.ids_of_word = functools.lru_cache(MAX_CACHED_WORDS)(self._ids_of_word)

    def _ids(self, text: str) -> list[int]:
        return [number for word in text.strip(LINE_ENDS).split(" ") if word for number in self.ids_of_word(word)]

    def _ids_of_word(self, word: str) -> list[int]:
        characters = [*word, END] if self.has_final_symbol else [*word[:-1], word[-1] + END]
        symbols = self.merges.apply([self.symbol_of.get(char, len(self.symbol_of)) for char in characters])
        if symbols[-1] == self.symbol_of[END]:
            symbols.pop()
        return [*(self.inner_ids[symbol] for symbol in symbols[:-1]), self.last_ids[symbols[-1]]]

    def _text(self, ids: list[int]) -> str:
        return re.sub(JOINT, "", " ".join(map(self._all_pieces.__getitem__, ids)))


def _codes(model: bytes, source: str) -> tuple[str, list[tuple[str, str]]]:
    """Returns the version of a file of codes, and its pairs of symbols. If it repeats a pair, the first line counts."""
    cure = "use the file that subword-nmt learn-bpe writes"
    try:
        text = model.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{source}: not UTF-8 (byte {error.start}); {cure}") from None
    version, first_line = "0.1", 1
    if text.startswith("#version:"):
        line, _, text = text.partition("\n")
        match = VERSION.fullmatch(line)
        if not match:
            raise UserError(f"{source}:1: {shortened(line)!r} must name version 0.1 or 0.2; {cure}")
        version, first_line = f"0.{match[1]}", 2
    lines = text.rstrip("\n").split("\n")
    if len(lines) > MAX_PIECES // 2:
        raise UserError(f"{source}: has {len(lines):,} lines, more than {MAX_PIECES // 2:,}; use fewer codes")
    codes: dict[tuple[str, str], None] = {}
    for number, line in enumerate(lines, first_line):
        parts = line.strip(LINE_ENDS).split(" ")
        if len(parts) != 2:
            raise UserError(f"{source}:{number}: must be two symbols, not {shortened(line)!r}; {cure}")
        codes[parts[0], parts[1]] = None
    return version, list(codes)
