"""MarianMTModel of transformers in NumPy, to run a folder without transformers."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from t2t_repro.huggingface.weights import read_weights

ACTIVATIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "swish": lambda x: x / (1 + np.exp(-x)),
    "relu": lambda x: np.maximum(x, 0),
    "gelu": lambda x: x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2,
}


class NumpyMarian:
    """The model in a folder. All ids are transformers'."""

    def __init__(self, folder: Path) -> None:
        self.weights = dict(read_weights(folder))
        self.config = json.loads((folder / "config.json").read_text())

    def logits(self, sources: list[int], targets: list[int]) -> np.ndarray:
        """Returns the logits [T, V] of the targets of one sentence."""
        memory = self._stack("encoder", sources, None)
        x = self._stack("decoder", [self.config["decoder_start_token_id"], *targets[:-1]], memory)
        tables = ("lm_head.weight", "model.shared.weight", "model.decoder.embed_tokens.weight")
        table = next(self.weights[name] for name in tables if name in self.weights)
        return np.asarray(x @ table.T + self.weights["final_logits_bias"])

    def _stack(self, side: str, ids: list[int], memory: Any) -> np.ndarray:
        name = (
            "model.shared.weight"
            if self.config["tie_word_embeddings"]
            else f"model.{side}.embed_tokens.weight"
        )
        table = self.weights[name if name in self.weights else f"model.{side}.embed_tokens.weight"]
        width = self.config["d_model"]
        x = table[ids] * (width**0.5 if self.config["scale_embedding"] else 1)
        angles = np.arange(len(ids))[:, None] * 10000.0 ** (-2 * np.arange(width // 2) / width)
        usual = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
        x = x + self.weights.get(f"model.{side}.embed_positions.weight", usual)[: len(ids)]
        for number in range(self.config[f"{side}_layers"]):
            name = f"model.{side}.layers.{number}"
            mask = np.triu(np.full((len(ids), len(ids)), -1e9), 1) * (side == "decoder")
            x = self._norm(
                x + self._attention(f"{name}.self_attn", x, x, mask), f"{name}.self_attn_layer_norm"
            )
            if memory is not None:
                cross = self._attention(f"{name}.encoder_attn", x, memory, 0)
                x = self._norm(x + cross, f"{name}.encoder_attn_layer_norm")
            inner = ACTIVATIONS[self.config["activation_function"]](self._linear(x, f"{name}.fc1"))
            x = self._norm(x + self._linear(inner, f"{name}.fc2"), f"{name}.final_layer_norm")
        return x

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return np.asarray(x @ self.weights[f"{name}.weight"].T + self.weights[f"{name}.bias"])

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        """Layer norm with 1e-5, PyTorch's default."""
        x = (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)
        return np.asarray(x * self.weights[f"{name}.weight"] + self.weights[f"{name}.bias"])

    def _attention(self, name: str, x: np.ndarray, y: np.ndarray, mask: Any) -> np.ndarray:
        heads = self.config["encoder_attention_heads"]
        q, k, v = (
            self._linear(z, f"{name}.{part}_proj").reshape(len(z), heads, -1).transpose(1, 0, 2)
            for part, z in (("q", x), ("k", y), ("v", y))
        )
        scores = q @ k.transpose(0, 2, 1) * q.shape[-1] ** -0.5 + mask
        shares = np.exp(scores - scores.max(-1, keepdims=True))
        shares /= shares.sum(-1, keepdims=True)
        return self._linear((shares @ v).transpose(1, 0, 2).reshape(len(x), -1), f"{name}.out_proj")
