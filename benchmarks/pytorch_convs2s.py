"""ConvS2S in PyTorch, written apart from ours, for pytorch_families.py.

It needs `pip install ".[benchmarks]"`. Source, target and softmax share one embedding matrix, and
all layers have the same shape, as in convs2s_tiny. Shapes: B batch, S source length, T target
length, F embedding width, D width of a layer, V vocabulary.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils.parametrizations import weight_norm

from t2t_repro.rivals.convs2s import ConvS2SHParams


class Block(nn.Module):
    """A convolution with a gated linear unit; in the decoder, attention follows."""

    def __init__(self, hparams: ConvS2SHParams, is_decoder: bool) -> None:
        super().__init__()
        width = hparams.hidden_size
        kernel = hparams.kernel_height
        self.rate = hparams.layer_prepostprocess_dropout
        self.is_decoder = is_decoder
        self.padding = (kernel - 1, 0) if is_decoder else ((kernel - 1) // 2, kernel // 2)
        self.convolution = weight_norm(nn.Conv1d(width, 2 * width, kernel))
        if is_decoder:
            self.query, self.output = (weight_norm(nn.Linear(width, width)) for _ in range(2))

    def forward(self, x: Any, mask: Any, g: Any = None, memory: Any = None) -> Any:
        """Returns the output [B, T, D]. `mask` is that of the layer's input, or in the decoder of
        the source.
        """
        y = functional.dropout(x, self.rate, self.training)
        y = y if self.is_decoder else y * mask
        y = functional.glu(
            self.convolution(functional.pad(y.transpose(1, 2), self.padding)), 1
        ).transpose(1, 2)
        if self.is_decoder:
            keys, values = memory
            query = (self.query(y) + g) * math.sqrt(0.5)
            logits = (query @ keys.transpose(1, 2)).masked_fill(mask == 0, -1e9)
            y = (y + self.output(logits.softmax(2) @ values)) * math.sqrt(0.5)
        return (x + y) * math.sqrt(0.5)


class ScaledGradient(torch.autograd.Function):
    """The identity, whose gradient is multiplied by a number."""

    @staticmethod
    def forward(context: Any, x: Any, scale: float) -> Any:
        context.scale = scale
        return x.view_as(x)

    @staticmethod
    def backward(context: Any, gradient: Any) -> Any:
        return gradient * context.scale, None


class Model(nn.Module):
    """ConvS2S."""

    def __init__(self, hparams: ConvS2SHParams, vocab_size: int) -> None:
        super().__init__()
        width = hparams.hidden_size
        self.rate = hparams.layer_prepostprocess_dropout
        self.table = nn.Parameter(torch.randn(vocab_size, width) * 0.1)
        self.positions = nn.ParameterList(
            torch.randn(hparams.max_length, width) * 0.1 for _ in range(2)
        )
        self.encoder = nn.ModuleList(Block(hparams, False) for _ in range(hparams.encoder_layers))
        self.decoder = nn.ModuleList(Block(hparams, True) for _ in range(hparams.decoder_layers))
        self.linears = nn.ModuleList(weight_norm(nn.Linear(width, width)) for _ in range(4))
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def dropped(self, x: Any) -> Any:
        return functional.dropout(x, self.rate, self.training)

    def embed(self, ids: Any) -> Any:
        return functional.embedding(ids, self.table) * (ids != 0).unsqueeze(2)

    def forward(self, sources: Any, targets: Any) -> Any:
        """Returns the logits [B, T, V] of target ids [B, T], given source ids [B, S]."""
        is_token = (sources != 0).unsqueeze(2).float()
        e = self.dropped(self.embed(sources) + self.positions[0][: sources.shape[1]])
        x = self.linears[0](e)
        for block in self.encoder:
            x = block(x, is_token)
        z = ScaledGradient.apply(self.linears[1](x), 1 / (2 * len(self.decoder)))
        memory = z, (z + e) * math.sqrt(0.5) * is_token.sum(1, keepdim=True).sqrt()
        g = (
            functional.pad(self.embed(targets), (0, 0, 1, 0))[:, :-1]
            + self.positions[1][: targets.shape[1]]
        )
        g = self.dropped(g)
        h = self.linears[2](g)
        for block in self.decoder:
            h = block(h, is_token.transpose(1, 2), g, memory)
        return functional.linear(self.dropped(self.linears[3](h)), self.table, self.bias)

    def copy(self, weights: dict[str, np.ndarray]) -> None:
        """Copies the weights of our model, given by the names of its variables."""

        def linear(layer: Any, name: str) -> None:
            original = layer.parametrizations.weight
            v = torch.from_numpy(weights[f"{name}/v"])
            kernel = original.original1.shape[2:]
            channels = original.original1.shape[1]
            v = v.reshape(*kernel, channels, -1)
            original.original1.data = (
                v.permute(2, 1, 0).contiguous() if kernel else v.T.contiguous()
            )
            original.original0.data = torch.from_numpy(weights[f"{name}/g"]).view_as(
                original.original0
            )
            layer.bias.data = torch.from_numpy(weights[f"{name}/b"])

        self.table.data = torch.from_numpy(weights["convs2s/embedding/table"])
        self.bias.data = torch.from_numpy(weights["convs2s/softmax_bias"])
        names = ("encoder/in", "encoder/out", "decoder/in", "decoder/out")
        for layer, name in zip(self.linears, names, strict=True):
            linear(layer, f"convs2s/{name}")
        for stack, blocks, positions in zip(
            ("encoder", "decoder"), (self.encoder, self.decoder), self.positions, strict=True
        ):
            positions.data = torch.from_numpy(weights[f"convs2s/{stack}/position/table"])
            for i, block in enumerate(blocks):
                linear(block.convolution, f"convs2s/{stack}/layer_{i}/convolution")
                if stack == "decoder":
                    linear(block.query, f"convs2s/{stack}/layer_{i}/attention/query")
                    linear(block.output, f"convs2s/{stack}/layer_{i}/attention/output")
