"""Tests that t2t-evalb prints EVALB's tables, and reports wrong files and flags in one line."""

from __future__ import annotations

from pathlib import Path

from programs import output, run, succeed, write_lines

GOLD = [
    "(TOP (S (NP (PRP She)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NN cat)))) (. .)))",
    "(S (A (X a) (X b)) (X c))",
    "(S (X a))",
    "(S (X a))",
    "(S " + "(X a) " * 41 + ")",
]
TEST = [
    "(S (NP (PRP She)) (VP (VBD saw) (NP (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NNS cat))))) (. .))",
    "(S (X a) (B (C (X b) (X c))))",
    "",
    "(S (X b))",
    GOLD[4],
]
SUMMARY = """\
=== Summary ===

-- All --
Number of sentence        =      5
Number of Error sentence  =      1
Number of Skip  sentence  =      1
Number of Valid sentence  =      3
Bracketing Recall         =  88.89
Bracketing Precision      =  72.73
Bracketing FMeasure       =  80.00
Complete match            =  33.33
Average crossing          =   0.67
No crossing               =  66.67
2 or less crossing        = 100.00
Tagging accuracy          =  98.04

-- len<=40 --
Number of sentence        =      4
"""
TABLE = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
============================================================================
   1    8    0  100.00  85.71     6      6    7      0      7     6    85.71
   2    3    0   50.00  33.33     1      2    3      2      3     3   100.00
   3    1    2    0.00   0.00     0      0    0      0      0     0     0.00
   4    1    1    0.00   0.00     0      0    0      0      0     0     0.00
   5   41    0  100.00 100.00     1      1    1      0     41    41   100.00
============================================================================
                 88.89  72.73      8     9    11      2     51    50    98.04
"""


def trees(folder: Path, gold: list[str] = GOLD, test: list[str] = TEST) -> list[str]:
    """Writes the gold trees and the test trees to two files; returns the flags that name these files."""
    return [f"--gold={write_lines(folder / 'gold', gold)}", f"--test={write_lines(folder / 'test', test)}"]


def test_the_output_has_evalbs_layout(tmp_path: Path) -> None:
    for flag, expected in (("--nosummary_only", TABLE + SUMMARY), ("--summary_only", SUMMARY)):
        result = succeed("evalb", *trees(tmp_path), flag)
        assert result.stdout.startswith(expected) and result.stdout.endswith("Tagging accuracy          =  90.00\n")
        assert result.stderr == "4 : Words unmatch (a|b)\n"
    piped = succeed("evalb", trees(tmp_path)[0], "--test=-", input="".join(f"{tree}\n" for tree in TEST))
    assert piped.stdout.startswith(TABLE + SUMMARY)


def test_without_scored_sentences_the_totals_have_no_brackets(tmp_path: Path) -> None:
    shown = output("evalb", *trees(tmp_path, ["(S (X a))"], [""]))
    assert "=====\n      0     0     0.00\n=== Summary" in shown
    assert shown.count("Bracketing FMeasure       =    nan\n") == 2


def test_a_parameter_file_decides_what_counts(tmp_path: Path) -> None:
    params = write_lines(tmp_path / "x.prm", ["LABELED 0", "EQ_WORD a b", "CUTOFF_LEN 3"])
    lines = output("evalb", *trees(tmp_path), f"--params={params}").splitlines()
    # The parameter file deletes no labels, so TOP and the full stop count. In sentence 1, the gold tree's TOP and S
    # cover the same words. The test tree has no TOP, so 6 of the gold tree's 7 brackets match.
    assert lines[3].split() == ["1", "8", "0", "85.71", "85.71", "6", "7", "7", "0", "8", "7", "87.50"]
    assert lines[lines.index("-- len<=3 --") + 1] == "Number of sentence        =      3"


def test_mistakes_end_in_one_line_after_the_messages_of_evalb(tmp_path: Path) -> None:
    flags = trees(tmp_path, ["(S (X a))"] * 12, ["(S (X b))"] * 12)
    result = run("evalb", *flags)
    assert (result.returncode, result.stdout) == (2, "")
    *messages, error_line = result.stderr.splitlines()
    assert messages == [f"{number} : Words unmatch (a|b)" for number in range(1, 12)]
    assert error_line.startswith(f"t2t-evalb: {tmp_path}/test:12: Words unmatch (a|b): error 12, ")
    assert "Number of Error sentence  =     12\n" in succeed("evalb", *flags, "--max_error=11").stdout
