"""A small `tokenizer.json` of Hugging Face's library tokenizers."""

from __future__ import annotations

import json
from typing import Any

METASPACE = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
_REPLACE = [{"type": "Replace", "pattern": {"String": old}, "content": new} for old, new in (" \u2581", "\u2581 ")]
_STRIP = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
LLAMA = {
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "\u2581"}, _REPLACE[0]]},
    "pre_tokenizer": None,
    "decoder": {"type": "Sequence", "decoders": [_REPLACE[1], {"type": "ByteFallback"}, {"type": "Fuse"}, _STRIP]},
}
"""How Llama's tokenizer differs from that of `tokenizer_json`, apart from its pieces."""
SPECIAL = ("<unk>", "<s>", "</s>")
BYTES = tuple(f"<0x{byte:02X}>" for byte in range(256))
PIECES = ("\u2581", *"thedogqä中😀.", "th", "he", "the", "do", "dog", "\u2581the", "\u2581dog", "qq", "qqq")
MERGES = ("t h", "h e", "th e", "t he", "d o", "do g", "\u2581 the", "\u2581 dog", "qq q", "q q", "q qq")
"""Pairs of pieces. "the" and "qqq" have two pairs each, and that of "qqq" comes before that of its part "qq"."""


def tokenizer_json(model: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """Returns the file of a tokenizer, with `changes` in its model and in its other fields."""
    pieces = (*SPECIAL, *BYTES, *PIECES)
    bpe = {
        "type": "BPE",
        "dropout": None,
        "unk_token": "<unk>",
        "continuing_subword_prefix": None,
        "end_of_word_suffix": None,
        "fuse_unk": True,
        "byte_fallback": True,
        "vocab": {piece: number for number, piece in enumerate(pieces)},
        "merges": MERGES,
    }
    file = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [added_token(number, piece) for number, piece in enumerate(SPECIAL)],
        "normalizer": None,
        "pre_tokenizer": METASPACE,
        "post_processor": None,
        "decoder": METASPACE,
        "model": {**bpe, **(model or {})},
    }
    return json.dumps({**file, **changes}).encode()


def added_token(number: int, name: str, **changes: Any) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    return {"id": number, "content": name, **flags, **changes}
