"""Tests the flags of t2t-paper and its three formats."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest

from programs import error, output

LINE = ("Transformer (4 layers)", "WSJ only", "transformer_parsing_4layer", "91.3")


def test_csv_has_exact_figures_in_all_columns() -> None:
    lines = list(csv.DictReader(io.StringIO(output("paper", "--format=csv", "--table=4"))))
    assert len(lines) == 12 and {line["table"] for line in lines} == {"4"}
    line = lines[4]
    assert (line["row"], line["training"], line["hparams_set"], line["paper_f1"]) == LINE
    assert line["parameters"] == "100335616" and line["paper_n"] == line["measured_f1"] == ""


def test_text_and_markdown_have_the_chosen_columns() -> None:
    columns = "--columns=row,training,hparams_set,paper_f1"
    assert f"| {' | '.join(LINE)} |\n" in output("paper", "--format=markdown", "--table=4", columns)
    text = output("paper", "--table=4", columns).splitlines()
    row, training, hparams_set, f1 = LINE
    assert text[0].startswith("Table 4: ") and f"{row} {training} {hparams_set} {f1}" in map(
        " ".join, map(str.split, text)
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--table=", "--table is required"),
        ("--table=3,5", "unknown table '5'"),
        ("--format=latex", "flag --format=latex: value should be one of <text|markdown|csv>"),
        ("--vocab_size=-1", "flag --vocab_size=-1: "),
        ("--output_dirs=nowhere", "nowhere: no problem.json there"),
        ("--output_dirs=a,", "the name of a folder is empty"),
        *((f"--sustained_tflops={rate}", f"cannot read '{rate}'") for rate in ("V100", "=14", "V100=x", "V100=inf")),
    ],
)
def test_wrong_flags_are_reported(flags: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in error("paper", flags)
