"""SentencePiece vocabularies of any origin, and how t2t-datagen learns one.

t2t-datagen learns byte pairs, as in the paper's section 5.1. Encoding with them does not normalise
text, keeps spaces, and writes characters outside the alphabet as UTF-8 bytes. So decoding restores
every text exactly, unless the text contains U+2581, which SentencePiece uses for spaces. Other
models may normalise text, and encode characters outside their alphabet as their unknown piece.

In shapes, V is the size of the vocabulary.
"""

import functools
import io
import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from t2t_repro.data.vocabularies.subword_sampler import (
    BestSampler,
    MergeSampler,
    SubwordSampler,
    UnigramSampler,
)
from t2t_repro.data.vocabularies.tags import is_tag
from t2t_repro.data.vocabularies.text_rules import EOS_ID, PAD_ID, SPACE, utf8
from t2t_repro.data.vocabularies.vocabulary import MAX_PIECES, Vocabulary
from t2t_repro.errors import UserError

NO_ID = -1
"""SentencePiece's id of a piece that a model lacks."""
NEW_PIECES = {PAD_ID: "<pad>", EOS_ID: "</s>"}
"""Names of the pieces that a vocabulary has but its model lacks."""

MAX_TRAINING_BYTES = 200_000_000
"""Maximum bytes of text from which a vocabulary is learned. More text costs memory and hardly
changes the result.
"""

LARGEST_DEFAULT = 32_000
PIECES_PER_ROOT = 45
"""Constants of `default_size`, which gives 8,000 pieces for 29,000 pairs, and 32,000 for 505,000 or
more.
"""

NORMAL = 1
"""Type of a piece that is not a control symbol, the unknown piece, a symbol of the user, unused, or
a byte.
"""
UNIGRAM = 1
BYTE_PAIRS = 2
"""Kinds of models."""


class SentencePieceVocabulary(Vocabulary):
    """A SentencePiece vocabulary. The pieces write a space as U+2581.

    Its ids are padding, the end, and then all other pieces in the model's order. If the model has
    no padding or no end, the vocabulary has a piece more. Models that t2t-datagen learns have these
    ids.

    Attributes:
        processor: the model in the library.
        checked_model: the model as SentencePiece writes it again. Bytes of another program can hide
            fields from some versions of SentencePiece.
        model_ids: the model's id of each id, `NO_ID` if the model lacks the piece.
        ids: the vocabulary's id of each id of the model.
        model_type: the kind of model, e.g. `UNIGRAM`.
        keeps_spaces: True if decoding removes only the first space of a text.
        is_renumbered: True if any id differs from the model's.
    """

    kind = "sentencepiece"
    suffix = ".model"
    unknown_id: int

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        import sentencepiece

        super().__init__(model, source)
        self.processor = sentencepiece.SentencePieceProcessor()
        try:
            # SentencePiece checks the normalization rules, with which damaged models could crash
            # older versions of its code. TensorFlow Text, which reads the model later, has such a
            # version.
            self.processor.LoadFromSerializedProto(model)
            count = self.processor.GetPieceSize()
            # UnicodeDecodeError if a piece is not UTF-8.
            pieces = self.processor.IdToPiece(list(range(count)))
            if count > MAX_PIECES:
                raise ValueError
            if self.processor.unk_id() == NO_ID:  # SentencePiece accepts some models without it
                raise ValueError("unk is not defined")
            self.checked_model = self.processor.serialized_model_proto()
            fields = dict(_fields(self.checked_model))
            self.model_type = int(dict(_fields(fields.get(2, b""))).get(3, UNIGRAM))
        except (RuntimeError, OSError, ValueError, TypeError) as error:
            reason = "not a SentencePiece model"
            if "unk is not defined" in str(error):
                reason = "has no unknown piece"
            raise UserError(
                f"{source}: {reason}; make it again with t2t-datagen or spm_train; if it is "
                "tensor2tensor's, rename it so that its name ends with .subwords or .tokens"
            ) from None
        # SentencePiece loads a model that ends before fields 2 and 3, the trainer's settings and
        # the rules.
        if not {2, 3} <= fields.keys():
            raise UserError(
                f"{source}: truncated, because it ends before its normalization rules; copy it "
                "again"
            )
        self.keeps_spaces = bool(self.processor.Decode([SPACE, SPACE]) == " ")
        reserved = (self.processor.pad_id(), self.processor.eos_id())
        self.is_renumbered = reserved != (PAD_ID, EOS_ID)
        self.model_ids = [*reserved, *(number for number in range(count) if number not in reserved)]
        self.unknown_id = self.model_ids.index(self.processor.unk_id())
        id_of = {model_id: number for number, model_id in enumerate(self.model_ids)}
        self.ids = [id_of[model_id] for model_id in range(count)]
        self._all_pieces = [pieces[number] for number in self.model_ids]
        for number, piece in NEW_PIECES.items():
            if self.model_ids[number] == NO_ID:
                self._all_pieces[number] = f"{piece}_" if piece in pieces else piece

    @functools.cached_property
    def is_byte(self) -> np.ndarray:
        return np.array(
            [number != NO_ID and self.processor.IsByte(number) for number in self.model_ids]
        )

    def missing_symbols(self, symbols: Iterable[str]) -> list[str]:
        unknown_id = self.processor.unk_id()
        return [
            symbol
            for symbol in symbols
            if self.processor.PieceToId(symbol.replace(" ", SPACE)) == unknown_id
        ]

    def encode(self, texts: Sequence[str], num_threads: int = -1) -> list[list[int]]:
        add_eos = not self.is_renumbered
        try:
            if len(texts) == 1:  # without a thread, which would take longer than the text
                rows = [self.processor.Encode(texts[0], add_eos=add_eos)]
            else:
                rows = self.processor.Encode(list(texts), add_eos=add_eos, num_threads=num_threads)
        except TypeError:
            # SentencePiece does not say which text is wrong.
            for text in texts:
                utf8(text)
            raise
        if self.is_renumbered:
            rows = [[*map(self.ids.__getitem__, row), EOS_ID] for row in rows]
        return rows

    def sampler(self, alpha: float, nbest_size: int) -> SubwordSampler:
        types = [
            dict(_fields(data)).get(3, NORMAL)
            for number, data in _fields(self.checked_model)
            if number == 1
        ]
        pieces = {}
        for number, (piece, model_id) in enumerate(
            zip(self._all_pieces, self.model_ids, strict=True)
        ):
            if model_id != NO_ID and types[model_id] == NORMAL and not is_tag(piece):
                pieces[number] = (piece, self.processor.GetScore(model_id))
        if self.model_type == UNIGRAM and nbest_size < 0:
            return UnigramSampler(pieces, alpha)
        if self.model_type == UNIGRAM:
            return BestSampler(pieces, alpha, nbest_size)
        if self.model_type != BYTE_PAIRS:
            raise UserError(
                f"{self.source}: its pieces are words or characters; omit subword_alpha"
            )
        if nbest_size != -1:
            raise UserError(
                f"{self.source}: its pieces are byte pairs; omit subword_nbest_size={nbest_size}"
            )
        return MergeSampler(pieces, alpha)

    def _text(self, ids: list[int]) -> str:
        return str(self.processor.Decode([self.model_ids[number] for number in ids]))


