"""The SentencePiece vocabulary: one file that Python, TensorFlow and the served graph read.

Byte-pair encoding (section 5.1; Sennrich et al. 2016) of raw text. Text is not normalised, spaces are kept, and
characters outside the alphabet become UTF-8 byte pieces, so that decoding restores every text exactly, unless it
contains U+2581, which SentencePiece uses for spaces. Id 0 is padding and 1 the end of a text, as in tensor2tensor.
"""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from t2t_repro.data.text_rules import EOS_ID as EOS_ID
from t2t_repro.data.text_rules import PAD_ID as PAD_ID
from t2t_repro.data.text_rules import output_length
from t2t_repro.errors import UserError
from t2t_repro.textfile import whole_file

SPACE = "\u2581"
"""Stands for a space in SentencePiece's pieces."""

PROBE = "  \U0001f100"
"""Text that encoding and decoding change if the vocabulary normalises spaces or characters, or loses rare characters.
U+1F100 is "0." as a single character."""

MAX_TRAINING_BYTES = 200_000_000
"""Maximum bytes of text to learn a vocabulary from. More text changes it little and takes much memory."""


class Vocabulary:
    """Converts text to ids and back.

    Args:
        model: contents of a SentencePiece model file.
        source: name of the file, for errors.

    Raises:
        UserError: if the model is not a SentencePiece model, is truncated, or was not made by t2t-datagen.
    """

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        import sentencepiece

        self.model = model
        self._processor = sentencepiece.SentencePieceProcessor()
        try:
            self._processor.LoadFromSerializedProto(model)
        except (RuntimeError, OSError):
            raise UserError(f"{source}: not a SentencePiece model; make it again with t2t-datagen") from None
        if (self._processor.pad_id(), self._processor.eos_id()) != (PAD_ID, EOS_ID):
            raise UserError(
                f"{source}: padding must be id {PAD_ID} and the end id {EOS_ID}; use a vocabulary of t2t-datagen"
            )
        if self.decode(self.encode([PROBE])) != [PROBE]:  # SentencePiece loads a file that was cut between two fields.
            raise UserError(
                f"{source}: changes text that it encodes and decodes; it is truncated or not made by t2t-datagen; "
                "copy it again"
            )

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """Loads a vocabulary from a file.

        Raises:
            UserError: if the file is missing, unreadable or not a vocabulary.
        """
        try:
            return cls(Path(path).read_bytes(), str(path))
        except FileNotFoundError:
            raise UserError(f"{path}: no such vocabulary; make it with t2t-datagen") from None
        except OSError as error:
            raise UserError(f"{path}: cannot be read ({error.strerror or error})") from None

    def save(self, path: str | Path) -> None:
        """Writes the vocabulary to a file, whole or not at all."""
        with whole_file(path) as file:
            file.write(self.model)

    @property
    def size(self) -> int:
        """Number of ids."""
        return int(self._processor.GetPieceSize())

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that identify the vocabulary."""
        return hashlib.sha256(self.model).hexdigest()[:12]

    @property
    def is_byte(self) -> np.ndarray:
        """bool [V]: True for ids that are a single byte of a character outside the alphabet."""
        return np.array([self._processor.IsByte(i) for i in range(self.size)])

    def missing_symbols(self, symbols: Iterable[str]) -> list[str]:
        """Returns those of `symbols` (see `train`) that are not a piece."""
        unknown_id = self._processor.unk_id()
        return [symbol for symbol in symbols if self._processor.PieceToId(symbol.replace(" ", SPACE)) == unknown_id]

    def encode(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """Returns the ids of each text, followed by the end id. -1 threads are one per core."""
        ids: list[list[int]] = self._processor.Encode(list(texts), add_eos=True, num_threads=num_threads)
        return ids

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """Returns the subword of each id, as stored in the vocabulary's file."""
        pieces: list[str] = self._processor.IdToPiece(list(ids))
        return pieces

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """Returns the text of each sequence of ids, up to its first end or padding id."""
        return [str(self._processor.Decode([int(i) for i in sequence[: output_length(sequence)]])) for sequence in ids]


def train(texts: Iterable[str], vocab_size: int, symbols: Sequence[str] = ()) -> Vocabulary:
    """Learns a vocabulary of `vocab_size` pieces, or fewer if the text yields fewer.

    Args:
        symbols: strings that are always a single piece.

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
            vocab_size=max(vocab_size, 10),  # SentencePiece reports another error below 10.
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
    return Vocabulary(model.getvalue())


def _reason(message: str) -> str:
    if small := re.search(r"smaller than required_chars. \d+ vs (\d+)", message):
        return f"too small for the text's characters and the 256 bytes; use {small[1]} or more"
    if "!sentences_.empty()" in message:
        return "no vocabulary can be learned without text"
    return f"no vocabulary can be learned ({' '.join(message.split())})"


def sample(texts: Iterable[str], max_bytes: int = MAX_TRAINING_BYTES) -> list[str]:
    """Returns at most `max_bytes` of UTF-8 text, spread evenly over `texts`. The same texts give the same sample.

    Memory is bounded. Whenever the limit is exceeded, two of three texts are dropped, and from then on only every third
    text is added. (Keeping every second text would keep only the sources if sources and targets alternate.)
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
