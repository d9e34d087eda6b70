"""t2t-paper prints the paper's figures, and computes model sizes and training costs that agree with them."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable
from pathlib import Path

import pytest

from programs import output
from t2t_repro import registry
from t2t_repro.models import size
from t2t_repro.paper.rows import ROWS, Row

PAPER = Path(__file__).resolve().parents[2].parent / "shared" / "reference" / "paper.md"
needs_the_reference = pytest.mark.skipif(not PAPER.exists(), reason="../shared/reference does not exist")

SIZES = {
    "transformer_base": 65, "transformer_k128": 58, "transformer_k256": 60, "transformer_l2": 36,
    "transformer_l4": 50, "transformer_l8": 80, "transformer_hs256": 28, "transformer_hs1024": 168,
    "transformer_ff1024": 53, "transformer_ff4096": 90, "transformer_big": 213,
}  # fmt: skip
"""Parameter counts in millions that the paper's Table 3 prints, by hparams set."""
LIKE_BASE = ["h1", "h4", "h16", "h32", "dr0", "dr2", "ls0", "ls2"]
OTHER_WIDTH = {"transformer_hs256", "transformer_hs1024", "transformer_big"}
SYMBOLS = {"N": "n", "P_drop": "p_drop", "ε_ls": "eps_ls"}


def printed(*arguments: str) -> list[dict[str, str]]:
    """Runs t2t-paper --format=csv with these arguments and returns each line of the table as {column: cell}."""
    return list(csv.DictReader(io.StringIO(output("paper", "--format=csv", *arguments))))


def reference(number: int) -> list[list[str]]:
    """Returns the cells of the paper's Table `number` in ../shared/reference/paper.md, without the header."""
    section = PAPER.read_text("utf-8").split(f"## Table {number}")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in re.findall(r"^\|.*\|$", section, re.M)]
    return rows[2:]


def figure(text: str) -> float | None:
    """Returns the number in a cell of the paper's tables ("100K" is 100,000), or None if the cell is empty."""
    return float(text.replace("K", "000")) if text else None


def table_rows(number: int) -> list[Row]:
    return [row for row in ROWS if row.table == number]


@needs_the_reference
def test_every_figure_of_table_2_is_the_papers() -> None:
    rows = [(row.row, row.bleu_ende, row.bleu_enfr, row.flops_ende, row.flops_enfr) for row in table_rows(2)]
    assert rows == [(name, *map(figure, cells)) for name, *cells in reference(2)]


@needs_the_reference
def test_every_figure_of_table_3_is_the_papers() -> None:
    for row, (name, change, *cells) in zip(table_rows(3), reference(3), strict=True):
        assert row.row.strip("()") == name
        millions = row.parameters and row.parameters / 1e6
        assert [row.steps, row.perplexity, row.bleu_dev, millions] == list(map(figure, cells))
        if name == "E":
            assert change.startswith("learned positional embedding")
            assert row.note == "learned positions"
            continue
        changes = dict(part.split() for part in change.split(", "))
        columns = ("n", "d_model", "d_ff", "h", "d_k", "d_v", "p_drop", "eps_ls")
        values = {column: getattr(row, column) for column in columns if getattr(row, column) is not None}
        if name == "big":  # the paper prints base's N again, which the reference omits
            assert values.pop("n") == 6
        assert values == {SYMBOLS.get(symbol, symbol): float(value) for symbol, value in changes.items()}


@needs_the_reference
def test_every_figure_of_table_4_is_the_papers() -> None:
    rows = [(row.row, row.training, row.f1) for row in table_rows(4)]
    printed_rows = [(parser, training, float(f1)) for parser, training, f1 in reference(4)]
    assert rows == printed_rows


@pytest.mark.parametrize("name", SIZES)
def test_differences_from_base_are_the_papers_after_rounding(name: str) -> None:
    """t2t-paper prints size differences from base within one million of the paper's, which rounds all sizes."""
    lines = {line["hparams_set"]: line for line in printed("--table=3")}
    difference = int(lines[name]["parameters"]) - int(lines["transformer_base"]["parameters"])
    assert abs(difference / 1e6 - (SIZES[name] - SIZES["transformer_base"])) < 1
    if name != "transformer_base":
        assert int(lines[name]["difference"]) == difference
        assert int(lines[name]["paper_difference"]) == (SIZES[name] - SIZES["transformer_base"]) * 10**6