def _fields(message: bytes) -> list[tuple[int, Any]]:
    """Returns the number and the value of each field of a protobuf message."""
    from google.protobuf.empty_pb2 import Empty
    from google.protobuf.unknown_fields import UnknownFieldSet

    fields = UnknownFieldSet(Empty.FromString(message))
    return [(field.field_number, field.data) for field in fields]


def train(
    texts: Iterable[str], vocab_size: int, symbols: Sequence[str] = ()
) -> SentencePieceVocabulary:
    """Returns a SentencePiece vocabulary of `vocab_size` pieces, learned from `texts`. A short text
    gives fewer pieces.

    It encodes each of `symbols` as a single piece. Raises UserError if there is no text, or the
    size is too small for the alphabet, the symbols and the 256 byte pieces.
    """
    import sentencepiece

    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=iter(texts),
            model_writer=model,
            model_type="bpe",
            # For sizes below 3, SentencePiece's error would not name the minimum.
            vocab_size=max(vocab_size, 10),
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
        reason = f"no vocabulary can be learned ({' '.join(str(error).split())})"
        if small := re.search(r"smaller than required_chars. \d+ vs (\d+)", str(error)):
            reason = (
                f"too small for the text's characters and the 256 bytes; use {small[1]} or more"
            )
        raise UserError(f"--vocab_size={vocab_size}: {reason}") from None
    return SentencePieceVocabulary(model.getvalue())


def default_size(texts: Iterable[str], pairs: int) -> int:
    """Returns a number of pieces, in thousands, for a vocabulary of `pairs` pairs, from which
    `texts` are a sample.

    There are pieces for the 256 bytes and for all characters, and others that grow with the square
    root of the number of pairs, so that a piece of a small text occurs often enough to be learned.
    At most `LARGEST_DEFAULT`.
    """
    joined = PIECES_PER_ROOT * pairs**0.5
    if joined >= LARGEST_DEFAULT:
        return LARGEST_DEFAULT
    characters = set().union(*texts)
    thousands = max(1, round((256 + len(characters) + joined) / 1000))
    return min(LARGEST_DEFAULT, thousands * 1000)


def sample(texts: Iterable[str], max_bytes: int = MAX_TRAINING_BYTES) -> list[str]:
    """Returns at most `max_bytes` of UTF-8 text, sampled evenly from `texts`. The same texts give
    the same sample.

    Whenever the sample exceeds the limit, the function keeps only every third text of the sample,
    and from then on samples texts a third as often. Keeping every second text would keep only
    sources if sources and targets alternate.
    """
    sampled: list[str] = []
    size = 0
    stride = 1
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
