"""Tests of the table with the training costs of Table 2's systems."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from t2t_repro import registry
from t2t_repro.models import size
from t2t_repro.paper import rows
from t2t_repro.paper.cost import cost_table
from t2t_repro.paper.published import PUBLISHED


def lines(vocab_size: int = 0) -> dict[tuple[str, str], dict[str, Any]]:
    """Returns the table's lines by first cell and language pair."""
    return {(line["row"], line["pair"]): dict(line) for line in cost_table(vocab_size).lines}


def test_gnmts_cost_agrees_with_the_published_number_of_multiplications() -> None:
    line = lines()["GNMT + RL", "EN-FR"]
    # Shazeer et al. 2017, table 2: 214 M multiplications per token. A training step has 6 operations for each.
    assert line["token_flops"] == pytest.approx(6 * 214e6, rel=0.01)
    assert line["published_flops_by_products"] == pytest.approx(6 * 214e6 * 2e6 * 128 * 31, rel=0.01)
    assert line["share_of_products"] == pytest.approx(6 * 214e6 * 2e6 * 128 * 31 / 1.4e20, rel=0.01)
    assert line["full_rate_tokens"] == pytest.approx(1.4e20 / (6 * 214e6), rel=0.01)
    assert (line["parameters"], line["published_parameters"]) == (280_826_880, 278_000_000)
    assert (line["published_days"], line["published_gpus"], line["paper_flops"]) == (6, "96 x K80", 1.4e20)


def test_costs_of_the_transformer_are_those_of_its_own_steps() -> None:
    for (name, pair), (hparams_set, vocab_size, length, share) in {
        ("Transformer (base)", "EN-DE"): ("transformer_base", 41_100, 29, 0.30),
        ("Transformer (big)", "EN-FR"): ("transformer_big_enfr", 32_000, 31, 0.41),
    }.items():
        line, hparams = lines()[name, pair], registry.hparams(hparams_set)
        flops = size.step_flops(hparams, vocab_size, length, length) * hparams.train_steps
        assert (line["hparams_set"], line["vocab_size"]) == (hparams_set, vocab_size)
        assert line["published_flops_by_products"] == pytest.approx(flops)
        assert line["share_of_products"] == pytest.approx(share, abs=0.005)


def test_what_is_not_published_is_empty() -> None:
    published = {"published_flops_by_products", "share_of_products"}
    for pair in ("EN-DE", "EN-FR"):
        assert not published & lines()["ConvS2S", pair].keys()
    bytenet = lines()["ByteNet", "EN-DE"]
    assert not (published | {"full_rate_tokens"}) & bytenet.keys()
    assert bytenet["published_gpus"] is bytenet["published_flops_by_time"] is bytenet["paper_flops"] is None


def test_a_pair_of_a_system_has_its_own_hparams_set_and_vocabulary() -> None:
    sets = {key: (line["hparams_set"], line["vocab_size"]) for key, line in lines().items() if "hparams_set" in line}
    assert sets["ConvS2S", "EN-DE"] == ("convs2s_ende", 40_000)
    assert sets["ConvS2S", "EN-FR"] == ("convs2s_enfr", 40_000)
    assert sets["GNMT + RL", "EN-DE"] == ("gnmt", 32_000)
    assert sets["MoE", "EN-DE"] == sets["MoE", "EN-FR"] == ("moe", 32_000)
    assert sets["Deep-Att + PosUnk", "EN-FR"] == ("deep_att", 32_000)
    assert sets["ByteNet", "EN-DE"] == ("bytenet", 323)
    assert ("Deep-Att + PosUnk", "EN-DE") not in lines()


def test_one_vocabulary_size_can_count_every_line() -> None:
    for line in lines(500).values():
        if "hparams_set" in line:
            assert line["vocab_size"] == 500
            assert line["parameters"] == size.parameters(registry.hparams(line["hparams_set"]), 500)


def test_a_system_without_hparams_set_has_its_published_facts(monkeypatch: pytest.MonkeyPatch) -> None:
    without_sets = [replace(row, hparams_set="", hparams_set_enfr="") for row in rows.ROWS]
    monkeypatch.setattr(rows, "ROWS", without_sets)
    line = lines()["GNMT + RL", "EN-FR"]
    assert (line["published_parameters"], line["paper_flops"]) == (278_000_000, 1.4e20)
    assert "parameters" not in line
    assert len(lines()) == len(PUBLISHED)
