"""The columns that t2t-paper's tables can have, and the columns that each table has by default."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from t2t_repro.console.tables import Column, Table
from t2t_repro.errors import unknown

ALL = "all"
"""The value of --columns that shows every column."""
COST = "2 cost"
"""Name of the table with the training costs of Table 2's single systems."""
TEST_SET_PREFIX = "measured_bleu:"
"""Prefix of the name of a column with a test set's measured BLEU, for example "measured_bleu:wmt14/full"."""
_count = "{:,}".format
_one_decimal, _two_decimals = "{:.1f}".format, "{:.2f}".format


def _power(value: float) -> str:
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


COLUMNS = (
    # Columns with figures and descriptions that the paper prints.
    Column("row", "row", is_key=True),
    Column("training", "training"),
    Column("pair", "pair", is_key=True),
    Column("hparams_set", "hparams_set", is_key=True),
    Column("hparams_set_enfr", "for EN-FR"),
    Column("paper_n", "N"),
    Column("paper_d_model", "d_model"),
    Column("paper_d_ff", "d_ff"),
    Column("paper_h", "h"),
    Column("paper_d_k", "d_k"),
    Column("paper_d_v", "d_v"),
    Column("paper_p_drop", "P_drop"),
    Column("paper_eps_ls", "ε_ls"),
    Column("paper_note", "positions", lambda note: note.removesuffix(" positions")),
    Column("paper_steps", "steps", _count),
    Column("paper_perplexity", "PPL", _two_decimals),
    Column("paper_bleu_dev", "BLEU", _one_decimal),
    Column("paper_parameters", "params (M)", lambda value: f"{value / 1e6:.0f}"),
    Column("paper_bleu_ende", "BLEU EN-DE", "{:g}".format),
    Column("paper_bleu_enfr", "BLEU EN-FR", "{:g}".format),
    Column("paper_flops_ende", "FLOPs EN-DE", _power),
    Column("paper_flops_enfr", "FLOPs EN-FR", _power),
    Column("paper_f1", "F1", _one_decimal),
    # Columns with facts from the publications of Table 2's systems.
    Column("source", "source"),
    Column("published_days", "days", "{:g}".format),
    Column("published_gpus", "GPUs"),
    Column("published_flops_by_time", "FLOPs by published time", _power),
    Column("published_parameters", "params (M)", lambda value: f"{value / 1e6:,.0f}"),
    # Columns with figures that are computed from the hparams sets.
    Column("vocab_size", "our vocabulary", _count),
    Column("parameters", "our params", _count),
    Column("paper_difference", "paper - base (M)", lambda value: f"{value / 1e6:+.0f}"),
    Column("difference", "ours - base (M)", lambda value: f"{value / 1e6:+.1f}"),
    Column("target_tokens_per_step", "target tokens/step", _count),
    Column("source_tokens_per_step", "source tokens/step", _count),
    Column("train_steps", "our steps", _count),
    Column("step_flops_by_time", "FLOPs/step by time", _power),
    Column("flops_by_time", "FLOPs by time", _power),
    Column("step_flops_by_products", "FLOPs/step by products", _power),
    Column("flops_by_products", "FLOPs by products", _power),
    Column("parameters_enfr", "params EN-FR", _count),
    Column("flops_by_products_enfr", "FLOPs EN-FR by products", _power),
    # Columns with training costs, computed from the hparams sets, the publications and the paper.
    Column("token_flops", "FLOPs/token", _power),
    Column("full_rate_tokens", "tokens at full rate", _power),
    Column("published_tokens", "tokens", _power),
    Column("published_flops_by_products", "products", _power),
    Column("paper_flops", "paper", _power),
    Column("share_of_products", "share", "{:.0%}".format),
    # Columns with a model folder's description and measured figures.
    Column("output_dir", "model folder"),
    Column("problem", "problem"),
    Column("measured_steps", "steps taken", _count),
    Column("measured_vocab_size", "vocabulary, measured", _count),
    Column("measured_parameters", "params, measured", _count),
    Column("measured_perplexity", "PPL, measured", _two_decimals),
    Column("measured_bleu_dev", "BLEU dev, measured", _two_decimals),
    Column("measured_f1", "F1, measured", _two_decimals),
    Column("train_seconds", "hours", lambda value: f"{value / 3600:.2f}"),
    Column("gpu_count", "devices"),
    Column("hardware", "hardware"),
    Column("measured_flops_by_time", "FLOPs by time, measured", _power),
)
"""All columns except those with the measured BLEU of a test set, which `all_columns` inserts before "measured_f1"."""
FIGURES = {
    "2": ("paper_bleu_ende", "paper_bleu_enfr", "paper_flops_ende", "paper_flops_enfr", "parameters"),
    COST: (
        *("pair", "published_parameters", "parameters", "token_flops", "published_tokens"),
        *("published_flops_by_products", "paper_flops", "share_of_products"),
    ),
    "3": ("paper_perplexity", "paper_bleu_dev", "paper_parameters", "parameters"),
    "4": ("paper_f1", "parameters"),
    "": (),
}
"""Columns of figures that each table shows by default. The key "" is the table of model folders that fit no row."""
VARIATION = tuple(f"paper_{name}" for name in ("n", "d_model", "d_ff", "h", "d_k", "d_v", "p_drop", "eps_ls", "note"))
"""Columns that describe the variations in Table 3. By default, a table with model folders does not show them."""
MEASURED = (
    *("output_dir", "problem", "measured_steps", "measured_perplexity", "measured_bleu_dev", "measured_f1"),
    *("train_seconds", "measured_flops_by_time"),
)
"""Columns that a table with model folders shows by default, besides a BLEU column for each measured test set."""


def all_columns(tables: Sequence[Table]) -> list[Column]:
    """Returns `COLUMNS` and, for each test set with measured BLEU in the tables, a column of this BLEU."""
    names = {name: None for table in tables for line in table.lines for name in line}
    test_sets = [
        Column(name, f"BLEU {name.removeprefix(TEST_SET_PREFIX)}, measured", _two_decimals)
        for name in names
        if name.startswith(TEST_SET_PREFIX)
    ]
    position = [column.name for column in COLUMNS].index("measured_f1")
    return [*COLUMNS[:position], *test_sets, *COLUMNS[position:]]


def select_columns(columns: Sequence[Column], names: Sequence[str]) -> list[Column]:
    """Returns the columns that `names` lists, in the same order, or all columns if `names` contains "all".

    Raises UserError for an unknown name.
    """
    columns_by_name = {column.name: column for column in columns}
    for name in names:
        if name not in columns_by_name and name != ALL:
            raise unknown("column", name, [ALL, *columns_by_name])
    return list(columns) if ALL in names else [columns_by_name[name] for name in names]


def compared_only(table: Table) -> Table:
    """Returns the table with only the columns that it shows by default.

    These are so few that a table without model folders is at most 120 characters wide.
    """
    has_models = any("output_dir" in line for line in table.lines)
    names = ("row", "training", "hparams_set", *FIGURES[table.name], *(MEASURED if has_models else VARIATION))
    lines = [
        {name: value for name, value in line.items() if name in names or name.startswith(TEST_SET_PREFIX)}
        for line in table.lines
    ]
    return dataclasses.replace(table, lines=lines)
