"""t2t-evalb prints EVALB's tables, and reports wrong files and flags in one line."""

from __future__ import annotations

import copy
import gzip
import subprocess
import sys
from pathlib import Path

import pytest

from t2t_repro.bin import program, t2t_evalb

GOLD = [
    "(TOP (S (NP (PRP She)) (VP (VBD saw) (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NN cat)))) (. .)))",
    "(S (A (X a) (X b)) (X c))",
    "(S (X a))",
    "(S (X a))",
    "(S " + "(X a) " * 41 + ")",
]
TEST = [
    "(S (NP (PRP She)) (VP (VBD saw) (NP (NP (DT the) (NN man)) (PP (IN with) (NP (DT a) (NNS cat))))) (. .))",
    "(S (X a) (B (X b) (X c)))",
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
Bracketing Precision      =  80.00
Bracketing FMeasure       =  84.21
Complete match            =  33.33
Average crossing          =   0.33
No crossing               =  66.67
2 or less crossing        = 100.00
Tagging accuracy          =  98.04

-- len<=40 --
Number of sentence        =      4
Number of Error sentence  =      1
Number of Skip  sentence  =      1
Number of Valid sentence  =      2
Bracketing Recall         =  87.50
Bracketing Precision      =  77.78
Bracketing FMeasure       =  82.35
Complete match            =   0.00
Average crossing          =   0.50
No crossing               =  50.00
2 or less crossing        = 100.00
Tagging accuracy          =  90.00
"""
TABLE = """\
  Sent.                        Matched  Bracket   Cross        Correct Tag
 ID  Len.  Stat. Recal  Prec.  Bracket gold test Bracket Words  Tags Accracy
============================================================================
   1    8    0  100.00  85.71     6      6    7      0      7     6    85.71
   2    3    0   50.00  50.00     1      2    2      1      3     3   100.00
   3    1    2    0.00   0.00     0      0    0      0      0     0     0.00
   4    1    1    0.00   0.00     0      0    0      0      0     0     0.00
   5   41    0  100.00 100.00     1      1    1      0     41    41   100.00
============================================================================
                 88.89  80.00      8     9    10      1     51    50    98.04
"""


def write(path: Path, lines: list[str]) -> str:
    data = "".join(line + "\n" for line in lines).encode("utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def trees(folder: Path, gold: list[str] = GOLD, test: list[str] = TEST) -> list[str]:
    """Writes the two files and returns their flags."""
    return [f"--gold={write(folder / 'gold', gold)}", f"--test={write(folder / 'test', test)}"]


def evalb(*arguments: str) -> int:
    """Runs the program in this process with a copy of its flags, because `program.run` adds to them."""
    return program.run(t2t_evalb.main, copy.deepcopy(t2t_evalb.FLAGS), t2t_evalb.__doc__, ["t2t_evalb.py", *arguments])


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the one line on standard error of a run that must end with code 2 and print nothing else."""
    assert evalb(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("t2t-evalb: ")
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("t2t-evalb: ").rstrip("\n")


@pytest.mark.parametrize(
    ("flag", "expected"),
    [((), TABLE + SUMMARY), (("--summary_only",), SUMMARY), (("--nosummary_only",), TABLE + SUMMARY)],
)
def test_the_output_has_evalbs_layout(
    flag: tuple[str, ...], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evalb(*trees(tmp_path), *flag) == 0
    captured = capsys.readouterr()
    assert captured.out == expected
    assert captured.err == "4 : Words unmatch (a|b)\n"


def test_without_scored_sentences_the_totals_have_no_brackets(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evalb(*trees(tmp_path, ["(S (X a))"], [""])) == 0
    out = capsys.readouterr().out
    assert "=====\n      0     0     0.00\n=== Summary" in out
    assert out.count("Bracketing FMeasure       =    nan\n") == 2


def test_a_parameter_file_decides_what_counts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = write(tmp_path / "x.prm", ["LABELED 0", "EQ_WORD a b", "CUTOFF_LEN 3"])
    assert evalb(*trees(tmp_path), f"--params={params}") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    # TOP and the full stop now count, and the test tree has only one of the two brackets with TOP's span.
    assert lines[3].split() == ["1", "8", "0", "85.71", "85.71", "6", "7", "7", "0", "8", "7", "87.50"]
    assert lines[6].split() == ["4", "1", "0", "100.00", "100.00", "1", "1", "1", "0", "1", "1", "100.00"]
    assert lines[lines.index("-- len<=3 --") + 1] == "Number of sentence        =      3"


def test_compressed_files_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gold, test = write(tmp_path / "gold.gz", GOLD), write(tmp_path / "test.gz", TEST)
    assert evalb(f"--gold={gold}", f"--test={test}") == 0
    assert capsys.readouterr().out == TABLE + SUMMARY


def test_too_many_errors_end_the_run_without_a_result(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = trees(tmp_path, ["(S (X a))"] * 12, ["(S (X b))"] * 12)
    assert evalb(*flags) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.splitlines()
    assert lines[:11] == [f"{number} : Words unmatch (a|b)" for number in range(1, 12)]
    assert lines[11].startswith(f"t2t-evalb: {tmp_path}/test:12: Words unmatch (a|b): error 12, ")
    assert len(lines) == 12
    assert evalb(*flags, "--max_error=11") == 0
    assert "Number of Error sentence  =     12\n" in capsys.readouterr().out


def test_a_negative_max_error_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, *trees(tmp_path), "--max_error=-1").startswith("flag --max_error=-1: ")


def test_different_line_counts_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    message = failure(capsys, *trees(tmp_path, GOLD, TEST[:-1]))
    assert f"{tmp_path}/gold has 5 lines, {tmp_path}/test has 4;" in message


def test_a_gold_line_that_is_no_tree_is_reported_before_any_row(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    message = failure(capsys, *trees(tmp_path, [*GOLD, "(S (X a)"], [*TEST, "(S (X a))"]))
    assert message.startswith(f"{tmp_path}/gold:6: a tree starts here")


def test_a_wrong_parameter_file_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    params = write(tmp_path / "x.prm", ["LABELED 1", "MAX_ERORR 10"])
    message = failure(capsys, *trees(tmp_path), f"--params={params}")
    assert message == f"{params}:2: unknown EVALB parameter 'MAX_ERORR'; did you mean 'MAX_ERROR'?"
    assert failure(capsys, *trees(tmp_path), f"--params={tmp_path}/no.prm") == f"{tmp_path}/no.prm: no such file"


@pytest.mark.parametrize("missing", ["gold", "test"])
def test_a_missing_flag_or_file_is_reported(missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = [flag for flag in trees(tmp_path) if not flag.startswith(f"--{missing}=")]
    assert failure(capsys, *flags).startswith(f"--{missing} is required: file of ")
    absent_path = tmp_path / "absent"
    assert failure(capsys, *flags, f"--{missing}={absent_path}") == f"{absent_path}: no such file"


def test_the_program_does_not_load_tensorflow(tmp_path: Path) -> None:
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('tensorflow' in sys.modules, file=sys.stderr))\n"
        "from t2t_repro.bin.t2t_evalb import run\n"
        "sys.argv[0] = 't2t-evalb'\n"
        "run()\n"
    )
    command = [sys.executable, "-c", code, *trees(tmp_path, GOLD, GOLD)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "False\n")
    assert "Complete match            = 100.00\n" in done.stdout
    assert subprocess.run(command[:-1], cwd=tmp_path, capture_output=True, check=False).returncode == 2
