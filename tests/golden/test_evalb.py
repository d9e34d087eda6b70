"""Our bracketing scores against the output files that EVALB's authors published with their samples."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from t2t_repro.bin import t2t_evalb
from t2t_repro.parsing import evalb
from t2t_repro.parsing.evalb import Sentence, Status
from t2t_repro.parsing.evalb_parameters import COLLINS, Parameters, read_parameters

EVALB = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "evalb"
pytestmark = pytest.mark.skipif(not EVALB.exists(), reason="../shared/data/evalb is not there")

# The lengths that bug.rsl-old names count full stops: sample.prm does, COLLINS.prm does not.
SAMPLES = [
    ("sample", "sample/sample.prm", "sample/sample.rsl"),
    ("bug", "new.prm", "bug/bug.rsl-new"),
    ("bug", "sample/sample.prm", "bug/bug.rsl-old"),
]


def scored(name: str, parameters: str) -> tuple[Parameters, list[Sentence]]:
    read = read_parameters(str(EVALB / parameters))
    gold, test = (str(EVALB / name / f"{name}.{ending}") for ending in ("gld", "tst"))
    return read, list(evalb.score_files(gold, test, read))


def figures(lines: list[str]) -> dict[str, str]:
    """What follows "=" by what comes before."""
    return dict(re.split(" *= *", line) for line in lines if "=" in line)


@pytest.mark.parametrize(("name", "parameters", "output"), SAMPLES)
def test_rows(name: str, parameters: str, output: str) -> None:
    _, sentences = scored(name, parameters)
    published = [
        line.split() for line in (EVALB / output).read_text().splitlines() if re.match(r" *\d+ +\d+ +\d ", line)
    ]
    assert len(published) == len(sentences)
    for row, sentence in zip(published, sentences, strict=True):
        ours = t2t_evalb.row(sentence).split()
        if name == "sample" and sentence.status != Status.OK:
            # The version that wrote this file gave the words of sentences not scored; since 2006 it is 0.
            assert (row[9], ours[9]) == ("4", "0")
            row[9] = "0"
        assert ours == row


@pytest.mark.parametrize(("name", "parameters", "output"), SAMPLES)
def test_summaries(name: str, parameters: str, output: str) -> None:
    read, sentences = scored(name, parameters)
    short = [sentence for sentence in sentences if sentence.length <= read.cutoff_len]
    _, everything, up_to_40 = re.split("-- .* --\n", (EVALB / output).read_text())
    f_measures = {"sample": ("89.12", "83.20"), "bug": ("", "")}[name]
    for some, published, f_measure in zip((sentences, short), (everything, up_to_40), f_measures, strict=True):
        expected = figures(published.splitlines())
        if f_measure:  # sample.rsl is from before F-measures were printed
            expected["Bracketing FMeasure"] = f_measure
        assert len(expected) == 12
        assert figures(t2t_evalb.summary_lines(evalb.summarise(some)).splitlines()) == expected


@pytest.mark.parametrize(("name", "parameters", "output"), SAMPLES)
def test_totals(name: str, parameters: str, output: str) -> None:
    _, sentences = scored(name, parameters)
    published = re.split("={70,}\n", (EVALB / output).read_text())[2].splitlines()[0].split()
    ours = t2t_evalb.totals(evalb.summarise(sentences)).split()
    if len(ours) > 3:
        # Neither file's total of crossings is the sum of its column; that of the version of 2006 is.
        assert ours.pop(5) == str(sum(sentence.crossing for sentence in sentences))
        published.pop(5)
    assert ours == published


def test_messages() -> None:
    _, sentences = scored("bug", "sample/sample.prm")
    published = re.findall(r"(\d+) : (Length unmatch .*)", (EVALB / "bug/bug.rsl-old").read_text())
    assert [(str(sentence.number), sentence.message) for sentence in sentences] == published
    assert len(published) == 5


def test_parameters_by_default() -> None:
    assert read_parameters(str(EVALB / "COLLINS.prm")) == COLLINS
