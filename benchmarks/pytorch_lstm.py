"""A plain LSTM encoder-decoder with attention in PyTorch, for recurrent.py.

A bidirectional layer reads the source, and a layer predicts the target. Attention multiplies the decoder's output with
the encoder's (Luong et al. 2015, "general"). The prediction is made from the output and the context.
Shapes: B batch, S source length, T target length, D width of embeddings, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional


class Model(nn.Module):
    """The model, with one embedding matrix for sources, targets and logits.

    Args:
        vocab_size: V.
        width: D.
        cells: number of cells of the decoder, and of both directions of the encoder together.
        rate: dropout rate.
        factor: factor of the rows of the embedding matrix.
    """

    def __init__(self, vocab_size: int, width: int, cells: int, rate: float, factor: float) -> None:
        super().__init__()
        self.rate, self.factor = rate, factor
        self.table = nn.Parameter(torch.randn(vocab_size, width) * width**-0.5)
        self.encoder = nn.LSTM(width, cells // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(width, cells, batch_first=True)
        self.query, self.output = nn.Linear(cells, cells, bias=False), nn.Linear(2 * cells, width)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def dropout(self, x: Any) -> Any:
        return functional.dropout(x, self.rate, self.training)

    def embed(self, ids: Any) -> Any:
        return self.factor * functional.embedding(ids, self.table) * (ids != 0).unsqueeze(-1)

    def forward(self, sources: Any, targets: Any, weights: list | None = None) -> Any:
        """Returns the logits [B, T, V] of sources [B, S] and targets [B, T]."""
        memory = self.encoder(self.dropout(self.embed(sources)))[0]
        previous = functional.pad(self.embed(targets), (0, 0, 1, 0))[:, :-1]
        x = self.decoder(self.dropout(previous))[0]
        logits = (self.query(x) @ memory.transpose(1, 2)).masked_fill((sources == 0).unsqueeze(1), -1e9)
        attention = logits.softmax(-1)
        if weights is not None:
            weights.append(attention.unsqueeze(1))
        x = self.output(torch.cat([x, attention @ memory], dim=2)).tanh()
        return self.dropout(x) @ self.table.T + self.bias
