"""What t2t-datagen says of the data it made: on the terminal, and for programs as datagen.json in the data_dir."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from t2t_repro.data import batching
from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.records import Records, find_shards
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.textfile import read_lines, whole_file

FILE_NAME = "datagen.json"

MAX_STEPS = 2000
"""Steps whose padding is counted at most; more say the same."""


def summarize(
    data_dir: str | Path, problem: str, chosen: dict[str, Cleaning], counts: Counter[str], words: Vocabulary
) -> dict[str, Any]:
    """Counts of a problem's data.

    Args:
        chosen: what was kept of each split.
        counts: see `encoding.Encoded`.
        words: the vocabulary.
    """
    splits = {}
    hparams = HParams()
    for split, choice in chosen.items():
        lengths = Records(find_shards(data_dir, problem, split)).lengths
        tokens = lengths.sum(axis=1, dtype=np.int64)
        means = tokens / lengths.shape[1]
        splits[split] = {
            "pairs_read": choice.read,
            "pairs_kept": choice.kept,
            "pairs_dropped": dict(choice.dropped),
            "tokens": {"inputs": int(tokens[0]), "targets": int(tokens[1])},
            "mean_length": {"inputs": round(float(means[0]), 2), "targets": round(float(means[1]), 2)},
        }
        if split == "train":
            epoch = batching.plan(lengths, hparams.batch_size, hparams.max_length, seed=1, epoch=0)
            splits[split]["as_transformer_base"] = {
                "batch_size": hparams.batch_size,
                "max_length": hparams.max_length,
                "longer_pairs": lengths.shape[1] - len(epoch.order),
                "steps_an_epoch": epoch.steps,
                "padding": round(padding(lengths, epoch), 4),
            }
    return {
        "vocabulary_size": words.size,
        "byte_share": round(counts["byte_pieces"] / counts["text_bytes"], 6),
        "splits": splits,
    }


def padding(lengths: np.ndarray, epoch: batching.Plan, max_tokens: int = 4096) -> float:
    """Share of an epoch's positions that are padding; of its first `MAX_STEPS` steps.

    Args:
        lengths: int [2, N], source and target tokens of each example.
        max_tokens: maximum number of positions in a micro-batch, as in --max_tokens_per_replica of t2t-trainer.
    """
    filled = positions = 0
    for step in range(min(epoch.steps, MAX_STEPS)):
        for examples in batching.micro_batches(lengths, epoch.blocks(step), max_tokens, 1):
            filled += int(lengths[:, examples].sum())
            positions += int(lengths[:, examples].max(axis=1, initial=0).sum()) * len(examples)  # may be empty
    return 1.0 - filled / positions if positions else 0.0


def save(data_dir: str | Path, problem: str, summary: dict[str, Any]) -> None:
    """Keeps the summary beside those of the folder's other problems."""
    path = Path(data_dir) / FILE_NAME
    kept = None
    with contextlib.suppress(UserError, json.JSONDecodeError):  # a damaged one is no reason to lose the data
        kept = json.loads("\n".join(read_lines(str(path))))
    others = kept if isinstance(kept, dict) else {}
    with whole_file(path, "w") as file:
        file.write(json.dumps({**others, problem: summary}, indent=2, ensure_ascii=False) + "\n")


def lines(summary: dict[str, Any]) -> list[str]:
    """The summary for people."""
    said = []
    for split, figures in summary["splits"].items():
        dropped = "".join(f", {count:,} dropped ({reason})" for reason, count in figures["pairs_dropped"].items())
        tokens, means = figures["tokens"], figures["mean_length"]
        said.append(
            f"{split}: {figures['pairs_kept']:,} of {figures['pairs_read']:,} pairs{dropped}; "
            f"tokens {tokens['inputs']:,} -> {tokens['targets']:,}, "
            f"mean length {means['inputs']} -> {means['targets']}"
        )
        if base := figures.get("as_transformer_base"):
            longer = f", {base['longer_pairs']:,} pairs over max_length {base['max_length']}"
            said.append(
                f"with transformer_base's batch_size of {base['batch_size']:,}: {base['steps_an_epoch']:,} steps "
                f"an epoch, {base['padding']:.1%} padding{longer if base['longer_pairs'] else ''}"
            )
    share = summary["byte_share"]
    said.append(f"vocabulary: {summary['vocabulary_size']:,} subwords; {share:.2%} of the text's bytes outside of it")
    return said
