"""LSTMs and additive attention in numpy, with the weights of our layers, to compare recurrent
models with.
"""

from typing import Any

import numpy as np


class NumpyLayers:
    """Functions for one sentence without padding.

    Args:
        model: the model whose weights are used.
        prefix: beginning of the paths of all weights, with a slash.
    """

    def __init__(self, model: Any, prefix: str) -> None:
        self.weights = {
            variable.path.removeprefix(prefix): np.asarray(variable)
            for variable in model.trainable_variables
        }
        self.hparams = model.hparams

    def kernels(self, name: str, *parts: str) -> np.ndarray:
        """Returns the kernels of the LSTM `name` that exist, one above the other."""
        paths = [f"{name}/{part}_kernel" for part in parts]
        return np.concatenate([self.weights[path] for path in paths if path in self.weights])

    def sums(self, name: str, inputs: np.ndarray) -> np.ndarray:
        """Returns the part of the gates' sums [T, 4 C] of the LSTM `name` that comes from its
        inputs [T, I].
        """
        return inputs @ self.kernels(name, "input", "context") + self.weights[f"{name}/bias"]

    def step(
        self, name: str, sums: np.ndarray, y: np.ndarray, c: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Returns output [D] and cell [C] after a position with `sums` [4 C], for output y and cell
        c before it.
        """
        i, f, o, g = np.split(sums + y @ self.kernels(name, "recurrent"), 4)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        c = f * c + i * np.tanh(g)
        y = o * np.tanh(c)
        return (
            y @ self.weights[f"{name}/projection"] if f"{name}/projection" in self.weights else y
        ), c

    def start(self, name: str) -> tuple[np.ndarray, np.ndarray]:
        """Returns the output [D] and the cell [C] of the LSTM `name` before the first position."""
        width, sums = self.weights[f"{name}/recurrent_kernel"].shape
        return np.zeros(width), np.zeros(sums // 4)

    def lstm(self, name: str, inputs: np.ndarray, is_reversed: bool = False) -> np.ndarray:
        """Returns the outputs [T, D] of the LSTM `name` for inputs [T, I]."""
        y, c = self.start(name)
        outputs = []
        for sums in self.sums(name, inputs)[:: -1 if is_reversed else 1]:
            y, c = self.step(name, sums, y, c)
            outputs.append(y)
        return np.array(outputs)[:: -1 if is_reversed else 1]

    def attentive(
        self, name: str, inputs: np.ndarray, memory: np.ndarray
    ) -> tuple[np.ndarray, ...]:
        """Returns outputs [T, D], contexts [T, M] and attention weights [T, S] of the attentive
        LSTM `name`.
        """
        query_kernel, key_kernel, vector = (
            self.weights[f"{name}/attention/{part}"]
            for part in ("query_kernel", "key_kernel", "vector")
        )
        y, c = self.start(name)
        outputs = []
        contexts = []
        all_weights = []
        for x in inputs:
            query = y @ query_kernel
            keys = memory @ key_kernel
            is_product = self.hparams.attention_mechanism == "tanh_product"
            odds = np.exp(
                (np.tanh(query) * np.tanh(keys) if is_product else np.tanh(query + keys)) @ vector
            )
            all_weights.append(odds / odds.sum())
            contexts.append(all_weights[-1] @ memory)
            y, c = self.step(name, self.sums(name, np.concatenate([x, contexts[-1]])), y, c)
            outputs.append(y)
        return np.array(outputs), np.array(contexts), np.array(all_weights)
