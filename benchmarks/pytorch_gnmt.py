"""GNMT in PyTorch, written apart from ours, for pytorch_families.py.

The backward layer reads the padding of shorter sentences too, unlike ours; packed sequences would be slower.
Shapes: B batch, S source length, T target length, D width, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from t2t_repro.hparam import HParams


class Model(nn.Module):
    """GNMT with one embedding matrix for sources, targets and logits."""

    def __init__(self, hparams: HParams, vocab_size: int) -> None:
        super().__init__()
        width, self.rate = hparams.hidden_size, hparams.layer_prepostprocess_dropout
        self.table = nn.Parameter(torch.randn(vocab_size, width) * width**-0.5)
        self.factor = width**0.5 if hparams.multiply_embedding_mode == "sqrt_depth" else 1.0
        self.bidirectional = nn.LSTM(width, width, batch_first=True, bidirectional=True)
        widths = [2 * width if i == 1 else width for i in range(1, hparams.encoder_layers)]
        self.encoder = nn.ModuleList(nn.LSTM(width_in, width, batch_first=True) for width_in in widths)
        self.keys, self.query = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        self.vector = nn.Parameter(torch.randn(width) * width**-0.5)
        self.bottom = nn.LSTMCell(2 * width, width)
        layers = range(1, hparams.decoder_layers)
        self.decoder = nn.ModuleList(nn.LSTM(2 * width, width, batch_first=True) for _ in layers)

    def dropout(self, x: Any) -> Any:
        return functional.dropout(x, self.rate, self.training)

    def embed(self, ids: Any) -> Any:
        return self.factor * functional.embedding(ids, self.table) * (ids != 0).unsqueeze(-1)

    def forward(self, sources: Any, targets: Any, weights: list | None = None) -> Any:
        """Returns the logits [B, T, V] of sources [B, S] and targets [B, T]."""
        x = self.bidirectional(self.dropout(self.embed(sources)))[0]
        for i, layer in enumerate(self.encoder):
            y = layer(self.dropout(x))[0]
            x = y + x if i else y
        memory, keys, is_padding = x, self.keys(x), sources == 0
        previous = self.dropout(functional.pad(self.embed(targets), (0, 0, 1, 0))[:, :-1])
        state = (torch.zeros_like(memory[:, 0]),) * 2
        outputs, contexts, attention = [], [], []
        for embedding in previous.unbind(1):
            logits = (self.query(state[0]).unsqueeze(1) + keys).tanh() @ self.vector
            attention.append(logits.masked_fill(is_padding, -1e9).softmax(-1))
            contexts.append(torch.bmm(attention[-1].unsqueeze(1), memory).squeeze(1))
            state = self.bottom(torch.cat([embedding, contexts[-1]], dim=1), state)
            outputs.append(state[0])
        if weights is not None:
            weights.append(torch.stack(attention, dim=1).unsqueeze(1))
        x, context = torch.stack(outputs, dim=1), torch.stack(contexts, dim=1)
        for i, layer in enumerate(self.decoder):
            y = layer(torch.cat([self.dropout(x), context], dim=2))[0]
            x = y + x if i else y
        return self.dropout(x) @ self.table.T

    def copy(self, weights: dict[str, np.ndarray]) -> None:
        """Copies the weights of our model, given by their paths."""

        def matrix(*paths: str) -> Any:
            return torch.from_numpy(np.concatenate([weights[f"gnmt/{path}"] for path in paths]).T.copy())

        def gates(x: Any) -> Any:
            i, f, o, g = x.chunk(4)
            return torch.cat([i, f, g, o])  # PyTorch's order

        def copy_lstm(parameters: list[Any], path: str, *inputs: str) -> None:
            values = [matrix(*(f"{path}/{name}" for name in inputs)), matrix(f"{path}/recurrent_kernel")]
            values += [matrix(f"{path}/bias"), torch.zeros_like(parameters[3])]
            for parameter, value in zip(parameters, values, strict=True):
                parameter.copy_(gates(value))

        with torch.no_grad():
            self.table.copy_(matrix("embedding/table").T)
            forward_and_backward = list(self.bidirectional.parameters())
            copy_lstm(forward_and_backward[:4], "encoder/layer_0_forward", "input_kernel")
            copy_lstm(forward_and_backward[4:], "encoder/layer_0_backward", "input_kernel")
            copy_lstm(list(self.bottom.parameters()), "decoder/layer_0", "input_kernel", "context_kernel")
            for stack, layers in (("encoder", self.encoder), ("decoder", self.decoder)):
                for i, layer in enumerate(layers, start=1):
                    copy_lstm(list(layer.parameters()), f"{stack}/layer_{i}", "input_kernel")
            self.query.weight.copy_(matrix("decoder/layer_0/attention/query_kernel"))
            self.keys.weight.copy_(matrix("decoder/layer_0/attention/key_kernel"))
            self.vector.copy_(matrix("decoder/layer_0/attention/vector"))
