"""Random pairs of sentences, as records, for benchmarks that need no text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from t2t_repro.data.records import Records, chunk, find_shards, shard_path, write_chunks

COPIES = 20
"""Number of times that the records contain each pair, so that they are written quickly."""


def random_lengths(count: int) -> np.ndarray:
    """Returns lengths of random pairs in tokens, int32 [2, count], distributed like those of WMT:
    mean 28.
    """
    draw = np.random.default_rng(1)
    source = draw.lognormal(3.2, 0.55, count)
    return np.clip([source, source * draw.normal(1.0, 0.15, count)], 2, 250).astype(np.int32)


def random_sentence(number: int, length: int, vocab_size: int) -> list[int]:
    """Returns random ids, which end with the end token. Another `number` gives other ids."""
    return [
        *np.random.default_rng([number, length]).integers(3, vocab_size, length - 1).tolist(),
        1,
    ]


def random_records(folder: str, count: int, vocab_size: int) -> Records:
    """Returns `count` random pairs. Writes them to a shard in `folder`, unless they are there."""
    name = f"random_{count}_{vocab_size}"
    path = shard_path(folder, name, "train", 0, 1)
    if not path.exists():
        Path(folder).mkdir(parents=True, exist_ok=True)
        rows = random_lengths(count // COPIES).T.tolist()
        contents, index = chunk(
            (
                random_sentence(number, source, vocab_size),
                random_sentence(number, target, vocab_size),
            )
            for number, (source, target) in enumerate(rows)
        )
        write_chunks(path, ((contents, index.copy()) for _ in range(COPIES)))
    return Records(find_shards(folder, name, "train"))
