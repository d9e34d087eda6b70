"""A model's number of parameters, and the operations and memory of a training step, without making the model.

A matrix product of shapes [m, k] and [k, n] counts as m * k * n multiplications and the same number of additions.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from t2t_repro.hparam import HParams
from t2t_repro.models.size_formulas import FLOAT32, Formulas, Shape

BUILT_IN = ("transformer", "transformer_moe", "convs2s", "gnmt", "bytenet", "deep_att", "moe")
"""Names of the models with formulas."""
BACKWARD = 2
"""Number of matrix products in the backward pass for each product in the forward pass: one gradient per factor."""
EMBEDDING_USES = 3
"""Number of uses of embedding matrices in a training step: for sources, for targets and for logits."""


def described_model(hparams: HParams) -> str:
    """Returns the name of the built-in model whose formulas are used; for custom models, it is transformer."""
    return hparams.model if hparams.model in BUILT_IN else "transformer"


def formulas(hparams: HParams) -> Formulas:
    """Returns the formulas for the built-in model `hparams.model`. For custom models, returns the Transformer's."""
    package = "models" if described_model(hparams) == "transformer" else "rivals"
    return cast(Formulas, importlib.import_module(f"t2t_repro.{package}.{described_model(hparams)}_size"))


def parameters(hparams: HParams, vocab_size: int, source_vocab_size: int = 0) -> int:
    """Returns the number of trainable parameters; see `Formulas.parameters`."""
    return formulas(hparams).parameters(hparams, vocab_size, source_vocab_size)


def step_flops(hparams: HParams, vocab_size: int, source_length: int, target_length: int) -> int:
    """Returns the number of operations in all matrix products of a training step, forward and backward.

    The formulas omit other operations and padding.

    Args:
        vocab_size: number of entries in the vocabulary that source and target share.
        source_length: number of tokens of each source.
        target_length: number of tokens of each target. The number of sentences is hparams.batch_size / target_length.
    """
    sentence = formulas(hparams).multiplications(hparams, vocab_size, source_length, target_length)
    return round(2 * sentence * (1 + BACKWARD) * hparams.batch_size / target_length)


@dataclass(frozen=True)
class StepMemory:
    """Peak memory of a training step on one device, in bytes."""

    weights: int
    moments: int
    """Adam's first and second moments."""
    gradients: int
    """Gradients of all weights and of each use of an embedding matrix. With gradient accumulation, also the sums of the
    weights' gradients."""
    activations: int
    """Tensors that the forward pass keeps for the backward pass."""

    @property
    def total(self) -> int:
        """The sum of the fields, without the memory of the program itself and of short-lived tensors."""
        return self.weights + self.moments + self.gradients + self.activations


def step_memory(
    hparams: HParams,
    parameters: int,
    vocab_size: int,
    shapes: Sequence[Shape],
    precision: str = "float32",
    accumulates: bool = False,
) -> StepMemory:
    """Returns an estimate of a training step's peak memory.

    In measured steps on a CPU, gradients and activations needed 0.65 to 1.3 times the estimate. The convolutions of
    ByteNet need another 30 MB, whatever the size of the step.

    Args:
        parameters: number of trainable parameters.
        vocab_size: V, the number of entries in the vocabulary of the targets.
        shapes: shapes of the micro-batches that a device computes at the same time.
        precision: "float32" or "tf32", or a precision with 16 bits in matrix products.
        accumulates: true if the device computes further micro-batches of the step afterwards and sums all gradients.
    """
    weights = FLOAT32 * parameters
    embeddings = FLOAT32 * EMBEDDING_USES * len(shapes) * vocab_size * _embedding_width(hparams)
    return StepMemory(
        weights=weights,
        moments=2 * weights,
        gradients=weights * (2 if accumulates else 1) + embeddings,
        activations=sum(activations(hparams, vocab_size, shape, precision) for shape in shapes),
    )


def _embedding_width(hparams: HParams) -> int:
    """Returns the width of the embedding matrices."""
    if hparams.model == "bytenet":
        return 2 * hparams.hidden_size  # the width of ByteNet's residual path
    return getattr(hparams, "embedding_size", 0) or hparams.hidden_size


def activations(hparams: HParams, vocab_size: int, shape: Shape, precision: str = "float32") -> int:
    """Returns the number of bytes that a micro-batch's forward pass keeps for the backward pass; see `step_memory`."""
    return formulas(hparams).activations(hparams, vocab_size, shape, precision)
