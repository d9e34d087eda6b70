"""Tests the flags of t2t-paper and its three formats."""

import csv
import io

from programs import output

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
