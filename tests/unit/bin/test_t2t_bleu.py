"""t2t-bleu prints one line per score, and reports wrong files and flags in one line."""

from __future__ import annotations

import copy
import gzip
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
from sacrebleu.dataset import DATASETS
from sacrebleu.metrics.base import Signature

from t2t_repro.bin import program, t2t_bleu

REFERENCES = ["Der Hund lief über die Brücke.", "Die Haus-Tür war zu, sagte er."]
TRANSLATIONS = ["Der Hund lief über eine Brücke.", "Die Garten-Tür war zu, sagte sie."]


def write(path: Path, lines: list[str]) -> str:
    data = "".join(line + "\n" for line in lines).encode("utf-8")
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return str(path)


def score(*arguments: str) -> int:
    """Runs the program in this process with a copy of its flags, because `program.run` adds to them."""
    return program.run(t2t_bleu.main, copy.deepcopy(t2t_bleu.FLAGS), t2t_bleu.__doc__, ["t2t_bleu.py", *arguments])


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the one line on standard error of a run that must end with code 2 and print nothing else."""
    assert score(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("t2t-bleu: ")
    assert captured.err.endswith("\n")
    assert captured.err.count("\n") == 1
    return captured.err.removeprefix("t2t-bleu: ").rstrip("\n")


def test_each_score_is_printed_on_its_own_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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


def test_the_language_selects_the_moses_rules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "x.fr", ["Il n'y a rien."])
    assert score(f"--translation={path}", f"--reference={path}", "--language=fr") == 0
    assert "-fr-" in capsys.readouterr().out.splitlines()[4]
    message = failure(capsys, f"--translation={path}", f"--reference={path}", "--language=french")
    assert message.startswith("no Moses rules for language 'french'; there are: as, ")


@pytest.mark.parametrize("name", ["x.de", "x.de.gz"])
def test_only_line_feeds_end_lines(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = ["Ein\u0085Satz mit\u2028vielen\u2029Zeichen\x0b darin\x1c hier\r.", "Ende gut, alles ist gut."]
    translation = write(tmp_path / name, lines)
    reference = write(tmp_path / "ref.de", lines)
    assert score(f"--translation={translation}", f"--reference={reference}") == 0
    assert [line[:6] for line in capsys.readouterr().out.splitlines()] == ["100.00"] * 5


def test_different_line_counts_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translation, reference = write(tmp_path / "x.de", TRANSLATIONS), write(tmp_path / "ref.de", [*REFERENCES, "Noch"])
    message = failure(capsys, f"--translation={translation}", f"--reference={reference}")
    assert f"{translation} has 2 lines, {reference} has 3;" in message


@pytest.mark.parametrize("empty", ["translation", "reference"])
def test_an_empty_file_is_reported(empty: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = {name: write(tmp_path / name, [] if name == empty else REFERENCES) for name in ("translation", "reference")}
    message = failure(capsys, *(f"--{name}={path}" for name, path in paths.items()))
    assert message.startswith(f"{paths[empty]}: empty")


@pytest.mark.parametrize("missing", ["translation", "reference"])
def test_a_missing_flag_or_file_is_reported(missing: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    paths = {name: write(tmp_path / name, REFERENCES) for name in ("translation", "reference")}
    Path(paths.pop(missing)).unlink()
    flags = [f"--{name}={path}" for name, path in paths.items()]
    assert failure(capsys, *flags).startswith(f"--{missing} is required")
    absent_path = tmp_path / missing
    assert failure(capsys, *flags, f"--{missing}={absent_path}") == f"{absent_path}: no such file"


def test_a_file_that_is_not_utf8_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    latin = tmp_path / "latin.de"
    latin.write_bytes("Hund\nBrücke\n".encode("latin-1"))
    reference = write(tmp_path / "ref.de", REFERENCES)
    assert failure(capsys, f"--translation={latin}", f"--reference={reference}").startswith(f"{latin}:2: not UTF-8")


def test_the_program_does_not_load_tensorflow(tmp_path: Path) -> None:
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


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Writes a small wmt14/full en-de into sacreBLEU's folder in its own format, and disables downloads."""
    dataset, home = DATASETS["wmt14/full"], tmp_path / "sacrebleu"
    monkeypatch.setattr(dataset, "_outdir", str(home))
    monkeypatch.setattr(dataset, "_rawdir", str(home / "raw"))
    monkeypatch.setattr(dataset, "data", ["file:///nowhere/test-nowhere.tgz"])
    home.mkdir()
    escaped = [line.replace("war zu,", "war zu & AT&amp;T,") for line in REFERENCES]
    for field in ("src", "ref", "docid", "genre", "origlang"):
        write(home / f"wmt14_full.en-de.{field}", escaped)
    return "wmt14/full"


