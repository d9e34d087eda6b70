"""A Transformer in PyTorch, written apart from ours, with its training step: an independent check
for depth.py.

It needs `pip install ".[benchmarks]"`. The model is post-norm. It has the hparams of depth.py's
SETTINGS and ignores other hparams. Shapes: B batch, S source length, T target length, D width, N
decoder layers, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from t2t_repro.data.pipeline import Batch
from t2t_repro.hparam import HParams
from t2t_repro.training.schedule import Schedule


def linear(width_in: int, width_out: int, gain: float, bias: bool) -> Any:
    """Returns a linear layer with uniform weights of variance gain^2 * 2 / (width_in + width_out)
    and biases of 0.
    """
    layer = nn.Linear(width_in, width_out, bias=bias)
    nn.init.xavier_uniform_(layer.weight, gain)
    if bias:
        nn.init.zeros_(layer.bias)
    return layer


class Attention(nn.Module):
    """Multi-head attention with an output projection."""

    def __init__(self, hparams: HParams, fairseq: bool) -> None:
        super().__init__()
        width = hparams.hidden_size
        self.heads = hparams.num_heads
        self.rate = hparams.attention_dropout
        self.q, self.k, self.v = (
            linear(width, width, 0.5**0.5 if fairseq else 1.0, fairseq) for _ in range(3)
        )
        self.output = linear(width, width, 1.0, fairseq)

    def forward(self, x: Any, memory: Any, mask: Any, weights: list | None = None) -> Any:
        def split(y: Any) -> Any:
            return y.view(y.shape[0], y.shape[1], self.heads, -1).transpose(1, 2)

        q = split(self.q(x))
        k = split(self.k(memory))
        v = split(self.v(memory))
        logits = (q @ k.transpose(2, 3)).float() / math.sqrt(q.shape[-1])
        attention = logits.masked_fill(~mask, -1e9).softmax(-1)
        if weights is not None:
            weights.append(attention)
        heads = functional.dropout(attention, self.rate, self.training).to(v.dtype) @ v
        return self.output(heads.transpose(1, 2).reshape(x.shape))


class FeedForward(nn.Module):
    """The position-wise feed-forward network."""

    def __init__(self, hparams: HParams, fairseq: bool) -> None:
        super().__init__()
        width = hparams.hidden_size
        inner_width = hparams.filter_size
        self.rate = hparams.relu_dropout
        # fairseq leaves the feed-forward network to PyTorch's default initialization.
        make: Callable[..., Any] = nn.Linear if fairseq else lambda a, b: linear(a, b, 1.0, True)
        self.inner = make(width, inner_width)
        self.outer = make(inner_width, width)

    def forward(self, x: Any) -> Any:
        return self.outer(functional.dropout(self.inner(x).relu(), self.rate, self.training))


class Layer(nn.Module):
    """A layer of the encoder or of the decoder, post-norm."""

    def __init__(self, hparams: HParams, fairseq: bool, is_decoder: bool) -> None:
        super().__init__()
        self.rate = hparams.layer_prepostprocess_dropout
        self.self_attention = Attention(hparams, fairseq)
        self.cross_attention = Attention(hparams, fairseq) if is_decoder else None
        self.feed_forward = FeedForward(hparams, fairseq)
        self.norms = nn.ModuleList(
            nn.LayerNorm(hparams.hidden_size, eps=hparams.norm_epsilon) for _ in range(3)
        )

    def add(self, number: int, x: Any, y: Any) -> Any:
        return self.norms[number](x + functional.dropout(y, self.rate, self.training))

    def forward(
        self, x: Any, mask: Any, memory: Any = None, bias: Any = None, weights: list | None = None
    ) -> Any:
        x = self.add(0, x, self.self_attention(x, x, mask))
        if self.cross_attention is not None:
            x = self.add(1, x, self.cross_attention(x, memory, bias, weights))
        return self.add(2, x, self.feed_forward(x))


class Model(nn.Module):
    """The Transformer."""

    def __init__(self, hparams: HParams, vocab_size: int, fairseq: bool) -> None:
        super().__init__()
        self.width = hparams.hidden_size
        self.rate = hparams.layer_prepostprocess_dropout
        self.table = nn.Parameter(torch.randn(vocab_size, self.width) * self.width**-0.5)
        layers = range(hparams.num_hidden_layers)
        self.encoder = nn.ModuleList(Layer(hparams, fairseq, False) for _ in layers)
        self.decoder = nn.ModuleList(Layer(hparams, fairseq, True) for _ in layers)

    def embed(self, ids: Any) -> Any:
        return self.table[ids] * (ids != 0).unsqueeze(-1) * math.sqrt(self.width)

    def start(self, x: Any) -> Any:
        """Adds the sinusoids to embeddings x [B, T, D], and applies dropout."""
        rates = 1e4 ** (-torch.arange(self.width // 2) / (self.width // 2 - 1))
        angles = torch.arange(x.shape[1]).unsqueeze(1) * rates
        x = x + torch.cat([angles.sin(), angles.cos()], dim=1)
        return functional.dropout(x, self.rate, self.training)

    def forward(self, sources: Any, targets: Any, weights: list | None = None) -> Any:
        is_token = (sources != 0)[:, None, None]
        memory = self.start(self.embed(sources))
        for layer in self.encoder:
            memory = layer(memory, is_token)
        x = self.start(functional.pad(self.embed(targets), (0, 0, 1, 0))[:, :-1])
        is_earlier = torch.ones(targets.shape[1], targets.shape[1], dtype=torch.bool).tril()
        for layer in self.decoder:
            x = layer(x, is_earlier, memory, is_token, weights)
        return x @ self.table.T


def cross_entropy(logits: Any, targets: Any, label_smoothing: float) -> Any:
    """Returns the cross-entropy in nats, summed over the target tokens; the smoothing's entropy is
    not subtracted.
    """
    vocab_size = logits.shape[-1]
    # PyTorch gives the correct token a part of it, too.
    rate = label_smoothing * vocab_size / (vocab_size - 1)
    logits = logits.float().flatten(0, 1)
    return functional.cross_entropy(
        logits, targets.flatten(), ignore_index=0, reduction="sum", label_smoothing=rate
    )


class PyTorchRun:
    """The training of a PyTorch model, with the methods of `learning.Run`.

    Args:
        make_model: returns a model, called as model(sources, targets, weights) -> logits. It
            appends the weights of each layer's attention to the source [B, H, T, S] to the list
            `weights`, unless this is None.
        hparams: hparams of the run.
        seed: seed of the initial weights and of dropout.
        is_mixed: True for products, and states of LSTMs, in bfloat16.
    """

    def __init__(
        self, make_model: Callable[[], Any], hparams: HParams, seed: int = 1, is_mixed: bool = True
    ) -> None:
        torch.manual_seed(seed)
        torch.set_num_threads(1)
        self.model = make_model()
        self.hparams = hparams
        self.gradient_norm = 0.0
        self._schedule = Schedule(hparams)
        self._is_mixed = is_mixed
        betas = (hparams.optimizer_adam_beta1, hparams.optimizer_adam_beta2)
        self._adam = torch.optim.Adam(
            self.model.parameters(), betas=betas, eps=hparams.optimizer_adam_epsilon
        )

    def take_step(self, batch: Batch) -> None:
        """Takes a training step."""
        for group in self._adam.param_groups:
            group["lr"] = float(self._schedule(batch.step))
        self._adam.zero_grad()
        for micro_batch in batch.micro_batches:
            sources, targets = (torch.from_numpy(ids).long() for ids in micro_batch[:2])
            with torch.autocast("cpu", torch.bfloat16, self._is_mixed):
                logits = self.model(sources, targets)
            (
                cross_entropy(logits, targets, self.hparams.label_smoothing) / batch.target_tokens
            ).backward()
        norms = [parameter.grad.norm() for parameter in self.model.parameters()]
        self.gradient_norm = float(torch.stack(norms).norm())
        self._adam.step()

    def measure(self, sources: np.ndarray, targets: np.ndarray) -> tuple[float, float, np.ndarray]:
        """Returns two losses [] and an entropy [N], each summed over the target tokens; see
        `learning.Run.measure`.
        """
        inputs = torch.from_numpy(sources).long()
        outputs = torch.from_numpy(targets).long()
        lengths = (inputs != 0).sum(1, keepdim=True)
        weights = []  # type: ignore[var-annotated]
        self.model.eval()
        with torch.no_grad():
            loss = cross_entropy(self.model(inputs, outputs, weights), outputs, 0.0)
            other = cross_entropy(self.model(inputs.roll(1, 0), outputs), outputs, 0.0)
        self.model.train()
        entropies = [-torch.xlogy(layer, layer).sum(3).mean(1) / lengths.log() for layer in weights]
        sums = [(entropy * (outputs != 0)).sum().item() for entropy in entropies]
        return float(loss), float(other), np.array(sums)
