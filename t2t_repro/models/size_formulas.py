"""The interface of the modules with a family's formulas for size, such as `models.transformer_size`."""

from __future__ import annotations

from typing import Protocol

from t2t_repro.hparam import HParams

FLOAT32 = 4
"""Bytes of a float32 number."""

Shape = tuple[int, int, int]
"""Shape of a micro-batch: number of examples, length of the sources and length of the targets, including padding."""


class Formulas(Protocol):
    """Formulas for the size of the models of one family, which are computed without making a model."""

    def parameters(self, hparams: HParams, vocab_size: int, source_vocab_size: int = 0) -> int:
        """Returns the number of trainable parameters.

        Args:
            vocab_size: number of entries in the vocabulary of the targets.
            source_vocab_size: number of entries in the vocabulary of the sources; 0 if source and target share one.
        """

    def multiplications(self, hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
        """Returns the number of multiplications in all matrix products of the forward pass, for one sentence pair.

        A product of matrices [m, k] and [k, n] has m * k * n multiplications. Other operations do not count.
        """

    def activations(self, hparams: HParams, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
        """Returns an estimate of the bytes that a micro-batch's forward pass keeps for the backward pass."""


def product_bytes(precision: str) -> int:
    """Returns the bytes of a number in the matrix products of a precision."""
    return FLOAT32 if precision in ("float32", "tf32") else 2


def embedding_rows(hparams: HParams, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of rows of all embedding matrices, counting the matrix before the softmax."""
    if hparams.shared_embedding_and_softmax_weights:
        return vocab_size
    return vocab_size * (2 if hparams.shared_embedding else 3) + (source_vocab_size or vocab_size) - vocab_size
