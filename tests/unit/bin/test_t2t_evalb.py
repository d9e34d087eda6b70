"""Tests that t2t-evalb prints EVALB's tables, and reports wrong files and flags in one line."""

from pathlib import Path

from programs import output, run, succeed, write_lines

GOLD = [
    (
        "(TOP (S (NP (PRP She)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NN "
        "cat)))) (. .)))"
    ),
    "(S (A (X a) (X b)) (X c))",
    "(S (X a))",
    "(S (X a))",
    "(S " + "(X a) " * 41 + ")",
]
TEST = [
    (
        "(S (NP (PRP She)) (VP (VBD saw) (NP (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NNS "
        "cat))))) (. .))"
    ),
    "(S (X a) (B (C (X b) (X c))))",
    "",
    "(S (X b))",
    GOLD[4],
]


def trees(folder: Path, gold: list[str] = GOLD, test: list[str] = TEST) -> list[str]:
    """Writes the gold trees and the test trees to two files; returns the flags that name these
    files.
    """
    return [
        f"--gold={write_lines(folder / 'gold', gold)}",
        f"--test={write_lines(folder / 'test', test)}",
    ]


def test_the_summary_ends_the_table_and_trees_may_come_from_standard_input(tmp_path: Path) -> None:
    """The table is tested in tests/golden."""
    gold, test = trees(tmp_path)
    result = succeed("evalb", gold, test)
    assert result.stderr == "4 : Words unmatch (a|b)\n"
    table, heading, summary = result.stdout.partition("=== Summary ===\n")
    assert len(table.splitlines()) == 3 + len(GOLD) + 2
    assert succeed("evalb", gold, test, "--summary_only").stdout == heading + summary
    assert (
        succeed("evalb", gold, "--test=-", input="".join(f"{tree}\n" for tree in TEST)).stdout
        == result.stdout
    )


def test_without_scored_sentences_the_totals_have_no_brackets(tmp_path: Path) -> None:
    shown = output("evalb", *trees(tmp_path, ["(S (X a))"], [""]))
    assert "=====\n      0     0     0.00\n=== Summary" in shown
    assert shown.count("Bracketing FMeasure       =    nan\n") == 2


def test_mistakes_end_in_one_line_after_the_messages_of_evalb(tmp_path: Path) -> None:
    flags = trees(tmp_path, ["(S (X a))"] * 12, ["(S (X b))"] * 12)
    result = run("evalb", *flags)
    assert (result.returncode, result.stdout) == (2, "")
    *messages, error_line = result.stderr.splitlines()
    assert messages == [f"{number} : Words unmatch (a|b)" for number in range(1, 12)]
    assert error_line.startswith(f"t2t-evalb: {tmp_path}/test:12: Words unmatch (a|b): error 12, ")
    assert (
        "Number of Error sentence  =     12\n" in succeed("evalb", *flags, "--max_error=11").stdout
    )
