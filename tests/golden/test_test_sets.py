"""The WMT problems yield newstest2014's published text, and t2t-bleu's scores on it equal those of sacreBLEU."""

from __future__ import annotations

import html
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from programs import command

NEWS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "wmt_news"
pytestmark = pytest.mark.skipif(not NEWS.exists(), reason="../shared/data/wmt_news does not exist")

SETS = {
    ("wmt14", "de"): "wmt14_official/newstest2014-en-de.2737",
    ("wmt14", "fr"): "wmt14_official/newstest2014-en-fr.3003",
    ("wmt14/full", "de"): "newstest2014.en-de",
    ("wmt14/full", "fr"): "newstest2014.en-fr",
}
SIZES = {("wmt14", "de"): 2737, ("wmt14", "fr"): 3003, ("wmt14/full", "de"): 3003, ("wmt14/full", "fr"): 3003}


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the test sets into a folder as sacreBLEU stores them, with SGML entities; returns the folder."""
    home = tmp_path_factory.mktemp("sacrebleu")
    for (name, language), stem in SETS.items():
        stem_path = home / name / f"{name.replace('/', '_')}.en-{language}."
        stem_path.parent.mkdir(parents=True, exist_ok=True)
        sides = {"src": "en", "ref": language, "docid": "en", "genre": "en", "origlang": "en"}
        for field, side in sides.items():
            text = [" ".join(html.escape(line, quote=False).split()) for line in lines(NEWS / f"{stem}.{side}")]
            Path(f"{stem_path}{field}").write_text("\n".join(text) + "\n", encoding="utf-8")
    return home


def test_test_sets_are_the_published_text(home: Path, tmp_path: Path) -> None:
    code = """
import json, sys
from t2t_repro import registry
sets = {}
for language in ("de", "fr"):
    problem = registry.problem(f"wmt_en{language}")
    for name in ("wmt14", "wmt14/full"):
        sets[f"{name} {language}"] = [[*pair.values()] for pair in problem.test_set(name, sys.argv[1])]
print(json.dumps(sets))
"""
    process = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env={**os.environ, "SACREBLEU": str(home)}, capture_output=True,
        check=True,
    )  # fmt: skip
    pairs = json.loads(process.stdout)
    for (name, language), stem in SETS.items():
        sides = [lines(NEWS / f"{stem}.{side}") for side in ("en", language)]
        expected = [[" ".join(text.split()) for text in pair] for pair in zip(*sides, strict=True)]
        assert len(expected) == SIZES[name, language]
        assert pairs[f"{name} {language}"] == expected
        assert any("&" in source for source, _ in expected)


@pytest.mark.parametrize(("name", "language"), [("wmt14/full", "de")])
def test_scores_equal_those_of_sacrebleus_program(home: Path, name: str, language: str, tmp_path: Path) -> None:
    environment = {**os.environ, "SACREBLEU": str(home)}
    translation = tmp_path / "translation"
    reference = lines(NEWS / f"{SETS[name, language]}.{language}")
    # The words of every third line are sorted, so that the scores are below 100.
    altered = [" ".join(sorted(line.split())) if number % 3 == 0 else line for number, line in enumerate(reference)]
    translation.write_text("\n".join(altered) + "\n", encoding="utf-8")
    sacrebleu_run = subprocess.run(
        [sys.executable, "-m", "sacrebleu", "-t", name, "-l", f"en-{language}", "-i", str(translation), "-w", "2",
         "-m", "bleu", "chrf"],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    sacrebleu_scores = json.loads(sacrebleu_run.stdout)
    bleu, chrf = (score["score"] for score in sacrebleu_scores)
    if (name, language) == ("wmt14/full", "de"):  # published scores on this set state 62,688 reference words
        assert "ref_len = 62688" in sacrebleu_scores[0]["verbose_score"]
    pair = f"--language_pair=en-{language}"
    our_run = subprocess.run(
        [*command("bleu"), f"--translation={translation}", f"--test_set={name}", pair],
        env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    scores = {line[8:48].strip(): float(line[:6]) for line in our_run.stdout.splitlines()}
    assert scores["BLEU"] == bleu
    # sacreBLEU's reference has "&amp;" where our reference has "&". BLEU's tokeniser turns both into "&". chrF has no
    # tokeniser, so our chrF differs slightly.
    assert scores["chrF"] == pytest.approx(chrf, abs=0.02)
    assert f"|test:{name}|lang:en-{language}|" in our_run.stdout
