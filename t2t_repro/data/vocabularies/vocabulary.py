"""Loads vocabularies of any kind, and learns SentencePiece vocabularies.

A SentencePiece vocabulary is a byte-pair vocabulary (the paper's section 5.1; Sennrich et al. 2016). Encoding does not
normalise text, keeps spaces, and writes characters outside the alphabet as UTF-8 bytes. So decoding restores every text
exactly, unless the text contains U+2581, which SentencePiece uses for spaces. Id 0 is padding and id 1 is the end of a
text, as in tensor2tensor, whose kinds of vocabularies are in t2t_vocabularies.py.

In shapes, V is the size of the vocabulary.
"""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from t2t_repro.data.vocabularies.base import MAX_PIECES
from t2t_repro.data.vocabularies.base import Vocabulary as Vocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary, SubwordVocabulary, TokenVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID as EOS_ID
from t2t_repro.data.vocabularies.text_rules import PAD_ID as PAD_ID
from t2t_repro.data.vocabularies.text_rules import output_length, refuse_surrogates
from t2t_repro.errors import UserError, shortened, unknown
from t2t_repro.files.untrusted import read_bytes

SPACE = "\u2581"
"""The character that stands for a space in SentencePiece's pieces."""

PROBE = "  \U0001f100"
"""Text that tests a vocabulary. If encoding and decoding change this text, the vocabulary normalises spaces or
characters, or loses rare characters. U+1F100 is a rare character, which normalisation replaces by "0."."""

MAX_BYTES = 1 << 24
"""Maximum size of a vocabulary file. A vocabulary of 32,000 pieces has less than 1 MB."""

MAX_TRAINING_BYTES = 200_000_000
"""Maximum bytes of text from which a vocabulary is learned. More text costs memory and hardly changes the result."""


