"""Our bracketing scores equal EVALB's: those that its authors published, and those of malformed
trees.
"""

import re
from pathlib import Path

import pytest

from programs import succeed
from t2t_repro.bin import t2t_evalb
from t2t_repro.parsing import evalb
from t2t_repro.parsing.evalb import Sentence, Status
from t2t_repro.parsing.evalb_parameters import COLLINS, Parameters, read_parameters

EVALB = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "evalb"
MALFORMED = Path(__file__).with_name("data") / "evalb" / "malformed"
needs_samples = pytest.mark.skipif(not EVALB.exists(), reason="../shared/data/evalb does not exist")

# (name of the sample trees, EVALB's parameter file, EVALB's output file). bug.rsl-old counts full
# stops as words, so its parameter file is sample.prm, the only one that keeps full stops.
SAMPLES = [
    ("sample", "sample/sample.prm", "sample/sample.rsl"),
    ("bug", "new.prm", "bug/bug.rsl-new"),
    ("bug", "sample/sample.prm", "bug/bug.rsl-old"),
]


def scored(name: str, parameters: Parameters) -> list[Sentence]:
    gold, test = (str(EVALB / name / f"{name}.{suffix}") for suffix in ("gld", "tst"))
    return list(evalb.score_files(gold, test, parameters))


def figures(lines: list[str]) -> dict[str, str]:
    """Returns the figures in lines such as "Bracketing Recall = 87.76" as {"Bracketing Recall":
    "87.76"}.
    """
    return dict(re.split(" *= *", line) for line in lines if "=" in line)


@needs_samples
@pytest.mark.parametrize(("name", "parameter_file", "output"), SAMPLES)
def test_rows_totals_and_summaries_are_the_published_ones(
    name: str, parameter_file: str, output: str
) -> None:
    parameters = read_parameters(str(EVALB / parameter_file))
    text = (EVALB / output).read_text()
    sentences = scored(name, parameters)
    published = [line.split() for line in text.splitlines() if re.match(r" *\d+ +\d+ +\d ", line)]
    for row, sentence in zip(published, sentences, strict=True):
        cells = t2t_evalb.row(sentence).split()
        if name == "sample" and sentence.status != Status.OK:
            # In the column of words, sample.rsl has 4 for sentences without scores. We print 0, as
            # EVALB of 2006 does.
            assert (row[9], cells[9]) == ("4", "0")
            row[9] = "0"
        assert cells == row

    total = re.split("={70,}\n", text)[2].splitlines()[0].split()
    cells = t2t_evalb.totals(evalb.summarise(sentences)).split()
    if len(cells) > 3:
        # The published total of crossing brackets is not the sum over the sentences. We print the
        # sum, as EVALB of 2006 does.
        assert cells.pop(5) == str(sum(sentence.crossing for sentence in sentences))
        total.pop(5)
    assert cells == total

    short = [sentence for sentence in sentences if sentence.length <= parameters.cutoff_len]
    _, everything, up_to_40 = re.split("-- .* --\n", text)
    f_measures = {"sample": ("89.12", "83.20"), "bug": ("", "")}[name]
    for subset, summary, f_measure in zip(
        (sentences, short), (everything, up_to_40), f_measures, strict=True
    ):
        expected = figures(summary.splitlines())
        if f_measure:  # sample.rsl was written by a version of EVALB that printed no F-measure
            expected["Bracketing FMeasure"] = f_measure
        assert len(expected) == 12
        assert figures(t2t_evalb.summary_lines(evalb.summarise(subset)).splitlines()) == expected


@needs_samples
def test_messages_are_the_published_ones() -> None:
    sentences = scored("bug", read_parameters(str(EVALB / "sample/sample.prm")))
    published = re.findall(r"(\d+) : (Length unmatch .*)", (EVALB / "bug/bug.rsl-old").read_text())
    assert [(str(sentence.number), *sentence.messages) for sentence in sentences] == published
    assert len(published) == 5


@needs_samples
def test_the_default_parameters_are_collins_prm() -> None:
    assert read_parameters(str(EVALB / "COLLINS.prm")) == COLLINS


def test_malformed_trees_and_parameters_are_read_as_by_evalb() -> None:
    flags = [
        f"--{flag}={MALFORMED}.{suffix}"
        for flag, suffix in (("params", "prm"), ("gold", "gld"), ("test", "tst"))
    ]
    result = succeed("evalb", *flags)
    assert result.stdout == Path(f"{MALFORMED}.rsl").read_text()
    ours, evalbs = (
        re.findall(r"\d+ : .*", text)
        for text in (result.stderr, Path(f"{MALFORMED}.err").read_text())
    )
    assert ours == evalbs and len(ours) == 21
