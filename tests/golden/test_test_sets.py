"""The WMT problems yield newstest2014's published text, and t2t-bleu's scores on it equal those of
sacreBLEU.
"""

import html
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

NEWS = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "wmt_news"
pytestmark = pytest.mark.skipif(not NEWS.exists(), reason="../shared/data/wmt_news does not exist")

SETS = {
    ("wmt14", "de"): "wmt14_official/newstest2014-en-de.2737",
    ("wmt14", "fr"): "wmt14_official/newstest2014-en-fr.3003",
    ("wmt14/full", "de"): "newstest2014.en-de",
    ("wmt14/full", "fr"): "newstest2014.en-fr",
}
SIZES = {
    ("wmt14", "de"): 2737,
    ("wmt14", "fr"): 3003,
    ("wmt14/full", "de"): 3003,
    ("wmt14/full", "fr"): 3003,
}


def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").removesuffix("\n").split("\n")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Writes the test sets into a folder as sacreBLEU stores them, with SGML entities; returns the
    folder.
    """
    home = tmp_path_factory.mktemp("sacrebleu")
    for (name, language), stem in SETS.items():
        stem_path = home / name / f"{name.replace('/', '_')}.en-{language}."
        stem_path.parent.mkdir(parents=True, exist_ok=True)
        sides = {"src": "en", "ref": language, "docid": "en", "genre": "en", "origlang": "en"}
        for field, side in sides.items():
            text = [
                " ".join(html.escape(line, quote=False).split())
                for line in lines(NEWS / f"{stem}.{side}")
            ]
            Path(f"{stem_path}{field}").write_text("\n".join(text) + "\n", encoding="utf-8")
    return home


CODE = """
import json, sys
from sacrebleu import sacrebleu
from t2t_repro import registry
from t2t_repro.bin import t2t_bleu
folder, translation = sys.argv[1:]
sets = {}
for language in ("de", "fr"):
    problem = registry.problem(f"wmt_en{language}")
    for name in ("wmt14", "wmt14/full"):
        sets[f"{name} {language}"] = [[*pair.values()] for pair in problem.test_set(name, folder)]
print(json.dumps(sets), flush=True)  # sacreBLEU may open standard output again
sys.argv = ["sacrebleu", "-t", "wmt14/full", "-l", "en-de", "-i", translation, "-w", "2", "-m", "bleu", "chrf"]
sacrebleu.main()
sys.stdout.flush()
sys.argv = ["t2t-bleu", f"--translation={translation}", "--test_set=wmt14/full", "--language_pair=en-de"]
t2t_bleu.run()
"""  # noqa: E501
"""Prints our test sets, then the scores of sacreBLEU's program, both as JSON, and then those of
t2t-bleu.
"""


@pytest.fixture(scope="module")
def printed(
    home: Path, tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[str, Any], list[dict[str, Any]], str]:
    """Returns what `CODE` prints about a translation of wmt14/full."""
    folder = tmp_path_factory.mktemp("translation")
    reference = lines(NEWS / f"{SETS['wmt14/full', 'de']}.de")
    # The words of every third line are sorted, so that the scores are below 100.
    altered = [
        " ".join(sorted(line.split())) if number % 3 == 0 else line
        for number, line in enumerate(reference)
    ]
    (folder / "x.de").write_text("\n".join(altered) + "\n", encoding="utf-8")
    process = subprocess.run(
        [sys.executable, "-c", CODE, str(folder), str(folder / "x.de")],
        env={**os.environ, "SACREBLEU": str(home)},
        capture_output=True,
        text=True,
        check=True,
    )
    our_sets, _, rest = process.stdout.partition("\n")
    scores, end = json.JSONDecoder().raw_decode(rest)
    return json.loads(our_sets), scores, rest[end:].removeprefix("\n")


def test_test_sets_are_the_published_text(
    printed: tuple[dict[str, Any], list[dict[str, Any]], str],
) -> None:
    for (name, language), stem in SETS.items():
        sides = [lines(NEWS / f"{stem}.{side}") for side in ("en", language)]
        expected = [[" ".join(text.split()) for text in pair] for pair in zip(*sides, strict=True)]
        assert len(expected) == SIZES[name, language]
        assert printed[0][f"{name} {language}"] == expected
        assert any("&" in source for source, _ in expected)


def test_scores_equal_those_of_sacrebleus_program(
    printed: tuple[dict[str, Any], list[dict[str, Any]], str],
) -> None:
    _, sacrebleu_scores, our_lines = printed
    bleu, chrf = (score["score"] for score in sacrebleu_scores)
    assert (
        "ref_len = 62688" in sacrebleu_scores[0]["verbose_score"]
    )  # published scores on this set state this number
    scores = {line.split()[1]: float(line.split()[0]) for line in our_lines.splitlines()}
    assert scores["BLEU"] == bleu
    # sacreBLEU's reference has "&amp;" where our reference has "&". BLEU's tokeniser turns both
    # into "&". chrF has no tokeniser, so our chrF differs slightly.
    assert scores["chrF"] == pytest.approx(chrf, abs=0.02)
    assert "|test:wmt14/full|lang:en-de|" in our_lines
