"""Tests that EVALB's parameter files are read, and that lines without effect are named."""

from pathlib import Path

import pytest

from programs import write_lines
from t2t_repro.parsing.evalb_parameters import Parameters, read_parameters

DEFAULTS = Parameters(
    delete_label=frozenset(), delete_label_for_length=frozenset(), eq_label=frozenset()
)

FILE = """\
##-----##

DEBUG 1
MAX_ERROR 5
CUTOFF_LEN\t70\x20\x20
LABELED 0
DELETE_LABEL TOP
DELETE_LABEL #
DELETE_LABEL_FOR_LENGTH -NONE-
QUOTE_LABEL POS
EQ_LABEL  A B
EQ_WORD Dog dog
# EQ_WORD Cat cat
"""


def test_a_parameter_file_sets_every_parameter(tmp_path: Path) -> None:
    assert read_parameters(write_lines(tmp_path / "x.prm", FILE.splitlines())) == Parameters(
        max_error=5,
        cutoff_len=70,
        labeled=False,
        delete_label=frozenset({"TOP", "#"}),
        delete_label_for_length=frozenset({"-NONE-"}),
        quote_label=frozenset({"POS"}),
        eq_label=frozenset({("A", "B")}),
        eq_word=frozenset({("Dog", "dog")}),
    )


def test_omitted_parameters_have_evalbs_defaults(tmp_path: Path) -> None:
    assert read_parameters(write_lines(tmp_path / "x.prm", ["# nothing"])) == DEFAULTS
    assert (DEFAULTS.max_error, DEFAULTS.cutoff_len, DEFAULTS.labeled) == (10, 40, True)


def test_a_line_that_sets_nothing_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    for line in (
        "DELETE_LABLE TOP",
        " DELETE_LABEL TOP",
        "DELETE_LABEL TOP S1",
        "EQ_LABEL ADVP",
        "MAX_ERROR",
    ):
        path = write_lines(tmp_path / "x.prm", ["AB", line])
        assert read_parameters(path) == DEFAULTS
        assert capfd.readouterr().err.startswith(f"{path}:2: ")