class SentencePieceVocabulary(Vocabulary):
    """A SentencePiece vocabulary. The pieces write a space as U+2581.

    Raises:
        UserError: if the contents are not a SentencePiece model, are truncated, or were not made by t2t-datagen.
    """

    kind, suffix = "sentencepiece", ".model"

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        import sentencepiece

        super().__init__(model, source)
        self._processor = sentencepiece.SentencePieceProcessor()
        changes_text = UserError(
            f"{source}: changes text that it encodes and decodes; it is truncated or not made by t2t-datagen; "
            "copy it again"
        )
        try:
            if _has_normalization_rules(model):
                raise changes_text
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, OSError, ValueError):
            raise UserError(
                f"{source}: not a SentencePiece model; make it again with t2t-datagen; if it is "
                "tensor2tensor's, rename it so that its name ends with .subwords or .tokens"
            ) from None
        if (self._processor.pad_id(), self._processor.eos_id()) != (PAD_ID, EOS_ID):
            raise UserError(
                f"{source}: padding must be id {PAD_ID} and the end id {EOS_ID}; use a vocabulary of t2t-datagen"
            )
        # SentencePiece loads some truncated files without an error, so test the vocabulary with a probe text.
        if self.decode(self.encode([PROBE])) != [PROBE]:
            raise changes_text

    @property
    def size(self) -> int:
        return int(self._processor.GetPieceSize())

    @property
    def is_byte(self) -> np.ndarray:
        return np.array([self._processor.IsByte(i) for i in range(self.size)])

    def missing_symbols(self, symbols: Iterable[str]) -> list[str]:
        unknown_id = self._processor.unk_id()
        return [symbol for symbol in symbols if self._processor.PieceToId(symbol.replace(" ", SPACE)) == unknown_id]

    def encode(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """Returns the ids of each text, including the end id. num_threads=-1 means one thread per core.

        Raises:
            UserError: if a text has a lone surrogate, which UTF-8 cannot encode.
        """
        try:
            ids: list[list[int]] = self._processor.Encode(list(texts), add_eos=True, num_threads=num_threads)
        except TypeError:
            # SentencePiece does not say which text is wrong.
            for text in texts:
                refuse_surrogates(text)
            raise
        return ids

    def _pieces(self, ids: Sequence[int]) -> list[str]:
        pieces: list[str] = self._processor.IdToPiece(list(ids))
        return pieces

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        return [str(self._processor.Decode([int(i) for i in sequence[: output_length(sequence)]])) for sequence in ids]


KINDS: dict[str, type[Vocabulary]] = {
    kind.kind: kind for kind in (SentencePieceVocabulary, SubwordVocabulary, TokenVocabulary, ByteVocabulary)
}
"""The kinds of vocabularies by name."""
SUFFIXES = tuple(kind.suffix for kind in KINDS.values())
"""Ends of vocabularies' file names."""


def load_vocabulary(path: str | Path, kind: str = "") -> Vocabulary:
    """Returns the vocabulary in a file.

    Args:
        path: the file.
        kind: name of the kind of vocabulary, from `KINDS`. By default, it follows from the name of the file.

    Raises:
        UserError: if the file is missing, unreadable or not a vocabulary of its kind, or `kind` is unknown.
    """
    if kind and kind not in KINDS:
        raise unknown("vocabulary kind", kind, KINDS)
    try:
        model = read_bytes(path, MAX_BYTES)
    except (FileNotFoundError, NotADirectoryError):
        raise UserError(f"{path}: no such vocabulary; make it with t2t-datagen") from None
    return KINDS[kind or _kind_of_name(path) or _kind_of_contents(model)](model, str(path))


def load_vocabularies(folder: Path, targets: str, sources: str) -> Vocabulary:
    """Returns the vocabulary of the targets, together with that of the sources.

    Args:
        folder: the folder of both files.
        targets: name of the file of the vocabulary of the targets.
        sources: name of the file of the vocabulary of the sources; "" if both have the same.

    Raises:
        UserError: if a file is missing, unreadable or not a vocabulary.
    """
    vocabulary = load_vocabulary(folder / targets)
    return vocabulary.with_sources(load_vocabulary(folder / sources)) if sources else vocabulary


def check_vocabulary_name(name: str) -> None:
    """Raises UserError unless `name`, from a JSON file, is the name of a vocabulary, such as vocab.*.model.

    The name must not contain a folder. Otherwise programs could read a file outside the JSON file's folder, and
    t2t-trainer could overwrite one.
    """
    is_vocabulary = name.startswith("vocab.") and _kind_of_name(name) and len(name.encode("utf-8", "replace")) < 256
    if not is_vocabulary or any(char in "/\\" or char < " " for char in name):
        raise UserError(
            f"vocabulary={shortened(repr(name))} must be the name of a file in the same folder, "
            f"vocab.* that ends with one of {', '.join(SUFFIXES)}"
        )


def _kind_of_name(path: str | Path) -> str:
    """Returns the kind of a vocabulary according to the name of its file, or "".

    A language may follow the suffix, as in tensor2tensor's vocab.translate_enzh_wmt32k.32768.subwords.zh.
    """
    suffixes = Path(path).suffixes[-2:]
    return next((kind.kind for kind in KINDS.values() if kind.suffix in suffixes), "")


def _kind_of_contents(model: bytes) -> str:
    """Returns "subwords" if a file begins as tensor2tensor's files of subwords with quotation marks do."""
    return SubwordVocabulary.kind if model.startswith(b"'<pad>") else SentencePieceVocabulary.kind


def _has_normalization_rules(model: bytes) -> bool:
    """Returns True if a SentencePiece model has a compiled table of rules that change text.

    This check comes before SentencePiece's C++ code reads the model, because that code would trust the table. In the
    model's protobuf message, field 1 is a piece, and fields 3 and 5 are the normalizer and the denormalizer, whose
    field 2 is the table.

    Raises:
        ValueError: if the model is not a protobuf message, or has no pieces or more than `MAX_PIECES`.
    """
    pieces, has_rules = 0, False
    for number, contents in _fields(model):
        if number == 1:
            pieces += 1
        elif number in (3, 5):
            has_rules |= any(rule == 2 and table for rule, table in _fields(contents))
    if not 0 < pieces <= MAX_PIECES:
        raise ValueError(f"{pieces} pieces")
    return has_rules


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yields the field number and the bytes of each field of a protobuf message.

    Raises ValueError if the message is cut off or is not protobuf.
    """
    start = 0
    try:
        while start < len(message):
            tag, size = message[start], message[start + 1]
            if tag < 0x80 and size < 0x80 and tag & 7 == 2:  # fast path for short fields, such as pieces
                start += 2
                end = start + size
            else:
                tag, start = _varint(message, start)
                if tag & 7 == 0:
                    end = _varint(message, start)[1]
                elif tag & 7 == 2:
                    size, start = _varint(message, start)
                    end = start + size
                else:
                    end = start + {1: 8, 5: 4}[tag & 7]
            if end > len(message):
                raise ValueError("cut off")
            yield tag >> 3, message[start:end]
            start = end
    except (IndexError, KeyError):
        raise ValueError("not protobuf") from None


def _varint(message: bytes, start: int) -> tuple[int, int]:
    """Returns the number that is stored as protobuf's varint at `start`, and the index after it."""
    number = 0
    for shift in range(0, 70, 7):
        byte = message[start]
        start += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, start
    raise ValueError("a number has more than ten bytes")


def train(texts: Iterable[str], vocab_size: int, symbols: Sequence[str] = ()) -> SentencePieceVocabulary:
    """Returns a SentencePiece vocabulary of `vocab_size` pieces, learned from `texts`. A short text gives fewer pieces.

    Args:
        symbols: strings that the vocabulary always encodes as a single piece.

    Raises:
        UserError: if there is no text, or the size is too small for the alphabet, the symbols and the 256 byte pieces.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=max(vocab_size, 10),  # For sizes below 3, SentencePiece's error would not name the minimum.
            hard_vocab_limit=False,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            character_coverage=0.9998,
            max_sentence_length=1 << 20,
            pad_id=PAD_ID,
            eos_id=EOS_ID,
            unk_id=2,
            bos_id=-1,
            user_defined_symbols=[symbol.replace(" ", SPACE) for symbol in symbols],
            minloglevel=2,
        )
    except RuntimeError as error:
        raise UserError(f"--vocab_size={vocab_size}: {_reason(str(error))}") from None
    return SentencePieceVocabulary(model.getvalue())


def _reason(message: str) -> str:
    """Returns the reason why SentencePiece learned no vocabulary, from the message of its exception."""
    if small := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return f"too small for the text's characters and the 256 bytes; use {small[1]} or more"
    if "!sentences_.empty()" in message:
        return "no vocabulary can be learned without text"
    return f"no vocabulary can be learned ({' '.join(message.split())})"


def sample(texts: Iterable[str], max_bytes: int = MAX_TRAINING_BYTES) -> list[str]:
    """Returns at most `max_bytes` of UTF-8 text, sampled evenly from `texts`. The same texts give the same sample.

    Whenever the sample exceeds the limit, the function keeps only every third text of the sample, and from then on
    samples texts a third as often. Keeping every second text would keep only sources if sources and targets alternate.
    """
    sampled: list[str] = []
    size, stride = 0, 1
    for number, text in enumerate(texts):
        if number % stride:
            continue
        sampled.append(text)
        size += len(text.encode("utf-8"))
        while size > max_bytes and len(sampled) > 1:
            sampled = sampled[::3]
            size = sum(len(text.encode("utf-8")) for text in sampled)
            stride *= 3
    return sampled
