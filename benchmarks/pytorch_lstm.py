"""LSTMs with attention in PyTorch: base classes, and a plain encoder-decoder for recurrent.py.

In the plain model, a bidirectional layer reads the source, and a layer predicts the target.
Attention multiplies the decoder's output with the encoder's (Luong et al. 2015, "general"). The
prediction is made from the output and the context. Shapes: B batch, S source length, T target
length, D width of embeddings, M width of the memory, V vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from t2t_repro.hparam import HParams


class Embedded(nn.Module):
    """A model with one embedding matrix for sources, targets and logits."""

    def __init__(self, hparams: HParams, vocab_size: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.rate = hparams.layer_prepostprocess_dropout
        self.table = nn.Parameter(torch.randn(vocab_size, width) * width**-0.5)
        self.factor = width**0.5 if hparams.multiply_embedding_mode == "sqrt_depth" else 1.0

    def dropout(self, x: Any) -> Any:
        return functional.dropout(x, self.rate, self.training)

    def embed(self, ids: Any) -> Any:
        return self.factor * functional.embedding(ids, self.table) * (ids != 0).unsqueeze(-1)

    def previous(self, targets: Any) -> Any:
        """Returns the embeddings [B, T, D] of the target tokens before each position; zeros for the
        first.
        """
        return functional.pad(self.embed(targets), (0, 0, 1, 0))[:, :-1]


class Attentive(Embedded):
    """A model whose bottom decoder layer attends to the memory, with its output at the position
    before as query.
    """

    def __init__(self, hparams: HParams, vocab_size: int, memory_width: int) -> None:
        width = hparams.hidden_size
        super().__init__(hparams, vocab_size, width)
        self.keys = nn.Linear(memory_width, width, bias=False)
        self.query = nn.Linear(width, width, bias=False)
        self.vector = nn.Parameter(torch.randn(width) * width**-0.5)
        self.bottom = nn.LSTMCell(width + memory_width, width)

    def attend(self, x: Any, memory: Any, is_padding: Any, weights: list | None) -> tuple[Any, Any]:
        """Returns outputs and contexts at all positions, for inputs x [B, T, D], memory [B, S, M],
        is_padding [B, S].

        Appends the weights of attention [B, 1, T, S] to the list `weights`, unless it is None.
        """
        keys = self.keys(memory)
        state = (torch.zeros_like(x[:, 0]),) * 2
        outputs = []
        contexts = []
        attention = []
        for embedding in x.unbind(1):
            logits = (self.query(state[0]).unsqueeze(1) + keys).tanh() @ self.vector
            attention.append(logits.masked_fill(is_padding, -1e9).softmax(-1))
            contexts.append(torch.bmm(attention[-1].unsqueeze(1), memory).squeeze(1))
            state = self.bottom(torch.cat([embedding, contexts[-1]], dim=1), state)
            outputs.append(state[0])
        if weights is not None:
            weights.append(torch.stack(attention, dim=1).unsqueeze(1))
        return torch.stack(outputs, dim=1), torch.stack(contexts, dim=1)


class Model(Embedded):
    """The plain model, with embeddings of width 128 and 256 cells in each stack."""

    def __init__(self, hparams: HParams, vocab_size: int) -> None:
        width = 128
        cells = 256
        super().__init__(hparams, vocab_size, width)
        self.encoder = nn.LSTM(width, cells // 2, batch_first=True, bidirectional=True)
        self.decoder = nn.LSTM(width, cells, batch_first=True)
        self.query = nn.Linear(cells, cells, bias=False)
        self.output = nn.Linear(2 * cells, width)
        self.bias = nn.Parameter(torch.zeros(vocab_size))

    def forward(self, sources: Any, targets: Any, weights: list | None = None) -> Any:
        """Returns the logits [B, T, V] of sources [B, S] and targets [B, T]."""
        memory = self.encoder(self.dropout(self.embed(sources)))[0]
        x = self.decoder(self.dropout(self.previous(targets)))[0]
        logits = (self.query(x) @ memory.transpose(1, 2)).masked_fill(
            (sources == 0).unsqueeze(1), -1e9
        )
        attention = logits.softmax(-1)
        if weights is not None:
            weights.append(attention.unsqueeze(1))
        x = self.output(torch.cat([x, attention @ memory], dim=2)).tanh()
        return self.dropout(x) @ self.table.T + self.bias
