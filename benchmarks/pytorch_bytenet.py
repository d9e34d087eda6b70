"""ByteNet in PyTorch, written apart from ours, for table2_small_pytorch.py.

Shapes: B batch, S source length, U unfolded length, T target length, d inner width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from pytorch_lstm import Embedded
from t2t_repro.rivals.bytenet import DILATIONS, ByteNetHParams, unfolded_length


class Block(nn.Module):
    """A residual block with ReLUs, on a residual path of width 2 d."""

    def __init__(self, hparams: ByteNetHParams, dilation: int, is_masked: bool) -> None:
        super().__init__()
        width = hparams.hidden_size
        self.rate = hparams.layer_prepostprocess_dropout
        self.kernel = hparams.kernel_height
        self.dilation = dilation
        self.norms = nn.ModuleList(
            nn.LayerNorm(n, hparams.norm_epsilon) for n in (2 * width, width, width)
        )
        self.reduce = nn.Linear(2 * width, width)
        self.expand = nn.Linear(width, 2 * width)
        # Of joined positions; faster than nn.Conv1d.
        self.convolution = nn.Linear(self.kernel * width, width)
        before = (self.kernel - 1) // (1 if is_masked else 2) * dilation
        self.padding = before, (self.kernel - 1) * dilation - before

    def forward(self, x: Any, mask: Any = 1.0) -> Any:
        """Returns the output [B, T, 2 d] for x [B, T, 2 d]. The convolution does not read where
        `mask` is 0.
        """
        y = self.norms[1](self.reduce(self.norms[0](x).relu())).relu() * mask
        y = functional.pad(y, (0, 0, *self.padding))
        y = self.convolution(
            torch.cat([y[:, i * self.dilation :][:, : x.shape[1]] for i in range(self.kernel)], 2)
        )
        return x + functional.dropout(
            self.expand(self.norms[2](y).relu()), self.rate, self.training
        )


class Model(Embedded):
    """ByteNet with one embedding matrix for sources, targets and logits, and otherwise PyTorch's
    initial weights.
    """

    def __init__(self, hparams: ByteNetHParams, vocab_size: int) -> None:
        width = 2 * hparams.hidden_size
        super().__init__(hparams, vocab_size, width)
        dilations = [DILATIONS[i % len(DILATIONS)] for i in range(hparams.num_hidden_layers)]
        self.encoder, self.decoder = (
            nn.ModuleList(Block(hparams, dilation, is_masked) for dilation in dilations)
            for is_masked in (False, True)
        )
        self.encoder_norm, self.decoder_norm = (
            nn.LayerNorm(width, hparams.norm_epsilon) for _ in range(2)
        )
        self.activation = functional.relu if hparams.last_activation == "relu" else nn.Identity()
        self.embedding_rate = hparams.embedding_dropout
        self.last = nn.Linear(width, width)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def embed(self, ids: Any) -> Any:
        return functional.dropout(super().embed(ids), self.embedding_rate, self.training)

    def forward(self, sources: Any, targets: Any, weights: list | None = None) -> Any:
        """Returns the logits [B, T, V] of sources [B, S] and targets [B, T]. There are no weights
        of attention.
        """
        unfolded = unfolded_length(sources.shape[1])
        lengths = unfolded_length((sources != 0).sum(1))
        mask = (torch.arange(unfolded) < lengths.unsqueeze(1)).unsqueeze(2)
        memory = functional.pad(self.embed(sources), (0, 0, 0, unfolded - sources.shape[1]))
        for block in self.encoder:
            memory = block(memory, mask)
        memory = self.encoder_norm(memory) * mask
        length = targets.shape[1]
        x = (
            self.previous(targets)
            + functional.pad(memory, (0, 0, 0, max(0, length - unfolded)))[:, :length]
        )
        for block in self.decoder:
            x = block(x)
        return (
            self.dropout(self.activation(self.last(self.decoder_norm(x).relu()))) @ self.table.T
            + self.bias
        )

    def weights(self) -> dict[str, np.ndarray]:
        """Returns the weights of our model, by their paths, with which it computes the same
        logits.
        """

        def linear(layer: Any) -> dict[str, Any]:
            return {"kernel": layer.weight.T, "bias": layer.bias}

        def norm(layer: Any) -> dict[str, Any]:
            return {"scale": layer.weight, "bias": layer.bias}

        layers = {"encoder/norm": norm(self.encoder_norm), "decoder/norm": norm(self.decoder_norm)}
        layers |= {
            "decoder/last": linear(self.last),
            "": {"softmax_bias": self.bias, "embedding/table": self.table},
        }
        for stack, blocks in (("encoder", self.encoder), ("decoder", self.decoder)):
            for i, block in enumerate(blocks):
                path = f"{stack}/block_{i}"
                layers |= {f"{path}/norm_{j}": norm(layer) for j, layer in enumerate(block.norms)}
                for name in ("reduce", "convolution", "expand"):
                    layers[f"{path}/{name}"] = linear(getattr(block, name))
        paths = {
            f"{path}/{name}".lstrip("/"): value
            for path, layer in layers.items()
            for name, value in layer.items()
        }
        return {f"bytenet/{path}": value.detach().numpy().copy() for path, value in paths.items()}
