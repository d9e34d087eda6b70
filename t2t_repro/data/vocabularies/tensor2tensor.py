"""tensor2tensor's text encoders as vocabularies: SubwordTextEncoder, TokenTextEncoder and
ByteTextEncoder.

They encode and decode as tensor2tensor 1.15.7 does, with the end id added. The rules were written
down from its text_encoder.py and tokenizer.py.
"""

import functools
import re
from itertools import chain, pairwise, zip_longest

from t2t_repro.data.vocabularies.text_rules import utf8
from t2t_repro.data.vocabularies.vocabulary import (
    MAX_CACHED,
    MAX_PIECES,
    ListVocabulary,
    ids_by_piece,
)
from t2t_repro.errors import UserError, counted, shortened
from t2t_repro.files.untrusted import as_text

RESERVED = ("<pad>", "<EOS>")
"""Pieces of the ids 0 and 1. No text is encoded as these ids."""
TOKENS = re.compile(r"[^\W_]+|[\W_]+")
"""Matches the tokens of a text: runs of letters and digits, and runs of other characters. In
Python, `[^\\W_]` and `str.isalnum` mean exactly the Unicode categories L and N, which are
tensor2tensor's alphanumeric characters.
"""
ESCAPE_CHARACTERS = "\\_u;0123456789"
"""Characters with which a subword vocabulary escapes others. Each must be a subtoken, so that all
text has ids.
"""
ESCAPE = re.compile(r"\\u|\\\\|\\([0-9]+);")
UNDEFINED = "\u3013"
"""Text of an escape whose number is not a character, as in tensor2tensor."""
UNKNOWN_WORDS = ("<unk>", "UNK", "<UNK>", "[UNK]", "<OOV>")
"""A token vocabulary encodes a word that it lacks as the first of these words that it has."""
BYTES_MODEL = b"UTF-8 bytes, after the ids of <pad> and <EOS>\n"
"""Contents of the file of a byte vocabulary."""


class SubwordVocabulary(ListVocabulary):
    """tensor2tensor's SubwordTextEncoder.

    It cuts a text into tokens (see `TOKENS`) and drops single spaces between tokens. In each token,
    it escapes characters outside the alphabet and adds "_". Then it repeatedly takes the longest
    subtoken with which the rest of the token begins. Decoding restores every text. It returns a
    lone surrogate if the ids spell the escape of one.

    The alphabet is the characters that are subtokens by themselves. In tensor2tensor's files, these
    are all characters of all subtokens.
    """

    kind = "subwords"
    suffix = ".subwords"

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        super().__init__(model, source)
        self._all_pieces = _subtokens(_lines(model, source), source)
        self.id_of = ids_by_piece(self._all_pieces, len(RESERVED))
        self.alphabet = {piece for piece in self.id_of if len(piece) == 1}
        if missing := sorted(set(ESCAPE_CHARACTERS) - self.alphabet):
            raise UserError(
                f"{source}: has no subtoken {missing[0]!r}, which all subword vocabularies of "
                "tensor2tensor have; it is truncated or of another kind; copy it again"
            )
        self.longest = max(map(len, self.id_of))
        self.ids_of_token = functools.lru_cache(MAX_CACHED)(self._ids_of_token)

    def _ids(self, text: str) -> list[int]:
        tokens = TOKENS.findall(text)
        tokens[1:-1] = [token for token in tokens[1:-1] if token != " "]
        return list(chain.from_iterable(map(self.ids_of_token, tokens)))

    def _ids_of_token(self, token: str) -> tuple[int, ...]:
        token = escaped(token, self.alphabet)
        ids = []
        start = 0
        while start < len(token):
            ends = range(min(len(token), start + self.longest), start, -1)
            end = next(end for end in ends if token[start:end] in self.id_of)
            ids.append(self.id_of[token[start:end]])
            start = end
        return tuple(ids)

    def _text(self, ids: list[int]) -> str:
        joined = "".join(map(self._all_pieces.__getitem__, ids))
        tokens = [ESCAPE.sub(_character, token) for token in joined.split("_") if token]
        has_space = (left[0].isalnum() and right[0].isalnum() for left, right in pairwise(tokens))
        pairs = zip_longest(tokens, has_space)
        return "".join(f"{token} " if space else token for token, space in pairs)


