"""Deep-Att in PyTorch, written apart from ours, for table2_small_pytorch.py.

Shapes: B batch, S source length, T target length, D width of embeddings and LSTMs, M width of the
memory, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from pytorch_lstm import Attentive
from t2t_repro.hparam import HParams


def sums(x: Any, lstm: Any, suffix: str = "_l0") -> Any:
    """Returns the sums f [..., 4 D] of an LSTM for its inputs x, in the order of PyTorch's gates:
    i, f, g, o.
    """
    weight, *biases = (
        getattr(lstm, f"{name}{suffix}") for name in ("weight_ih", "bias_ih", "bias_hh")
    )
    return functional.linear(x, weight, biases[0] + biases[1])


def fast_forward(f: Any, h: Any) -> Any:
    return torch.cat([f[..., : f.shape[-1] // 2], h], dim=-1)


def flip(x: Any, lengths: Any) -> Any:
    """Returns x [B, S, width] with the tokens of each sentence in reverse order. Padding remains at
    the end.
    """
    positions = torch.arange(x.shape[1])
    mirrored = lengths.unsqueeze(1) - 1 - positions
    order = torch.where(mirrored >= 0, mirrored, positions)
    return x.gather(1, order.unsqueeze(2).expand_as(x))


class Model(Attentive):
    """Deep-Att with one embedding matrix for sources, targets and logits, and otherwise PyTorch's
    initial weights.
    """

    def __init__(self, hparams: HParams, vocab_size: int) -> None:
        width = hparams.hidden_size
        memory_width = 5 * hparams.hidden_size // 2
        super().__init__(hparams, vocab_size, memory_width)
        self.output_factor: float = hparams.output_factor  # type: ignore[attr-defined]
        self.activation = torch.tanh if hparams.sums_activation == "tanh" else nn.Identity()  # type: ignore[attr-defined]
        widths = [width, *(3 * width,) * (hparams.encoder_layers - 1)]
        self.columns = nn.ModuleList(
            nn.ModuleList(nn.LSTM(width_in, width, batch_first=True) for width_in in widths)
            for _ in range(2)
        )
        self.projection = nn.Linear(10 * width, memory_width, bias=False)
        layers = range(1, hparams.decoder_layers)
        self.decoder = nn.ModuleList(nn.LSTM(3 * width, width, batch_first=True) for _ in layers)

    def encode(self, sources: Any) -> Any:
        """Returns the memory [B, S, M] of sources [B, S]."""
        lengths = (sources != 0).sum(1)
        tops = []
        for column, layers in enumerate(self.columns):
            x = self.embed(sources)
            for i, layer in enumerate(layers):
                f = sums(x, layer)
                is_reversed = (column + i) % 2
                h = flip(layer(flip(x, lengths))[0], lengths) if is_reversed else layer(x)[0]
                f = self.activation(f)
                h = self.dropout(h)
                x = fast_forward(f, h)
            tops.append((h, f))
        return self.projection(torch.cat([*(h for h, _ in tops), *(f for _, f in tops)], dim=2))

    def forward(self, sources: Any, targets: Any, weights: list | None = None) -> Any:
        """Returns the logits [B, T, V] of sources [B, S] and targets [B, T]."""
        x = self.previous(targets)
        h, contexts = self.attend(x, self.encode(sources), sources == 0, weights)
        f = sums(torch.cat([x, contexts], dim=2), self.bottom, "")
        h = self.dropout(h)
        for layer in self.decoder:
            x = fast_forward(self.activation(f), h)
            f = sums(x, layer)
            h = self.dropout(layer(x)[0])
        return self.output_factor * h @ self.table.T

    def weights(self) -> dict[str, np.ndarray]:
        """Returns the weights of our model, by their paths, with which it computes the same
        logits.
        """

        def gates(x: np.ndarray) -> np.ndarray:
            i, f, g, o = np.split(x, 4, axis=-1)
            return np.concatenate([i, f, o, g], axis=-1)

        def lstm(layer: Any) -> dict[str, np.ndarray]:
            weight, recurrent, *biases = (gates(p.detach().numpy().T) for p in layer.parameters())
            return {
                "input_kernel": weight,
                "recurrent_kernel": recurrent,
                "bias": biases[0] + biases[1],
            }

        bottom = lstm(self.bottom)
        bottom["input_kernel"], bottom["context_kernel"] = np.split(
            bottom["input_kernel"], [self.width]
        )
        layers = {"decoder/layer_0": bottom}
        layers |= {
            f"decoder/layer_{i}": lstm(layer) for i, layer in enumerate(self.decoder, start=1)
        }
        for column, encoder in enumerate(self.columns):
            layers |= {
                f"encoder/column_{column}/layer_{i}": lstm(layer) for i, layer in enumerate(encoder)
            }
        h, *f = np.split(
            self.projection.weight.detach().numpy(), [2 * self.width, 6 * self.width], axis=1
        )
        matrices = {
            "embedding/table": self.table.T,
            "decoder/layer_0/attention/query_kernel": self.query.weight,
            "decoder/layer_0/attention/key_kernel": self.keys.weight,
            "decoder/layer_0/attention/vector": self.vector,
        }
        weights = {path: matrix.detach().numpy().T.copy() for path, matrix in matrices.items()}
        weights["encoder/projection"] = np.concatenate([h, *map(gates, f)], axis=1).T
        weights |= {
            f"{path}/{name}": value
            for path, layer in layers.items()
            for name, value in layer.items()
        }
        return {f"deep_att/{path}": value for path, value in weights.items()}
