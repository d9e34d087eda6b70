"""GNMT in PyTorch, written apart from ours, for pytorch_families.py.

The backward layer reads the padding of shorter sentences too, unlike ours; packed sequences would
be slower. Shapes: B batch, S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from pytorch_lstm import Attentive
from t2t_repro.hparam import HParams


class Model(Attentive):
    """GNMT with one embedding matrix for sources, targets and logits."""

    def __init__(self, hparams: HParams, vocab_size: int) -> None:
        width = hparams.hidden_size
        super().__init__(hparams, vocab_size, width)
        self.output_factor: float = hparams.output_factor  # type: ignore[attr-defined]
        self.bidirectional = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        widths = [2 * width if i == 1 else width for i in range(1, hparams.encoder_layers)]
        self.encoder = nn.ModuleList(
            nn.LSTM(width_in, width, batch_first=True) for width_in in widths
        )
        layers = range(1, hparams.decoder_layers)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in layers)

    def forward(self, sources: Any, targets: Any, weights: list | None = None) -> Any:
        """Returns the logits [B, T, V] of sources [B, S] and targets [B, T]."""
        memory = self.bidirectional(self.dropout(self.embed(sources)))[0]
        for i, layer in enumerate(self.encoder):
            y = layer(self.dropout(memory))[0]
            memory = y + memory if i else y
        x, context = self.attend(
            self.dropout(self.previous(targets)), memory, sources == 0, weights
        )
        for i, layer in enumerate(self.decoder):
            y = layer(torch.cat([self.dropout(x), context], dim=2))[0]
            x = y + x if i else y
        return self.output_factor * self.dropout(x) @ self.table.T

    def copy(self, weights: dict[str, np.ndarray]) -> None:
        """Copies the weights of our model, given by their paths."""

        def matrix(*paths: str) -> Any:
            return torch.from_numpy(
                np.concatenate([weights[f"gnmt/{path}"] for path in paths]).T.copy()
            )

        def gates(x: Any) -> Any:
            i, f, o, g = x.chunk(4)
            return torch.cat([i, f, g, o])  # PyTorch's order

        def copy_lstm(parameters: list[Any], path: str, *inputs: str) -> None:
            values = [
                matrix(*(f"{path}/{name}" for name in inputs)),
                matrix(f"{path}/recurrent_kernel"),
            ]
            values += [matrix(f"{path}/bias"), torch.zeros_like(parameters[3])]
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(gates(value))

        with torch.no_grad():
            self.table.copy_(matrix("embedding/table").T)
            forward_and_backward = list(self.bidirectional.parameters())
            copy_lstm(forward_and_backward[:4], "encoder/layer_0_forward", "input_kernel")
            copy_lstm(forward_and_backward[4:], "encoder/layer_0_backward", "input_kernel")
            copy_lstm(
                list(self.bottom.parameters()), "decoder/layer_0", "input_kernel", "context_kernel"
            )
            for stack, layers in (("encoder", self.encoder), ("decoder", self.decoder)):
                for i, layer in enumerate(layers, start=1):
                    copy_lstm(list(layer.parameters()), f"{stack}/layer_{i}", "input_kernel")
            self.query.weight.copy_(matrix("decoder/layer_0/attention/query_kernel"))
            self.keys.weight.copy_(matrix("decoder/layer_0/attention/key_kernel"))
            self.vector.copy_(matrix("decoder/layer_0/attention/vector"))
