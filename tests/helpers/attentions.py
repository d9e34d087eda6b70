"""Attention with random weights."""

import numpy as np

from t2t_repro.visualization.attention import Attention


def random_attention(
    kind: str, queries: str, keys: str, layers: tuple[int, ...], heads: tuple[int, ...]
) -> Attention:
    """Returns attention of layers and heads with these numbers. Tokens are between spaces."""
    shape = (len(layers), len(heads), len(queries.split()), len(keys.split()))
    draws = np.random.default_rng(1).dirichlet(np.full(shape[3], 0.4), size=shape[:3])
    weights = draws.astype(np.float32)
    return Attention(kind, tuple(queries.split()), tuple(keys.split()), weights, layers, heads)
