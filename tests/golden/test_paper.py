"""t2t-paper prints the paper's figures, and computes model sizes and training costs that agree with
them.
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from programs import output
from t2t_repro import registry
from t2t_repro.paper import size
from t2t_repro.paper.rows import (
    BASE_VOCABULARY,
    BIG_VOCABULARY,
    ROWS,
    SUSTAINED_TFLOPS,
    Row,
    flops_by_time,
)

PAPER = Path(__file__).resolve().parents[2].parent / "shared" / "reference" / "paper.md"
DOCS = Path(__file__).resolve().parents[2] / "docs" / "paper.md"
needs_the_reference = pytest.mark.skipif(
    not PAPER.exists(), reason="../shared/reference does not exist"
)

SIZES = {
    "transformer_base": 65, "transformer_k128": 58, "transformer_k256": 60, "transformer_l2": 36,
    "transformer_l4": 50, "transformer_l8": 80, "transformer_hs256": 28, "transformer_hs1024": 168,
    "transformer_ff1024": 53, "transformer_ff4096": 90, "transformer_big": 213,
}  # fmt: skip
"""Parameter counts in millions that the paper's Table 3 prints, by hparams set."""
SYMBOLS = {"N": "n", "P_drop": "p_drop", "ε_ls": "eps_ls"}


def reference(number: int) -> list[list[str]]:
    """Returns the cells of the paper's Table `number` in ../shared/reference/paper.md, without the
    header.
    """
    section = PAPER.read_text("utf-8").split(f"## Table {number}")[1].split("\n## ")[0]
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in re.findall(r"^\|.*\|$", section, re.M)
    ]
    return rows[2:]


def figure(text: str) -> float | None:
    """Returns the number in a cell of the paper's tables ("100K" is 100,000), or None if the cell
    is empty.
    """
    return float(text.replace("K", "000")) if text else None


def table_rows(number: int) -> list[Row]:
    return [row for row in ROWS if row.table == number]


@needs_the_reference
def test_every_figure_of_table_2_is_the_papers() -> None:
    names = ("bleu_ende", "bleu_enfr", "flops_ende", "flops_enfr")
    rows = [(row.name, *(row.figures.get(name) for name in names)) for row in table_rows(2)]
    assert rows == [(name, *map(figure, cells)) for name, *cells in reference(2)]


@needs_the_reference
def test_every_figure_of_table_3_is_the_papers() -> None:
    for row, (name, change, *cells) in zip(table_rows(3), reference(3), strict=True):
        assert row.name.strip("()") == name
        figures = row.figures
        millions = figures.get("parameters", 0) / 1e6 or None
        assert [figures.get("steps"), figures["perplexity"], figures["bleu_dev"], millions] == list(
            map(figure, cells)
        )
        if name == "E":
            assert change.startswith("learned positional embedding")
            assert figures["note"] == "learned positions"
            continue
        changes = dict(part.split() for part in change.split(", "))
        columns = ("n", "d_model", "d_ff", "h", "d_k", "d_v", "p_drop", "eps_ls")
        values = {column: figures[column] for column in columns if column in figures}
        if name == "big":  # the paper prints base's N again, which the reference omits
            assert values.pop("n") == 6
        assert values == {
            SYMBOLS.get(symbol, symbol): float(value) for symbol, value in changes.items()
        }


@needs_the_reference
def test_every_figure_of_table_4_is_the_papers() -> None:
    rows = [(row.name, row.figures["training"], row.figures["f1"]) for row in table_rows(4)]
    printed_rows = [(parser, training, float(f1)) for parser, training, f1 in reference(4)]
    assert rows == printed_rows


@pytest.fixture(scope="module")
def parameters() -> dict[str, int]:
    """Returns the number of parameters of each set of Table 3, with the vocabulary of its row."""
    sizes = {row.experiments[0].hparams_set: row.experiments[0].vocab_size for row in table_rows(3)}
    return {
        name: size.parameters(registry.hparams(name), entries) for name, entries in sizes.items()
    }


def test_sizes_are_the_papers(parameters: dict[str, int]) -> None:
    printed = {
        row.experiments[0].hparams_set for row in table_rows(3) if "parameters" in row.figures
    }
    assert {name: round(parameters[name] / 1e6) for name in printed} == SIZES