def test_a_published_test_set_is_scored_like_a_file(
    published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    unescaped = [line.replace("war zu,", "war zu & AT&T,") for line in REFERENCES]
    reference, translation = write(tmp_path / "ref.de", unescaped), write(tmp_path / "x.de", TRANSLATIONS)
    assert score(f"--translation={translation}", f"--reference={reference}") == 0
    with_file = capsys.readouterr().out
    assert score(f"--translation={translation}", f"--test_set={published}") == 0
    with_set = capsys.readouterr().out
    assert with_set.replace("|test:wmt14/full|lang:en-de", "") == with_file
    signature = str(Signature({"num_refs": 1, "test_set": published, "langpair": "en-de"}))
    assert all(signature.partition("|version")[0] in line for line in with_set.splitlines())
    assert score(f"--translation={translation}", f"--test_set={published}", "--language_pair=en-de") == 0
    assert capsys.readouterr().out == with_set


def test_another_line_count_than_the_test_sets_is_reported(
    published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    translation = write(tmp_path / "x.de", TRANSLATIONS[:1])
    message = failure(capsys, f"--translation={translation}", f"--test_set={published}")
    assert f"{translation} has 1 lines, test set wmt14/full (en-de) has 2;" in message


def test_the_language_must_be_the_pairs_target(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    translation = write(tmp_path / "x.fr", ["Il n'y a rien."])
    flags = [f"--translation={translation}", "--language_pair=en-fr"]
    message = failure(capsys, *flags, "--test_set=wmt14/full", "--language=de")
    assert message == "flags language=de, language_pair=en-fr: --language must be the target of --language_pair"
    message = failure(capsys, *flags, f"--reference={translation}")
    assert message.endswith(": --language_pair is for --test_set; give both or neither")
    message = failure(capsys, flags[0], "--test_set=wmt14/full", "--language=es")
    assert "wmt14/full has no language pair 'en-es'" in message


def test_test_sets_are_listed_and_the_nearest_name_is_offered(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert score("--test_set=list", "--language_pair=en-fr") == 0
    listed = capsys.readouterr().out.splitlines()
    assert {"wmt14", "wmt14/full", "mtnt2019"} <= set(listed) and "wmt16" not in listed
    translation = write(tmp_path / "x.de", TRANSLATIONS)
    message = failure(capsys, f"--translation={translation}", "--test_set=wmt14full")
    assert message == "unknown test set 'wmt14full'; did you mean 'wmt14/full'?"


def test_reference_and_test_set_exclude_each_other(
    published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "x.de", TRANSLATIONS)
    flags = (f"--translation={path}", f"--reference={path}", f"--test_set={published}")
    assert failure(capsys, *flags) == f"flags reference={path}, test_set={published}: give one of them"
    assert failure(capsys, flags[0]).startswith("--reference is required: ")


def test_an_unavailable_test_set_is_reported(
    published: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sacrebleu" / "wmt14_full.en-de.ref").unlink()
    translation = write(tmp_path / "x.de", TRANSLATIONS)
    message = failure(capsys, f"--translation={translation}", f"--test_set={published}")
    assert message.startswith("cannot download file:///nowhere/test-nowhere.tgz (")
    assert "put into" in message and "$SACREBLEU" in message


def test_a_test_set_with_several_references_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    home, dataset = tmp_path / "sacrebleu", DATASETS["wmt14/full"]
    home.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dataset, "_outdir", str(home))
        patch.setattr(dataset, "langpairs", {"en-de": ["src.sgm", "ref1.sgm", "ref2.sgm"]})
        for field in ("src", "ref-0", "ref-1", "docid", "genre", "origlang"):
            write(home / f"wmt14_full.en-de.{field}", REFERENCES)
        message = failure(capsys, f"--translation={write(tmp_path / 'x.de', TRANSLATIONS)}", "--test_set=wmt14/full")
    assert "has 2 references per line" in message