@pytest.mark.parametrize("vocab_size", [32_000, 37_000, 50_000])
def test_differences_at_bases_width_hold_with_any_vocabulary(vocab_size: int) -> None:
    lines = printed("--table=3", f"--vocab_size={vocab_size}")
    assert {line["vocab_size"] for line in lines} == {str(vocab_size)}
    parameters = {line["hparams_set"]: int(line["parameters"]) for line in lines}
    for name, millions in SIZES.items():
        if name not in OTHER_WIDTH:
            assert (
                abs((parameters[name] - parameters["transformer_base"]) / 1e6 - (millions - SIZES["transformer_base"]))
                < 1
            )
    for name in LIKE_BASE:
        assert parameters[f"transformer_{name}"] == parameters["transformer_base"]
    # In transformer_pos_emb, encoder and decoder each learn 256 position vectors of 512 numbers; base learns none.
    assert parameters["transformer_pos_emb"] - parameters["transformer_base"] == 2 * 256 * 512


def test_one_vocabulary_fits_all_sizes_except_bigs() -> None:
    """One range of vocabulary sizes gives all models except big the paper's sizes, as paper/rows.py states."""

    def fitting(names: Iterable[str]) -> tuple[int, int]:
        """Returns the smallest and largest vocabulary size with which all sets `names` have the paper's sizes."""
        sizes = [(registry.hparams(name), SIZES[name] * 10**6) for name in names]
        vocabularies = [
            entries
            for entries in range(30_000, 50_000)
            if all(abs(size.parameters(hparams, entries) - printed) <= 500_000 for hparams, printed in sizes)
        ]
        return vocabularies[0], vocabularies[-1]

    assert fitting(SIZES.keys() - {"transformer_big"}) == (41_004, 41_208)
    assert fitting(["transformer_big"]) == (35_368, 36_344)


def test_sizes_are_the_papers() -> None:
    lines = [line for line in printed() if line["hparams_set"] in SIZES and line["pair"] != "EN-FR"]
    assert len(lines) == len(SIZES) + 2 * 2  # Table 2 and its costs also have base and big
    for line in lines:
        assert round(int(line["parameters"]) / 1e6) == SIZES[line["hparams_set"]]


def test_cost_of_training_is_the_papers() -> None:
    lines = [line for line in printed() if line["flops_by_time"]]
    assert [line["hparams_set"] for line in lines] == 2 * ["transformer_base", "transformer_big"]
    assert [f"{float(line['flops_by_time']):.1e}" for line in lines] == 2 * ["3.3e+18", "2.3e+19"]
    for line in lines:
        per_step = float(line["flops_by_time"]) / int(line["train_steps"])
        assert float(line["step_flops_by_time"]) == pytest.approx(per_step)
        products = int(line["step_flops_by_products"]) * int(line["train_steps"])
        assert int(line["flops_by_products"]) == products
    for line in lines[:2]:
        for pair in ("ende", "enfr"):
            assert f"{float(line[f'paper_flops_{pair}']):.1e}" == f"{float(line['flops_by_time']):.1e}"


def test_products_are_a_plausible_share_of_the_papers_cost() -> None:
    """The operations in matrix products are 30% (base) and 42% (big) of the paper's costs, as docs/paper.md states."""
    base, big = (line for line in printed("--table=2") if line["flops_by_time"])
    shares = [float(line["flops_by_products"]) / float(line["flops_by_time"]) for line in (base, big)]
    assert shares == pytest.approx([0.30, 0.42], abs=0.01)


def test_the_docs_have_the_tables_that_the_program_prints() -> None:
    docs = Path(__file__).resolve().parents[2] / "docs" / "paper.md"
    assert output("paper", "--format=markdown") in docs.read_text("utf-8")