def test_one_vocabulary_fits_all_sizes_except_bigs(parameters: dict[str, int]) -> None:
    """One range of vocabulary sizes gives all models except big the paper's sizes, as paper/rows.py
    states.
    """

    def fitting(names: Iterable[str]) -> tuple[int, int]:
        """Returns the smallest and largest vocabulary size with which all sets `names` have the
        paper's sizes.
        """
        vocabularies = np.arange(30_000, 50_000)
        fits = np.ones(len(vocabularies), bool)
        for name in names:
            rows_own = BIG_VOCABULARY if name == "transformer_big" else BASE_VOCABULARY
            counts = parameters[name] + registry.hparams(name).hidden_size * (
                vocabularies - rows_own
            )
            fits &= abs(counts - SIZES[name] * 10**6) <= 500_000
        vocabularies = vocabularies[fits]
        return vocabularies.min(), vocabularies.max()

    assert fitting(SIZES.keys() - {"transformer_big"}) == (41_004, 41_208)
    assert fitting(["transformer_big"]) == (35_368, 36_344)
    base = registry.hparams("transformer_base")
    assert size.parameters(base, 30_001) - size.parameters(base, 30_000) == base.hidden_size


@pytest.mark.parametrize(
    ("name", "pair", "gpu", "gpu_count", "days"),
    [
        # 4 to 8 machines with 4 GPUs each; the FLOPs agree with 8
        ("Deep-Att + PosUnk", "enfr", "K40", 32, 10),
        ("GNMT + RL", "ende", "K80", 96, 1),
        ("GNMT + RL", "enfr", "K80", 96, 6),
        ("ConvS2S", "ende", "M40", 1, 18.5),
        ("ConvS2S", "enfr", "M40", 8, 37),
        ("MoE", "ende", "K40", 64, 1),
        ("MoE", "enfr", "K40", 64, 6),
        *(
            (f"Transformer ({name})", pair, "P100", 8, days)
            for name, days in (("base", 0.5), ("big", 3.5))
            for pair in ("ende", "enfr")
        ),
    ],
)
def test_published_time_and_hardware_give_the_papers_flops(
    name: str, pair: str, gpu: str, gpu_count: int, days: float
) -> None:
    [row] = [row for row in table_rows(2) if row.name == name]
    flops = flops_by_time(days * 24 * 3600, gpu_count, SUSTAINED_TFLOPS[gpu])
    assert f"{flops:.1e}" == f"{row.figures[f'flops_{pair}']:.1e}"


@pytest.mark.parametrize(
    ("hparams_set", "vocab_size", "length", "pairs", "flops", "passes"),
    [
        ("convs2s_ende", 40_000, 29, 4.5e6, 9.6e18, 83),
        ("convs2s_enfr", 40_000, 31, 36e6, 1.5e20, 115),
        ("moe", 32_000, 29, 4.5e6, 2.0e19, 286),
        ("moe", 32_000, 31, 36e6, 1.2e20, 200),
    ],
)
def test_the_docs_state_the_passes_that_the_papers_flops_would_pay_for(
    hparams_set: str, vocab_size: int, length: int, pairs: float, flops: float, passes: int
) -> None:
    # Forward and backward, each pair needs 6 operations for each multiplication of the forward
    # pass.
    multiplications = size.multiplications(
        registry.hparams(hparams_set), vocab_size, length, length
    )
    assert round(flops / (6 * multiplications * pairs)) == passes
    assert f"{passes} passes" in " ".join(DOCS.read_text("utf-8").split())


def test_multiplications_of_a_token_are_near_the_published_ones() -> None:
    """Shazeer et al. count 214 M for GNMT, and 85 M for MoE. Their gating needs less than ours,
    which computes the networks of all groups.
    """
    gnmt, moe = (
        size.multiplications(registry.hparams(name), 32_000, 31, 31) / 31
        for name in ("gnmt", "moe")
    )
    assert gnmt == pytest.approx(215e6, abs=0.5e6)
    assert moe == pytest.approx(89e6, abs=0.5e6)
    # Each of two layers has products for the gates of 64 groups and 2,048 experts, and as many for
    # their noise.
    gating = 2 * 2 * 512 * (64 + 2048)
    assert moe - gating == pytest.approx(85e6, abs=0.5e6)


def test_convs2s_has_the_published_size_with_its_vocabulary_and_positions() -> None:
    of_the_code = replace(registry.hparams("convs2s_ende"), max_length=1024)
    of_the_text = replace(of_the_code, convolutions="512x3*10+768x3*3+2048x1*2")
    assert size.parameters(of_the_code, 43_000) == pytest.approx(216e6, abs=0.5e6)
    assert size.parameters(of_the_text, 43_000) == pytest.approx(188e6, abs=0.5e6)


def test_the_docs_have_the_tables_that_the_program_prints() -> None:
    assert output("paper", "--format=markdown") in DOCS.read_text("utf-8")
