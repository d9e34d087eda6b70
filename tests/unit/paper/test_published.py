"""Tests that the published facts about Table 2's systems agree with the figures that the paper derives from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from t2t_repro import registry
from t2t_repro.models import size
from t2t_repro.paper.published import PUBLISHED, REMARKS
from t2t_repro.paper.rows import EN_DE, EN_FR, ROWS

SYSTEMS = {row.row: row for row in ROWS if row.table == 2 and "ensemble" not in row.row}


def printed_flops(name: str, problem: str) -> float | None:
    """Returns the FLOPs that the paper's Table 2 prints for a system and a problem."""
    return SYSTEMS[name].flops_ende if problem == "wmt_ende" else SYSTEMS[name].flops_enfr


def test_each_figure_of_a_single_system_has_published_facts_and_a_remark() -> None:
    bleu = {(name, "wmt_ende"): row.bleu_ende for name, row in SYSTEMS.items()}
    bleu |= {(name, "wmt_enfr"): row.bleu_enfr for name, row in SYSTEMS.items()}
    assert PUBLISHED.keys() == {key for key, score in bleu.items() if score}
    for name in SYSTEMS:
        assert any(name.startswith(family) for family in REMARKS)


@pytest.mark.parametrize(("name", "problem"), PUBLISHED)
def test_published_time_and_hardware_give_the_papers_flops(name: str, problem: str) -> None:
    flops, printed = PUBLISHED[name, problem].flops_by_time, printed_flops(name, problem)
    if name == "ByteNet":
        assert flops is printed is None
    else:
        assert f"{flops:.1e}" == f"{printed:.1e}"


def test_published_trainings_have_these_numbers_of_target_tokens() -> None:
    tokens = {key: published.target_tokens for key, published in PUBLISHED.items() if published.target_tokens}
    assert tokens == {
        ("Deep-Att + PosUnk", "wmt_enfr"): pytest.approx(240e6 * 31),  # 10 days are 6 2/3 passes over 36 M pairs
        ("GNMT + RL", "wmt_enfr"): pytest.approx(256e6 * 31),  # 2 M steps of 128 pairs
        **{("Transformer (base)", problem): 2.5e9 for problem in ("wmt_ende", "wmt_enfr")},
        **{("Transformer (big)", problem): 7.5e9 for problem in ("wmt_ende", "wmt_enfr")},
    }


def test_the_remark_on_gnmt_states_its_size_correctly() -> None:
    gnmt = registry.hparams("gnmt")
    published = PUBLISHED["GNMT + RL", "wmt_enfr"].parameters
    assert published == 278e6
    assert size.parameters(gnmt, 32_000) / published == pytest.approx(1.01, abs=0.001)
    multiplications = size.formulas(gnmt).multiplications(gnmt, 32_000, 31, 31) / 31
    assert multiplications == pytest.approx(215e6, abs=0.5e6)
    assert "1% more parameters" in REMARKS["GNMT"] and "215 M" in REMARKS["GNMT"]


def test_the_remark_on_convs2s_explains_its_published_number_of_parameters() -> None:
    published = PUBLISHED["ConvS2S", "wmt_ende"].parameters
    of_the_code = replace(registry.hparams("convs2s_ende"), max_length=1024)
    of_the_text = replace(of_the_code, convolutions="512x3*10+768x3*3+2048x1*2")
    assert size.parameters(of_the_code, 43_000) == pytest.approx(published, abs=0.5e6)
    assert size.parameters(of_the_text, 43_000) == pytest.approx(188e6, abs=0.5e6)
    assert "188 M" in REMARKS["ConvS2S"]


def test_the_remark_on_convs2s_states_the_passes_that_its_flops_would_pay_for() -> None:
    passes = []
    for name, corpus, pairs, flops in (("convs2s_ende", EN_DE, 4.5e6, 9.6e18), ("convs2s_enfr", EN_FR, 36e6, 1.5e20)):
        lengths, hparams = (corpus.source_length, corpus.target_length), registry.hparams(name)
        # Forward and backward, each pair needs 6 operations for each multiplication of the forward pass.
        passes.append(flops / (6 * size.formulas(hparams).multiplications(hparams, 40_000, *lengths) * pairs))
    assert [round(number) for number in passes] == [83, 115]
    assert "83 passes" in REMARKS["ConvS2S"] and "115 passes" in REMARKS["ConvS2S"]
