"""Tests that the rows of the paper's tables agree with the hparams sets that reproduce them."""

from collections import Counter

import pytest

from t2t_repro import registry
from t2t_repro.errors import UserError
from t2t_repro.paper.rows import EN_DE, ROWS, Row, find_hparams_set, printed_figures

ABLATED = {
    "(A)": {"num_heads"},
    "(B)": {"attention_key_channels"},
    "(C)": {"num_hidden_layers", "hidden_size", "filter_size"},
    "(D)": {"layer_prepostprocess_dropout", "label_smoothing"},
    "(E)": {"pos"},
}
"""For each group of rows in Table 3: the hparams that its rows may change from base."""
COLUMNS = ("n", "d_model", "d_ff", "h", "d_k", "d_v", "p_drop", "eps_ls")
FIGURES: dict[tuple[str, str], dict[str, float]] = {
    ("transformer_base", "wmt_ende"): {
        "steps": 100_000,
        "perplexity": 4.92,
        "wmt13": 25.8,
        "wmt14/full": 27.3,
    },
    ("transformer_base", "wmt_enfr"): {"steps": 100_000, "wmt14/full": 38.1},
    ("transformer_base", "wmt_ende_rev"): {},
    ("transformer_big", "wmt_enfr"): {},
    ("transformer_big_enfr", "wmt_enfr"): {"steps": 300_000, "wmt14/full": 41.8},
    ("transformer_h1", "wmt_ende"): {"steps": 100_000, "perplexity": 5.29, "wmt13": 24.9},
    ("gnmt", "wmt_ende"): {"wmt14/full": 24.6},
    ("gnmt", "wmt_enfr"): {"wmt14/full": 39.92},
    ("transformer_parsing_4layer", "wsj_parsing"): {"test": 91.3},
    ("transformer_parsing_4layer_semi", "wsj_parsing"): {},
    ("transformer_parsing_4layer_semi", "wsj_parsing_semi"): {"test": 92.7},
}
"""Figures that the paper prints, by hparams set and problem."""


def table_3_values(name: str) -> dict[str, float]:
    """Returns the values of an hparams set as {column of Table 3: value}."""
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


@pytest.mark.parametrize(
    "row", [row for row in ROWS if row.table == 3], ids=lambda row: row.experiments[0].hparams_set
)
def test_a_set_has_the_values_of_its_row_in_table_3_and_otherwise_bases(row: Row) -> None:
    [experiment] = row.experiments
    printed = {name: row.figures[name] for name in COLUMNS if name in row.figures}
    hparams = registry.hparams(experiment.hparams_set)
    assert table_3_values(experiment.hparams_set) == table_3_values("transformer_base") | printed
    assert hparams.train_steps == row.figures.get("steps", 100_000)
    assert hparams.pos == ("emb" if "note" in row.figures else "timing")
    if row.name.startswith("("):
        base = vars(registry.hparams("transformer_base"))
        changed = {name for name, value in vars(hparams).items() if value != base[name]}
        assert changed <= ABLATED[row.name] | {"num_last_checkpoints"}
        # The models of Table 3 are not averages of checkpoints.
        assert hparams.num_last_checkpoints == 1


def test_rows_have_the_sets_and_vocabulary_sizes_of_their_problems() -> None:
    experiments = [(row.table, experiment) for row in ROWS for experiment in row.experiments]
    assert Counter(row.table for row in ROWS) == {2: 10, 3: 20, 4: 12}
    assert len({experiment.hparams_set for table, experiment in experiments if table != 2}) == 22
    for table, experiment in experiments:
        published = experiment.hparams_set.startswith(("convs2s", "bytenet"))
        if table == 4 or not (published or experiment.corpus == EN_DE):
            problem = registry.problem(experiment.corpus.problem)
            assert problem.settings.vocab_size == experiment.vocab_size


def test_printed_figures_are_found_by_set_and_problem() -> None:
    assert {key: printed_figures(*key) for key in FIGURES} == FIGURES


def test_a_row_is_found_with_and_without_its_prefix() -> None:
    for name in {experiment.hparams_set for row in ROWS for experiment in row.experiments}:
        for row in (name, name.removeprefix("transformer_")):
            assert find_hparams_set(row, "wmt_ende") == name
    for row in ("big", "big_enfr"):
        assert find_hparams_set(row, "wmt_enfr") == "transformer_big_enfr"
    for problem in ("wmt_enfr_rev", "text_files"):
        assert find_hparams_set("big", problem) == "transformer_big"


def test_an_unknown_row_is_an_error_that_offers_the_nearest() -> None:
    for row, nearest in (("bsae", "base"), ("transformer_bgi", "transformer_big")):
        with pytest.raises(UserError, match=f"^unknown row '{row}'; did you mean '{nearest}'"):
            find_hparams_set(row, "wmt_ende")
