"""Summarizes generated data: as lines for the terminal, and as datagen.json in the data directory for programs."""

import contextlib
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from t2t_repro.data.cleaning import Cleaning
from t2t_repro.data.records import Records
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, counted
from t2t_repro.files.output_files import write_file
from t2t_repro.files.untrusted import parse_json, read_text

FILE_NAME = "datagen.json"


def summarize(
    shards: dict[str, Records], cleaning: dict[str, Cleaning], counts: Counter[str], vocabulary: Vocabulary
) -> dict[str, Any]:
    """Returns the summary of a problem's data, a dict that can be stored as JSON.

    Its "source_vocabulary_size" is 0 if sources and targets share one vocabulary.

    Args:
        shards: the records of each split.
        cleaning: counts of kept and dropped pairs, by split.
        counts: "text_bytes" and "byte_pieces" (see `encoding.Encoded`), summed over all shards.
    """
    splits = {}
    for split, split_cleaning in cleaning.items():
        lengths = shards[split].lengths
        tokens = lengths.sum(axis=1, dtype=np.int64)
        means = tokens / lengths.shape[1]
        splits[split] = {
            "pairs_read": split_cleaning.pairs_read,
            "pairs_kept": split_cleaning.pairs_kept,
            "pairs_dropped": dict(split_cleaning.dropped),
            "tokens": {"inputs": int(tokens[0]), "targets": int(tokens[1])},
            "mean_length": {"inputs": round(float(means[0]), 2), "targets": round(float(means[1]), 2)},
        }
    has_bytes = vocabulary.is_byte.any() or vocabulary.sources.is_byte.any()
    return {
        "vocabulary_size": vocabulary.size,
        "source_vocabulary_size": vocabulary.separate_source_size,
        "byte_share": round(counts["byte_pieces"] / counts["text_bytes"], 6) if has_bytes else None,
        "splits": splits,
    }


def save(folder: Path, problem: str, summary: dict[str, Any], data_dir: Path) -> None:
    """Writes the summary to datagen.json in `folder`, together with the summaries of other problems in `data_dir`."""
    summaries: dict[str, Any] = {}
    # A file that is missing, damaged or no JSON object is replaced.
    with contextlib.suppress(UserError, FileNotFoundError, TypeError, ValueError):
        summaries = dict(parse_json(read_text(data_dir / FILE_NAME), ""))
    contents = json.dumps({**summaries, problem: summary}, indent=2, ensure_ascii=False)
    write_file(folder / FILE_NAME, f"{contents}\n")


def lines(summary: dict[str, Any]) -> list[str]:
    """Returns the summary as lines for the terminal."""
    text = []
    for split, figures in summary["splits"].items():
        dropped = "".join(f", {count:,} dropped ({reason})" for reason, count in figures["pairs_dropped"].items())
        tokens, means = figures["tokens"], figures["mean_length"]
        text.append(
            f"{split}: {figures['pairs_kept']:,} of {counted(figures['pairs_read'], 'pair')}{dropped}; "
            f"tokens {tokens['inputs']:,} -> {tokens['targets']:,}, "
            f"mean length {means['inputs']} -> {means['targets']}"
        )
    share = summary["byte_share"]
    outside = "" if share is None else f"; {share:.2%} of the text's bytes outside of it"
    sizes = f"vocabulary: {summary['vocabulary_size']:,}"
    if summary["source_vocabulary_size"]:
        sizes = f"vocabularies: {summary['source_vocabulary_size']:,} -> {summary['vocabulary_size']:,}"
    text.append(f"{sizes} subwords{outside}")
    return text
