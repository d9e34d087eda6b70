"""Hugging Face's `tokenizer.json`: byte-pair encoding with byte fallback (Llama) or of bytes
(GPT-2).

In Python, the library tokenizers encodes and decodes. A tokenizer is refused if `graph_bpe.py`
cannot do exactly the same. The name of a special token in a text, such as "</s>", is ordinary text.
"""

import json
from collections.abc import Iterator
from typing import Any

from t2t_repro.data.vocabularies.bpe import ranked_merges
from t2t_repro.data.vocabularies.text_rules import SPACE, utf8
from t2t_repro.data.vocabularies.vocabulary import MAX_PIECES, ListVocabulary
from t2t_repro.errors import UserError, first_line, require_extra, shortened
from t2t_repro.files.untrusted import as_text, parse_json

ENDS = ("</s>", "<|endoftext|>", "<eos>", "[SEP]")
PADDINGS = ("<pad>", "[PAD]")
"""Names of the end token and of padding, if the file does not say which tokens these are."""
FALLBACK_PIECES = [f"<0x{byte:02X}>" for byte in range(256)]
"""Pieces for the bytes of characters that have no piece."""
_VISIBLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = sorted({*range(256)} - {*_VISIBLE})
GPT2_PIECES = [chr(byte if byte in _VISIBLE else 256 + _OTHERS.index(byte)) for byte in range(256)]
"""The characters that stand for the bytes in GPT-2's pieces."""
_TO_PIECES = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_TO_TEXT = {"type": "Replace", "pattern": {"String": SPACE}, "content": " "}
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA = (
    {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": SPACE}, _TO_PIECES]},
    {
        "type": "Sequence",
        "decoders": [_TO_TEXT, {"type": "ByteFallback"}, {"type": "Fuse"}, _STRIP],
    },
)
"""Llama's normalizer and decoder."""
SERVED = (
    ("Llama's", "none", "Llama's"),
    ("none", "Metaspace", "Llama's"),
    ("none", "Metaspace", "Metaspace"),
    ("none", "ByteLevel", "ByteLevel"),
)
"""Kinds of the normalizer, the pre-tokenizer and the decoder that `graph_bpe.py` has."""


class TokenizerVocabulary(ListVocabulary):
    """The vocabulary in a `tokenizer.json`. Its ids are padding, the end, and the others in the
    order of the file.
    """

    kind = "tokenizer"
    suffix = ".tokenizer"  # CTranslate2 has a file vocabulary.json of its own

    def __init__(self, model: bytes, source: str = "vocabulary") -> None:
        super().__init__(model, source)
        require_extra("tokenizers", "tokenizers")
        self.file = parse_json(as_text(model, source), source)
        try:
            if not (reason := next(self._reasons_to_refuse(), "")):
                self._read()
        except Exception as error:  # the library raises errors of this class
            reason = f"{type(error).__name__}: {shortened(first_line(error))}"
            raise UserError(
                f"{source}: not a sound tokenizer.json ({reason}); copy it again"
            ) from None
        if reason:
            raise UserError(
                f"{source}: {shortened(reason, 200)}, which a served model cannot repeat; use "
                "another file"
            )

    def _reasons_to_refuse(self) -> Iterator[str]:
        """Yields what the tokenizer has that the graph cannot repeat exactly."""
        model = self.file["model"]
        added = {str(token["content"]): token for token in self.file["added_tokens"]}
        if model["type"] != "BPE":
            yield f"its model is {model['type']}"
        for name in ("dropout", "continuing_subword_prefix", "end_of_word_suffix", "ignore_merges"):
            if model.get(name):
                yield f"its model has {name}"
        if not all(token["special"] for token in added.values()):
            yield "it has an added token that is not special"
        steps = [
            self.file[name] or {"type": "none"}
            for name in ("normalizer", "pre_tokenizer", "decoder")
        ]
        self.kinds = tuple("Llama's" if step in LLAMA else step["type"] for step in steps)
        """Kinds of the normalizer, the pre-tokenizer and the decoder."""
        if self.kinds not in SERVED:
            normalizer, pre_tokenizer, decoder = self.kinds
            yield (
                f"its normalizer is {normalizer}, its pre-tokenizer {pre_tokenizer} and its "
                f"decoder {decoder}"
            )
        self.pre_tokenizer, self.decoder = steps[1:]
        if any(step.get("replacement", SPACE) != SPACE for step in steps):
            yield "its spaces are not U+2581"
        if self.pre_tokenizer.get("use_regex") is False:
            yield "its words are not GPT-2's"
        self.is_byte_level = self.kinds[1] == "ByteLevel"
        self.byte_pieces = GPT2_PIECES if self.is_byte_level else FALLBACK_PIECES
        has_bytes = self.is_byte_level or model["byte_fallback"]
        if not has_bytes or set(self.byte_pieces) - (model["vocab"].keys() - added):
            yield "it lacks byte fallback, or the piece of a byte"

    def _read(self) -> None:
        """Sets the ids, and the library's tokenizer with the ids of the file."""
        from tokenizers import Tokenizer

        model = self.file["model"]
        added = {str(token["content"]): token["id"] for token in self.file["added_tokens"]}
        id_of = {**model["vocab"], **added}
        ends = (*_appended(self.file["post_processor"]), *ENDS)
        end = next((name for name in ends if name in id_of), "</s>")
        paddings = ((self.file["padding"] or {}).get("pad_token", "<pad>"), *PADDINGS)
        pad = next((name for name in paddings if name in id_of and name != end), "<pad>")
        self._all_pieces = [pad, end, *sorted(id_of.keys() - {pad, end}, key=id_of.__getitem__)]
        self._file_ids = [id_of.get(piece, -1) for piece in self._all_pieces]
        self._number_of = {number: index for index, number in enumerate(self._file_ids)}
        if len(self._number_of) < len(id_of) or len(id_of) > MAX_PIECES:
            raise ValueError(f"an id is repeated, or there are more than {MAX_PIECES:,} tokens")
        self.special = {pad, end, *added}
        """Tokens that stand for no text."""
        # A piece with a space matches no text, so the library finds no special token in a text.
        vocab = {
            f" {piece}" if piece in self.special else piece: number
            for piece, number in model["vocab"].items()
        }
        contents = {
            **self.file,
            "added_tokens": [],
            "post_processor": None,
            "truncation": None,
            "padding": None,
            "model": {**model, "vocab": vocab, "unk_token": None},
        }
        self._tokenizer = Tokenizer.from_str(json.dumps(contents))
        number_of = {piece: number for number, piece in enumerate(self._all_pieces)}
        pairs = [pair.split(" ") if isinstance(pair, str) else pair for pair in model["merges"]]
        self.merges = ranked_merges(pairs, number_of)

    def _ids(self, text: str) -> list[int]:
        utf8(text)
        file_ids = self._tokenizer.encode(text, add_special_tokens=False).ids
        return [self._number_of[number] for number in file_ids]

    def _text(self, ids: list[int]) -> str:
        numbers = [
            self._file_ids[number] for number in ids if self._all_pieces[number] not in self.special
        ]
        return str(self._tokenizer.decode(numbers))


def has_prefix(step: dict[str, Any]) -> bool:
    """Returns True if a pre-tokenizer writes a space before a text, or a decoder removes it."""
    if "prepend_scheme" in step:
        return bool(step["prepend_scheme"] != "never")
    return step.get("add_prefix_space") is not False


def _appended(processor: dict[str, Any] | None) -> list[str]:
    """Returns the token that a post-processor appends to a text, as a list of one or none."""
    for step in (processor or {}).get("processors", [processor or {}]):
        if "sep" in step:  # RobertaProcessing, BertProcessing
            return [step["sep"][0]]
        if "SpecialToken" in step.get("single", [{}])[-1]:  # TemplateProcessing
            return [step["single"][-1]["SpecialToken"]["id"]]
    return []
