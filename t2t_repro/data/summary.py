"""Summarizes generated data: as lines for the terminal, and as datagen.json in the data directory
for programs.
"""

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from t2t_repro.console.tables import Column, Table, to_text
from t2t_repro.corpora.corpus import StoredCorpus
from t2t_repro.data import batching
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError, counted
from t2t_repro.files.output_files import write_file
from t2t_repro.files.untrusted import parse_json, read_text

FILE_NAME = "datagen.json"
MAX_NAME = 30
"""Maximum length of the name of a corpus in a table."""


def summarize(corpora: dict[str, list[StoredCorpus]], vocabulary: Vocabulary) -> dict[str, Any]:
    """Returns the summary of a problem's data, a dict that can be stored as JSON.

    Its "source_vocabulary_size" is 0 if sources and targets share one vocabulary. A split has
    "corpora" if it has several. `corpora` has the corpora of each split.
    """
    splits = {}
    for split, split_corpora in corpora.items():
        splits[split] = _figures(split_corpora)
        if len(split_corpora) > 1:
            splits[split]["corpora"] = _corpora_figures(split_corpora)
    all_corpora = list(itertools.chain.from_iterable(corpora.values()))
    byte_pieces = sum(corpus.byte_pieces for corpus in all_corpora)
    text_bytes = sum(corpus.text_bytes for corpus in all_corpora)
    has_bytes = vocabulary.is_byte.any() or vocabulary.sources.is_byte.any()
    return {
        "vocabulary_size": vocabulary.size,
        "source_vocabulary_size": vocabulary.separate_source_size,
        "byte_share": round(byte_pieces / text_bytes, 6) if has_bytes else None,
        "splits": splits,
    }


def _figures(corpora: Sequence[StoredCorpus]) -> dict[str, Any]:
    pairs = sum(corpus.pairs for corpus in corpora)
    dropped = sum((Counter(corpus.dropped) for corpus in corpora), Counter[str]())
    tokens = sum((Counter(corpus.tokens) for corpus in corpora), Counter[str]())
    return {
        "pairs_read": pairs + dropped.total(),
        "pairs_kept": pairs,
        "pairs_dropped": dict(dropped),
        "tokens": dict(tokens),
        "mean_length": {side: round(count / pairs, 2) for side, count in tokens.items()},
    }


def _corpora_figures(corpora: Sequence[StoredCorpus]) -> list[dict[str, Any]]:
    """Returns the counts of each corpus, with its share of an epoch's target tokens."""
    tokens = [corpus.tokens["targets"] for corpus in corpora]
    quotas: Sequence[float] = tokens
    if any(corpus.weight for corpus in corpora):
        quotas = list(map(float, batching.quotas(corpora, tokens)))
    return [
        {
            "name": corpus.name,
            "target_language": corpus.target_language,
            **_figures([corpus]),
            "weight": corpus.weight or None,
            "share": round(quota / sum(tokens), 6),
            "passes": round(quota / count, 3),
        }
        for corpus, quota, count in zip(corpora, quotas, tokens, strict=True)
    ]


def save(folder: Path, problem: str, summary: dict[str, Any], data_dir: Path) -> None:
    """Writes the summary to datagen.json in `folder`, together with the summaries of other problems
    in `data_dir`.
    """
    summaries: dict[str, Any] = {}
    # A file that is missing, damaged or no JSON object is replaced.
    with contextlib.suppress(UserError, FileNotFoundError, TypeError, ValueError):
        summaries = dict(parse_json(read_text(data_dir / FILE_NAME), ""))
    contents = json.dumps({**summaries, problem: summary}, indent=2, ensure_ascii=False)
    write_file(folder / FILE_NAME, f"{contents}\n")


def lines(summary: dict[str, Any]) -> list[str]:
    text = []
    for split, figures in summary["splits"].items():
        dropped = "".join(
            f", {count:,} dropped ({reason})" for reason, count in figures["pairs_dropped"].items()
        )
        tokens = figures["tokens"]
        means = figures["mean_length"]
        text.append(
            f"{split}: {figures['pairs_kept']:,} of "
            f"{counted(figures['pairs_read'], 'pair')}{dropped}; tokens {tokens['inputs']:,} -> "
            f"{tokens['targets']:,}, mean length {means['inputs']} -> {means['targets']}"
        )
        if corpora := figures.get("corpora"):
            text.append(f"\n{_table(split, corpora)}")
    share = summary["byte_share"]
    outside = "" if share is None else f"; {share:.2%} of the text's bytes outside of it"
    sizes = f"vocabulary: {summary['vocabulary_size']:,}"
    if summary["source_vocabulary_size"]:
        sizes = (
            f"vocabularies: {summary['source_vocabulary_size']:,} -> {summary['vocabulary_size']:,}"
        )
    text.append(f"{sizes} subwords{outside}")
    return text


def _table(split: str, corpora: Sequence[dict[str, Any]]) -> str:
    reasons = dict.fromkeys(reason for corpus in corpora for reason in corpus["pairs_dropped"])
    count = "{:,}".format

    def short(name: str) -> str:
        return name if len(name) <= MAX_NAME else f"...{name[3 - MAX_NAME :]}"

    columns = [
        Column("name", "corpus", short),
        Column("target_language", "target"),
        Column("pairs_kept", "pairs", count),
        *(Column(reason, reason, count) for reason in reasons),
        Column("inputs", "source tokens", count),
        Column("targets", "target tokens", count),
        Column("share", "share", "{:.1%}".format),
        Column("passes", "passes", "{:.2f}".format),
    ]
    lines = [corpus | corpus["pairs_dropped"] | corpus["tokens"] for corpus in corpora]
    title = f"corpora of {split}; dropped pairs by reason"
    return to_text([Table(split, title, lines)], columns, 80)
