"""A small `tokenizer.json` of Hugging Face's library tokenizers."""

import json
from pathlib import Path
from typing import Any

_FILES = Path(__file__).parents[1] / "golden" / "data" / "vocabularies"
BASE = json.loads((_FILES / "metaspace.json").read_text("utf-8"))
METASPACE = BASE["pre_tokenizer"]
VOCAB = BASE["model"]["vocab"]
SPECIAL = ("<unk>", "<s>", "</s>")
LLAMA = json.loads((_FILES / "llama.json").read_text("utf-8"))
LLAMA = {name: LLAMA[name] for name in ("normalizer", "pre_tokenizer", "decoder")}
"""How Llama's tokenizer differs from that of `tokenizer_json`, apart from its merges."""


def tokenizer_json(model: dict[str, Any] | None = None, **changes: Any) -> bytes:
    """Returns the file of a tokenizer, with `changes` in its model and in its other fields."""
    return json.dumps({**BASE, "model": {**BASE["model"], **(model or {})}, **changes}).encode()


def added_token(name: str, number: int = 500, special: bool = True) -> dict[str, Any]:
    return {
        **BASE["added_tokens"][0],
        "id": VOCAB.get(name, number),
        "content": name,
        "special": special,
    }
