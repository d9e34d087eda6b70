"""SentencePiece models with the defaults of spm_train."""

import io
from typing import Any

import sentencepiece

NAMES = ("dog", "cat", "fox", "street", "hill", "red", "green", "blue", "over", "under")
TEXTS = [f"The {a} {b} runs, {c}." for a in NAMES for b in NAMES for c in NAMES]


def trained(**options: Any) -> bytes:
    """Returns a model of at most 300 pieces that SentencePiece's own trainer made."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        model_writer=model,
        hard_vocab_limit=False,
        minloglevel=2,
        **({"sentence_iterator": iter(TEXTS), "vocab_size": 300} | options),
    )
    return model.getvalue()
