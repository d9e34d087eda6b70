"""The rows of the paper's tables against the hparams sets that stand for them."""

from __future__ import annotations

from collections import Counter

import pytest

from t2t_repro import registry
from t2t_repro.paper import rows as paper
from t2t_repro.paper.rows import BASE, ROWS, Row

OURS = [row for row in ROWS if row.hparams_set]
ABLATED = {
    "(A)": {"num_heads"},
    "(B)": {"attention_key_channels"},
    "(C)": {"num_hidden_layers", "hidden_size", "filter_size"},
    "(D)": {"layer_prepostprocess_dropout", "label_smoothing"},
    "(E)": {"pos"},
}
"""What the sets of each group may change."""
COLUMNS = ("n", "d_model", "d_ff", "h", "d_k", "d_v", "p_drop", "eps_ls")


def as_columns(name: str) -> dict[str, float]:
    """A set's values under the names of Table 3's columns."""
    hparams = registry.hparams(name)
    heads = hparams.num_heads
    return {
        "n": hparams.num_hidden_layers,
        "d_model": hparams.hidden_size,
        "d_ff": hparams.filter_size,
        "h": heads,
        "d_k": hparams.key_channels // heads,
        "d_v": hparams.value_channels // heads,
        "p_drop": hparams.layer_prepostprocess_dropout,
        "eps_ls": hparams.label_smoothing,
    }


@pytest.mark.parametrize("row", [row for row in ROWS if row.table == 3], ids=lambda row: row.hparams_set)
def test_a_set_has_what_its_row_of_table_3_says_and_the_rest_from_base(row: Row) -> None:
    printed = {name: getattr(row, name) for name in COLUMNS}
    given = {name: value for name, value in printed.items() if value is not None}
    assert as_columns(row.hparams_set) == as_columns(BASE.hparams_set) | given
    assert registry.hparams(row.hparams_set).train_steps == (row.steps or BASE.steps)
    assert registry.hparams(row.hparams_set).pos == ("emb" if row.note else "timing")
    if row.row.startswith("("):
        ours, base = (vars(registry.hparams(name)) for name in (row.hparams_set, BASE.hparams_set))
        changed = {name for name in ours if ours[name] != base[name]}
        assert changed <= ABLATED[row.row] | {"num_last_checkpoints"}
        assert ours["num_last_checkpoints"] == 1  # Table 3 is of no average


def test_docstrings_have_the_papers_figures() -> None:
    for row in OURS:
        said = registry._hparams._objects[row.hparams_set].__doc__
        if row.table == 3:
            assert f"{row.bleu_dev}" in said and f"{row.perplexity:.2f}" in said
            assert row.parameters is None or f"{row.parameters / 1e6:.0f} M" in said
        elif row.table == 4:
            assert f"{row.f1}" in said
        else:
            assert f"{row.bleu_ende}" in said


def test_the_parsers_are_base_but_for_what_the_paper_and_their_docstrings_say() -> None:
    base, wsj, semi = (
        vars(registry.hparams(f"transformer_{name}")) for name in ("base", "parsing_4layer", "parsing_4layer_semi")
    )
    assert {name: wsj[name] for name in wsj if wsj[name] != base[name]} == {
        "num_hidden_layers": 4,
        "hidden_size": 1024,
        "layer_prepostprocess_dropout": 0.2,
        "attention_dropout": 0.2,
        "max_length": 512,
        "learning_rate_warmup_steps": 16000,
        "train_steps": 20000,
        "local_eval_frequency": 500,
    }
    assert {name: semi[name] for name in semi if semi[name] != wsj[name]} == {
        "layer_prepostprocess_dropout": 0.1,
        "attention_dropout": 0.1,
        "learning_rate_warmup_steps": 4000,
        "train_steps": 100000,
        "local_eval_frequency": 1500,
    }


def test_each_set_of_an_experiment_has_its_rows() -> None:
    assert Counter(row.table for row in ROWS) == {2: 10, 3: 20, 4: 12}
    assert Counter(row.table for row in OURS) == {2: 2, 3: 20, 4: 2}
    names = [row.hparams_set for row in OURS if row.table != 2]
    assert len(set(names)) == len(names)
    registry.import_built_in()
    of_the_paper = {
        name
        for name, make in registry._hparams._objects.items()
        if make.__module__.endswith((".table3", ".parsing")) or name in ("transformer_base", "transformer_big")
    }
    assert set(names) == of_the_paper
    assert [row.hparams_set_enfr for row in OURS if row.hparams_set_enfr] == [
        "transformer_base",
        "transformer_big_enfr",
    ]


def test_problems_and_their_vocabularies() -> None:
    for row in OURS:
        assert row.vocab_size
        if row.table == 4:
            assert registry.problem(row.corpus.problem).settings.vocab_size == row.vocab_size
        else:
            assert row.corpus.problem == "wmt_ende"
    assert registry.problem(paper.EN_FR.problem).settings.vocab_size == paper.EN_FR_VOCABULARY
