"""Tests that t2t-bleu prints one line per score. test_refusals.py has wrong files and flags."""

from pathlib import Path

import pytest
import sacrebleu
from sacrebleu.dataset import DATASETS
from sacrebleu.metrics.base import Signature

from programs import error, output, succeed, write_lines

GERMAN = "--target_language=de"
REFERENCES = ["Der Hund lief über die Brücke.", "Die Haus-Tür war zu, sagte er."]
TRANSLATIONS = ["Der Hund lief über eine Brücke.", "Die Garten-Tür war zu, sagte sie."]


def test_each_score_is_printed_on_its_own_line(tmp_path: Path) -> None:
    translation = write_lines(tmp_path / "x.de", TRANSLATIONS)
    reference = write_lines(tmp_path / "ref.de", REFERENCES)
    flags = [f"--translation={translation}", f"--reference={reference}", GERMAN]
    lines = output("bleu", *flags, "--all").splitlines()
    assert [line[8:48].rstrip() for line in lines] == [
        "BLEU",
        "BLEU, lower-cased",
        "chrF",
        "chrF, lower-cased",
        "BLEU, the paper's way, as released",
        "BLEU, the paper's way, ASCII punctuation",
    ]
    assert float(lines[0][:6]) == round(sacrebleu.corpus_bleu(TRANSLATIONS, [REFERENCES]).score, 2)
    assert float(lines[2][:6]) == round(sacrebleu.corpus_chrf(TRANSLATIONS, [REFERENCES]).score, 2)
    assert all(line[50:].startswith("nrefs:1|case:") for line in lines)
    assert "-de-" in lines[4] and "-de-" in lines[5]
    short = output("bleu", *flags).splitlines()  # the first result again, without the others
    assert [line.split() for line in short] == [lines[0].split(), lines[2].split()]
    assert max(map(len, short)) < 80
    for language, message in (("", ""), ("th", "BLEU: not computed, because ")):
        assert succeed("bleu", *flags[:2], f"--target_language={language}").stderr[:28] == message


@pytest.fixture
def published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Writes an English-German test set to sacreBLEU's folder, disables downloads, and returns the
    set's name.
    """
    dataset = DATASETS["wmt14/full"]
    home = tmp_path / "sacrebleu"
    monkeypatch.setattr(dataset, "_outdir", str(home))
    monkeypatch.setattr(dataset, "_rawdir", str(home / "raw"))
    monkeypatch.setattr(dataset, "data", ["file:///nowhere/test-nowhere.tgz"])
    home.mkdir()
    escaped = [line.replace("war zu,", "war zu & AT&amp;T,") for line in REFERENCES]
    for field in ("src", "ref", "docid", "genre", "origlang"):
        write_lines(home / f"wmt14_full.en-de.{field}", escaped)
    return "wmt14/full"


def test_a_published_test_set_is_scored_like_a_file(published: str, tmp_path: Path) -> None:
    unescaped = [line.replace("war zu,", "war zu & AT&T,") for line in REFERENCES]
    reference = write_lines(tmp_path / "ref.de", unescaped)
    translation = write_lines(tmp_path / "x.de", TRANSLATIONS)
    with_file = output("bleu", f"--translation={translation}", f"--reference={reference}", GERMAN)
    flags = [f"--translation={translation}", f"--test_set={published}", "--language_pair=en-de"]
    with_set = output("bleu", *flags)
    assert with_set.replace("|test:wmt14/full|lang:en-de", "") == with_file
    signature = str(Signature({"num_refs": 1, "test_set": published, "langpair": "en-de"}))
    assert all(signature.partition("|version")[0] in line for line in with_set.splitlines())
    piped = ["--translation=-", *flags[1:]]
    assert (
        succeed("bleu", *piped, input="".join(f"{line}\n" for line in TRANSLATIONS)).stdout
        == with_set
    )


def test_segments_of_sgml_files_are_paired_by_their_ids(tmp_path: Path) -> None:
    segments = [f'<seg id="{number}">{line}</seg>' for number, line in enumerate(REFERENCES)]
    translation = write_lines(tmp_path / "x.sgm", segments)
    reference = write_lines(tmp_path / "y.xml", segments[::-1])
    assert output(
        "bleu", f"--translation={translation}", f"--reference={reference}", GERMAN
    ).startswith("100.00  BLEU")


def test_test_sets_are_listed_by_language_pair() -> None:
    names = output("bleu", "--test_set=list", "--language_pair=en-fr").splitlines()
    assert {"wmt14", "wmt14/full", "mtnt2019"} <= set(names) and "wmt16" not in names
    assert "'EN-FR'" in error("bleu", "--test_set=list", "--language_pair=EN-FR")


def test_metrics_that_a_language_lacks_are_named_and_others_are_not(tmp_path: Path) -> None:
    text = write_lines(tmp_path / "x", ["一个人", "两只狗"])
    flags = [f"--translation={text}", f"--reference={text}"]
    assert output("bleu", *flags, "--metrics=chrf").split()[:2] == ["100.00", "chrF"]
    assert succeed("bleu", *flags, "--metrics=ter,chrf").stderr.startswith("TER: not computed")
    # With one of three characters wrong in one of two lines, a sixth of the words is wrong.
    other = write_lines(tmp_path / "y", ["一个人", "两只猫"])
    score = output(
        "bleu", f"--translation={other}", flags[1], "--metrics=ter", "--target_language=zh"
    )
    assert score.split()[0] == "16.67"
