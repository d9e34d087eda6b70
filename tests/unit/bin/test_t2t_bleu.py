"""What t2t-bleu prints, and how it ends when its files are wrong."""

from __future__ import annotations

import copy
import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu

from t2t_repro.bin import program, t2t_bleu

REFERENCES = ["Der Hund lief über die Brücke.", "Die Haus-Tür war zu, sagte er."]
TRANSLATIONS = ["Der Hund lief über eine Brücke.", "Die Garten-Tür war zu, sagte sie."]


def write(path: Path, lines: list[str]) -> str:
    data = "".join(line + "\n" for line in lines).encode("utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def score(*arguments: str) -> int:
    """Runs the program in this process; the flags are copied, since `program.run` adds to them."""
    return program.run(t2t_bleu.main, copy.deepcopy(t2t_bleu.FLAGS), t2t_bleu.__doc__, ["t2t_bleu.py", *arguments])


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line on standard error of a run that must end with code 2 and print nothing else."""
    assert score(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("t2t-bleu: ")
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("t2t-bleu: ").rstrip("\n")


def test_prints_a_line_a_score(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translation, reference = write(tmp_path / "x.de", TRANSLATIONS), write(tmp_path / "ref.de", REFERENCES)
    assert score(f"--translation={translation}", f"--reference={reference}") == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    lines = captured.out.splitlines()
    assert [line[8:29].rstrip() for line in lines] == [
        "BLEU",
        "BLEU, lower-cased",
        "chrF",
        "chrF, lower-cased",
        "BLEU, the paper's way",
    ]
    assert float(lines[0][:6]) == round(sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]).score, 2)
    assert float(lines[2][:6]) == round(sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES]).score, 2)
    assert all(line[31:].startswith("nrefs:1|case:") for line in lines)
    assert "-de-" in lines[4]


def test_language(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.fr", ["Il n'y a rien."])
    assert score(f"--translation={path}", f"--reference={path}", "--language=fr") == 0
    assert "-fr-" in capsys.readouterr().out.splitlines()[4]
    message = failure(capsys, f"--translation={path}", f"--reference={path}", "--language=french")
    assert message.startswith("no Moses rules for language 'french'; there are: as, ")


@pytest.mark.parametrize("name", ["x.de", "x.de.gz"])
def test_only_line_feeds_end_lines(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    strange = ["Ein\u0085Satz mit\u2028vielen\u2029Zeichen\x0b darin\x1c hier\r.", "Ende gut, alles ist gut."]
    translation = write(tmp_path / name, strange)
    reference = write(tmp_path / "ref.de", strange)
    assert score(f"--translation={translation}", f"--reference={reference}") == 0
    assert [line[:6] for line in capsys.readouterr().out.splitlines()] == ["100.00"] * 5


def test_line_counts_differ(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translation, reference = write(tmp_path / "x.de", TRANSLATIONS), write(tmp_path / "ref.de", [*REFERENCES, "Noch"])
    message = failure(capsys, f"--translation={translation}", f"--reference={reference}")
    assert f"{translation} has 2 lines, {reference} has 3;" in message


@pytest.mark.parametrize("empty", ["translation", "reference"])
def test_empty_file(empty: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = {name: write(tmp_path / name, [] if name == empty else REFERENCES) for name in ("translation", "reference")}
    message = failure(capsys, *(f"--{name}={path}" for name, path in paths.items()))
    assert message.startswith(f"{paths[empty]}: empty")


@pytest.mark.parametrize("missing", ["translation", "reference"])
def test_missing_flag_or_file(missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = {name: write(tmp_path / name, REFERENCES) for name in ("translation", "reference")}
    Path(paths.pop(missing)).unlink()
    given = [f"--{name}={path}" for name, path in paths.items()]
    assert failure(capsys, *given).startswith(f"--{missing} is required")
    absent = tmp_path / missing
    assert failure(capsys, *given, f"--{missing}={absent}") == f"{absent}: no such file"


def test_not_utf8(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latin = tmp_path / "latin.de"
    latin.write_bytes("Hund\nBrücke\n".encode("latin-1"))
    reference = write(tmp_path / "ref.de", REFERENCES)
    assert failure(capsys, f"--translation={latin}", f"--reference={reference}").startswith(f"{latin}:2: not UTF-8")


def test_run_as_a_program_without_tensorflow(tmp_path: Path) -> None:
    path = write(tmp_path / "x.de", REFERENCES)
    code = (
        "import atexit, sys\n"
        "atexit.register(lambda: print('tensorflow' in sys.modules, file=sys.stderr))\n"
        "from t2t_repro.bin.t2t_bleu import run\n"
        "sys.argv[0] = 't2t-bleu'\n"
        "run()\n"
    )
    command = [sys.executable, "-c", code, f"--translation={path}", f"--reference={path}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "False\n")
    assert done.stdout.startswith("100.00  BLEU  ")
    assert subprocess.run(command[:-1], cwd=tmp_path, capture_output=True, check=False).returncode == 2
