"""A mixture of experts in numpy (Shazeer et al. 2017), computed position by position."""

import numpy as np


def gates_of(logits: np.ndarray, k: int) -> np.ndarray:
    """Returns the gates of all experts [n] for logits [n]: 0 except for the k highest (equations 3
    and 5).
    """
    gates = np.zeros_like(logits)
    best = np.argsort(-logits)[:k]
    gates[best] = np.exp(logits[best]) / np.exp(logits[best]).sum()
    return gates


def experts_outputs(kernels1: np.ndarray, kernels2: np.ndarray, x: np.ndarray) -> np.ndarray:
    """Returns the outputs of all experts [n, D] for a vector x [D]."""
    return (np.maximum(0, x @ kernels1)[:, None] @ kernels2)[:, 0]


def gates_in_groups(group_logits: np.ndarray, logits: np.ndarray, k: int) -> np.ndarray:
    """Returns the gates of all experts [n] for logits of groups [a] and of the experts [n]
    (appendix B).
    """
    inner = [gates_of(part, k) for part in np.split(logits, len(group_logits))]
    return np.concatenate(
        [gate * part for gate, part in zip(gates_of(group_logits, k), inner, strict=True)]
    )


def mixture(
    gate: np.ndarray,
    kernels1: np.ndarray,
    kernels2: np.ndarray,
    k: int,
    x: np.ndarray,
    group_gate: np.ndarray | None = None,
) -> np.ndarray:
    """Returns the outputs of the mixture without noise, for x [N, D] (equation 1).

    `group_gate` is None if there are no groups.
    """

    def gates(row: np.ndarray) -> np.ndarray:
        return (
            gates_of(row @ gate, k)
            if group_gate is None
            else gates_in_groups(row @ group_gate, row @ gate, k)
        )

    return np.reshape([gates(row) @ experts_outputs(kernels1, kernels2, row) for row in x], x.shape)
