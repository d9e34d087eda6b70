"""The table of training costs: operations of published training runs, by products, and by time as in the paper."""

from __future__ import annotations

import textwrap
from typing import Any

from t2t_repro import registry
from t2t_repro.console.tables import Table
from t2t_repro.models import size
from t2t_repro.paper import rows
from t2t_repro.paper.columns import COST
from t2t_repro.paper.published import PUBLISHED, REMARKS, Published
from t2t_repro.paper.rows import Experiment, Row

TITLE = "Training costs of the systems in Table 2, in FLOPs: by products, and by time as in the paper"
NOTE_WIDTH = 120
PAIRS = {rows.EN_DE.problem: "EN-DE", rows.EN_FR.problem: "EN-FR"}
"""Names of the language pairs, by problem."""


def cost_table(vocab_size: int) -> Table:
    """Returns a table with one line for each published training run of a single system in Table 2, and remarks.

    Args:
        vocab_size: vocabulary size for counting parameters and operations; 0 means each row's own size.
    """
    systems = {row.row: row for row in rows.ROWS if row.table == 2}
    lines = [_line(systems[name], problem, published, vocab_size) for (name, problem), published in PUBLISHED.items()]
    notes = [textwrap.fill(f"{family}: {remark}", NOTE_WIDTH) for family, remark in REMARKS.items()]
    return Table(COST, TITLE, lines, notes)


def _line(row: Row, problem: str, published: Published, vocab_size: int) -> dict[str, Any]:
    """Returns the cells of a system for one language pair, by column name."""
    paper_flops = row.flops_ende if problem == rows.EN_DE.problem else row.flops_enfr
    line = {
        "row": row.row,
        "pair": PAIRS[problem],
        "source": published.source,
        "published_days": published.days,
        "published_gpus": f"{published.gpu_count} x {published.gpu}" if published.gpu else None,
        "published_flops_by_time": published.flops_by_time,
        "published_parameters": published.parameters,
        "published_tokens": published.target_tokens,
        "paper_flops": paper_flops,
    }
    for experiment in row.experiments():
        if experiment.corpus.problem == problem:
            line |= _computed(experiment, published, paper_flops, vocab_size)
    return line


def _computed(
    experiment: Experiment, published: Published, paper_flops: float | None, vocab_size: int
) -> dict[str, Any]:
    """Returns the cells that are computed from an experiment's hparams set, by column name."""
    hparams, entries = registry.hparams(experiment.hparams_set), vocab_size or experiment.vocab_size
    corpus = experiment.corpus
    step_flops = size.step_flops(hparams, entries, corpus.source_length, corpus.target_length)
    token_flops = step_flops / hparams.batch_size
    line: dict[str, Any] = {
        "hparams_set": experiment.hparams_set,
        "vocab_size": entries,
        "parameters": size.parameters(hparams, entries),
        "token_flops": token_flops,
    }
    if paper_flops:
        line["full_rate_tokens"] = paper_flops / token_flops
    if published.target_tokens:
        line["published_flops_by_products"] = token_flops * published.target_tokens
        if paper_flops:
            line["share_of_products"] = line["published_flops_by_products"] / paper_flops
    return line
