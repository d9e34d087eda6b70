"""SentencePiece subwords: one file from which Python, TensorFlow and the served graph read the same pieces.

Byte-pair encoding (section 5.1; Sennrich et al. 2016) over raw text, without loss but for one sign (U+2581, with which
SentencePiece writes spaces): no normalisation, spaces kept, and characters outside the alphabet as UTF-8 byte pieces.
Id 0 is padding, 1 the end of a text, as in tensor2tensor.
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
"""How SentencePiece writes a space in a piece."""

PROBE = "  \U0001f100"
"""Text that comes back changed where spaces or characters are normalised, or rare characters are lost: a digit with a
full stop, as one sign."""

MAX_TRAINING_BYTES = 200_000_000
"""Text that a vocabulary is learned from at most; more changes it little and takes much memory."""


class Vocabulary:
    """Text to ids and back.

    Args:
        model: the contents of a SentencePiece model file.
        source: the file's name, for errors.

    Raises:
        UserError: no SentencePiece model, a truncated one, or one that t2t-datagen did not make.
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
            raise UserError(f"{source}: padding must be id {PAD_ID} and the end id {EOS_ID}; use t2t-datagen's own")
        if self.decode(self.encode([PROBE])) != [PROBE]:  # of a model cut between two of its fields, the rest loads
            raise UserError(
                f"{source}: text does not come back as it was; it is truncated, or not t2t-datagen's; copy it again"
            )

    @classmethod
    def load(cls, path: str | Path) -> Vocabulary:
        """The vocabulary in a file.

        Raises:
            UserError: the file is missing, unreadable or no vocabulary.
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
        """How many ids there are."""
        return int(self._processor.GetPieceSize())

    @property
    def fingerprint(self) -> str:
        """Twelve hex digits that differ for different vocabularies."""
        return hashlib.sha256(self.model).hexdigest()[:12]

    @property
    def is_byte(self) -> np.ndarray:
        """Whether each id is a byte of a character outside the alphabet, bool [V]."""
        return np.array([self._processor.IsByte(i) for i in range(self.size)])

    def missing_symbols(self, symbols: Iterable[str]) -> list[str]:
        """Those of `symbols` (see `train`) that are not a piece."""
        unknown = self._processor.unk_id()
        return [symbol for symbol in symbols if self._processor.PieceToId(symbol.replace(" ", SPACE)) == unknown]

    def encode(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        """The ids of each text, with the end id at its end; -1 threads are one a core."""
        ids: list[list[int]] = self._processor.Encode(list(texts), add_eos=True, num_threads=num_threads)
        return ids

    def pieces(self, ids: Sequence[int]) -> list[str]:
        """The subword of each id as the vocabulary's file has it."""
        found: list[str] = self._processor.IdToPiece(list(ids))
        return found

    def decode(self, ids: Iterable[Sequence[int]]) -> list[str]:
        """The text of each sequence of ids, up to its first end or padding id."""
        return [str(self._processor.Decode([int(i) for i in sequence[: output_length(sequence)]])) for sequence in ids]


def train(texts: Iterable[str], vocab_size: int, symbols: Sequence[str] = ()) -> Vocabulary:
    """Learns a vocabulary of about `vocab_size` pieces, fewer where the text has not so many.

    Args:
        symbols: strings that are one piece each wherever they occur.

    Raises:
        UserError: no text, or a size too small for the alphabet, the symbols and the 256 byte pieces.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="bpe",
            vocab_size=max(vocab_size, 10),  # below that SentencePiece's error is another one
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
        return f"too small for the text's characters and the 256 bytes; give {small[1]} or more"
    if "!sentences_.empty()" in message:
        return "no vocabulary can be learned from no text"
    return f"no vocabulary can be learned ({' '.join(message.split())})"


def sample(texts: Iterable[str], max_bytes: int = MAX_TRAINING_BYTES) -> list[str]:
    """At most `max_bytes` of UTF-8, spread evenly over `texts`, the same for the same texts.

    Every text is kept until the limit is met; then two of three are dropped and from there on only every third one is
    taken, and so on: the memory stays bounded however long `texts` is. (Every second one would be all sources and no
    target where the two come in turn.)
    """
    kept: list[str] = []
    size, stride = 0, 1
    for number, text in enumerate(texts):
        if number % stride:
            continue
        kept.append(text)
        size += len(text.encode("utf-8"))
        while size > max_bytes and len(kept) > 1:
            kept = kept[::3]
            size = sum(len(text.encode("utf-8")) for text in kept)
            stride *= 3
    return kept