def escaped(token: str, alphabet: set[str]) -> str:
    """Returns a token with "_" and "\\" escaped, other characters outside `alphabet` as "\\CODE;",
    and "_" added.
    """
    token = token.replace("\\", "\\\\").replace("_", "\\u")
    return "".join(char if char in alphabet else f"\\{ord(char)};" for char in token) + "_"


def _character(escape: re.Match[str]) -> str:
    if not escape[1]:
        return "_" if escape[0] == "\\u" else "\\"
    try:
        return chr(int(escape[1]))
    except (ValueError, OverflowError):
        return UNDEFINED


def _lines(model: bytes, source: str) -> list[str]:
    """Returns the lines of a vocabulary file without white space at their ends. Only a newline ends
    a line.
    """
    if (count := model.count(b"\n")) > MAX_PIECES:
        raise UserError(
            f"{source}: has {count:,} lines, more than {MAX_PIECES:,}; use a smaller vocabulary"
        )
    text = as_text(model, source, "copy the vocabulary again")
    lines = [line.rstrip() for line in text.removesuffix("\n").split("\n")]
    if len(lines) <= len(RESERVED):
        raise UserError(
            f"{source}: has only {counted(len(lines), 'line')}; copy the vocabulary again"
        )
    return lines


def _subtokens(lines: list[str], source: str) -> list[str]:
    """Returns the subtokens in the lines of a file, which may be in quotation marks.

    A newline as a subtoken makes two lines with one quotation mark each. As in tensor2tensor, these
    are two empty subtokens, which no text contains.
    """
    subtokens = []
    for line in lines:
        is_quoted = line[:1] in ("'", '"') and line[-1] == line[0]
        subtokens.append(line[1:-1] if is_quoted else line)
    for number, (subtoken, reserved) in enumerate(zip(subtokens, RESERVED, strict=False), 1):
        if subtoken.removesuffix("_") != reserved:
            raise UserError(
                f"{source}:{number}: must be {reserved}, not {shortened(repr(subtoken))}; use a "
                "vocabulary of tensor2tensor's SubwordTextEncoder"
            )
    return subtokens


class TokenVocabulary(ListVocabulary):
    """tensor2tensor's TokenTextEncoder: a word between white space is a token.

    Decoding joins the tokens with spaces.
    """

    kind = "tokens"
    suffix = ".tokens"

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        super().__init__(model, source)
        self._all_pieces = [line.strip() for line in _lines(model, source)]
        self.id_of = ids_by_piece(self._all_pieces, len(RESERVED))
        unknown_words = (word for word in UNKNOWN_WORDS if word in self.id_of)
        self.unknown_id = self.id_of.get(next(unknown_words, ""))
        """Id of words that the vocabulary lacks, or None if such words are errors."""

    def _ids(self, text: str) -> list[int]:
        words = text.split()
        ids = [self.id_of.get(word, self.unknown_id) for word in words]
        if None in ids:
            raise UserError(
                f"{self.source}: has no word {shortened(repr(words[ids.index(None)]))}; change "
                f"the text, or use a vocabulary that has {UNKNOWN_WORDS[0]} for unknown words"
            )
        return [number for number in ids if number is not None]

    def _text(self, ids: list[int]) -> str:
        return " ".join(map(self._all_pieces.__getitem__, ids))


class ByteVocabulary(ListVocabulary):
    """tensor2tensor's ByteTextEncoder: each byte of the text in UTF-8 is a token.

    Decoding replaces bytes that are not UTF-8 by U+FFFD.
    """

    kind = "character"
    suffix = ".bytes"

    def __init__(self, model: bytes = BYTES_MODEL, source: str = "vocabulary") -> None:
        super().__init__(model, source)
        if model != BYTES_MODEL:
            raise UserError(
                f"{source}: must be the line {BYTES_MODEL.decode().strip()!r}; write it"
            )
        # A visible ASCII character is its own name.
        names = (chr(byte) if 0x20 < byte < 0x7F else f"<0x{byte:02X}>" for byte in range(256))
        self._all_pieces = [*RESERVED, *names]

    def _ids(self, text: str) -> list[int]:
        return [byte + len(RESERVED) for byte in utf8(text)]

    def _text(self, ids: list[int]) -> str:
        return bytes(number - len(RESERVED) for number in ids).decode("utf-8", "replace")
