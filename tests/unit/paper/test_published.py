"""Tests that the published facts about Table 2's systems agree with the figures that the paper derives from them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from t2t_repro import registry
from t2t_repro.models import size
from t2t_repro.paper.published import PUBLISHED, REMARKS
from t2t_repro.paper.rows import EN_DE, EN_FR, ROWS, Corpus

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


def test_the_remark_on_moe_states_its_size_correctly() -> None:
    moe = registry.hparams("moe")
    assert f"{size.parameters(moe, 32_000):.1e}" == f"{PUBLISHED['MoE', 'wmt_ende'].parameters:.1e}" == "8.7e+09"
    multiplications = size.formulas(moe).multiplications(moe, 32_000, 31, 31) / 31
    assert multiplications == pytest.approx(89e6, abs=0.5e6)
    gating = 2 * 2 * 512 * 2048  # in each of two layers, a product for the gates and a product for their noise
    assert multiplications - gating == pytest.approx(85e6, abs=0.5e6)


def test_the_remark_on_convs2s_explains_its_published_number_of_parameters() -> None:
    published = PUBLISHED["ConvS2S", "wmt_ende"].parameters
    of_the_code = replace(registry.hparams("convs2s_ende"), max_length=1024)
    of_the_text = replace(of_the_code, convolutions="512x3*10+768x3*3+2048x1*2")
    assert size.parameters(of_the_code, 43_000) == pytest.approx(published, abs=0.5e6)
    assert size.parameters(of_the_text, 43_000) == pytest.approx(188e6, abs=0.5e6)
    assert "188 M" in REMARKS["ConvS2S"]


@pytest.mark.parametrize(
    ("family", "hparams_set", "vocab_size", "corpus", "flops", "passes"),
    [
        ("ConvS2S", "convs2s_ende", 40_000, EN_DE, 9.6e18, 83),
        ("ConvS2S", "convs2s_enfr", 40_000, EN_FR, 1.5e20, 115),
        ("MoE", "moe", 32_000, EN_DE, 2.0e19, 286),
        ("MoE", "moe", 32_000, EN_FR, 1.2e20, 201),
    ],
)
def test_remarks_state_the_passes_that_the_papers_flops_would_pay_for(
    family: str, hparams_set: str, vocab_size: int, corpus: Corpus, flops: float, passes: int
) -> None:
    hparams, lengths = registry.hparams(hparams_set), (corpus.source_length, corpus.target_length)
    pairs = 4.5e6 if corpus == EN_DE else 36e6
    # Forward and backward, each pair needs 6 operations for each multiplication of the forward pass.
    operations = 6 * size.formulas(hparams).multiplications(hparams, vocab_size, *lengths) * pairs
    assert round(flops / operations) == passes
    assert f"{passes} passes" in REMARKS[family]
