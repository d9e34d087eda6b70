"""t2t-reproduce: which set a row is, which figure of the paper stands beside which score, and errors in one line."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.bin import program, t2t_reproduce
from t2t_repro.bin.t2t_reproduce import paper_figures, report, set_of
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.metrics.score import Score
from t2t_repro.model_folder import ModelFolder, Origin
from t2t_repro.paper.results import Results
from t2t_repro.paper.rows import ROWS

FIGURES = {
    ("transformer_base", "wmt_ende"): {"steps": 100_000, "perplexity": 4.92, "wmt13": 25.8, "wmt14/full": 27.3},
    ("transformer_big", "wmt_ende"): {"steps": 300_000, "perplexity": 4.33, "wmt13": 26.4, "wmt14/full": 28.4},
    ("transformer_base", "wmt_enfr"): {"steps": 100_000, "wmt14/full": 38.1},
    ("transformer_big_enfr", "wmt_enfr"): {"steps": 300_000, "wmt14/full": 41.8},
    ("transformer_parsing_4layer", "wsj_parsing"): {"test": 91.3},
    ("transformer_parsing_4layer_semi", "wsj_parsing_semi"): {"test": 92.7},
} | {
    (row.hparams_set, "wmt_ende"): {"steps": 100_000, "perplexity": row.perplexity, "wmt13": row.bleu_dev}
    for row in ROWS
    if row.row.startswith("(")
}
"""All that the paper prints of its own models, by set and problem."""
BLEU, PAPERS = "nrefs:1|tok:13a", "nrefs:1|tok:sacremoses"
Make = Callable[..., ModelFolder]


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The last line on standard error of a run that must end with code 2."""
    flags = copy.deepcopy(t2t_reproduce.FLAGS)
    assert program.run(t2t_reproduce.main, flags, t2t_reproduce.__doc__, ["t2t_reproduce.py", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("t2t-reproduce: ")
    return captured.err.removeprefix("t2t-reproduce: ").rstrip("\n")


@pytest.fixture
def make(tmp_path: Path, tiny_vocabulary: Vocabulary) -> Make:
    """Makes a model folder with an average of so many checkpoints."""

    def make(problem: str, hparams: HParams, count: int) -> ModelFolder:
        origin = Origin(problem, {}, "vocab.model", "0123456789ab", 7)
        folder = ModelFolder.create(tmp_path / "model", hparams, tiny_vocabulary, origin)
        (folder.path / "averaged").mkdir()
        average = tf.train.Checkpoint(averaged=tf.Variable(count, dtype=tf.int64))
        average.write(str(folder.path / "averaged" / "model.ckpt-100"))
        return folder

    return make


def cells(text: str) -> dict[str, list[str]]:
    """The lines of the report's table without its head, by their first cells."""
    rows = [line.replace("\\|", "/").strip("|").split("|") for line in text.split("\n") if line.startswith("|")]
    return {row[0].strip(): [cell.strip() for cell in row[1:]] for row in rows[2:]}


def test_the_papers_figures_of_each_set_and_problem() -> None:
    assert len(FIGURES) == 6 + 18
    problems = [name + end for name in registry._problems.names() for end in ("", "_rev")]
    for name in registry._hparams.names():
        for problem in problems:
            assert paper_figures(name, problem) == FIGURES.get((name, problem), {}), (name, problem)


def test_a_row_is_the_set_of_its_name() -> None:
    names = {row.hparams_set for row in ROWS} | {"transformer_big_enfr"}
    for name in names - {""}:
        assert set_of(name, "wmt_ende") == set_of(name.removeprefix("transformer_"), "wmt_ende") == name
    assert set_of("base", "wmt_enfr") == "transformer_base"
    assert set_of("big", "wmt_enfr") == set_of("big_enfr", "wmt_enfr") == "transformer_big_enfr"
    assert set_of("big", "wmt_enfr_rev") == set_of("big", "text_files") == "transformer_big"
    assert set_of("h16", "wmt_enfr") == "transformer_h16"


def test_a_row_that_does_not_exist() -> None:
    for given, nearest in (("bsae", "base"), ("transformer_bgi", "big"), ("4layer", "parsing_4layer")):
        short = given.removeprefix("transformer_")
        with pytest.raises(UserError, match=f"^unknown row '{short}'; did you mean '{nearest}'"):
            set_of(given, "wmt_ende")
    with pytest.raises(UserError, match=r"^unknown row 'Q'; there are: base, big, big_enfr, dr0, .*, pos_emb$"):
        set_of("Q", "wmt_ende")


def test_the_report_of_the_papers_base(make: Make) -> None:
    folder = make("wmt_ende", replace(registry.hparams("transformer_base"), train_steps=90_000), 4)
    scores = {
        name: [Score("BLEU", figure, BLEU), Score("BLEU, the paper's way", figure + 0.5, PAPERS)]
        for name, figure in (("wmt13", 25.0), ("wmt14", 26.004), ("wmt14/full", 26.5))
    }
    results = Results(90_000, 5.126, train_seconds=45_000, hardware="P100", gpu_count=8)
    text = report(folder, "transformer_base", scores, results, folder.problem.decode_hparams)
    assert cells(text) == {
        "steps": ["100,000", "90,000", ""],
        "dev perplexity per subword, last checkpoint": ["4.92", "5.13", ""],
        "BLEU, wmt13, last checkpoint": ["", "25.00", "nrefs:1/tok:13a"],
        "BLEU, the paper's way, wmt13, last checkpoint": ["25.8", "25.50", "nrefs:1/tok:sacremoses"],
        "BLEU, wmt14": ["", "26.00", "nrefs:1/tok:13a"],
        "BLEU, the paper's way, wmt14": ["", "26.50", "nrefs:1/tok:sacremoses"],  # 2,737 pairs of 3,003
        "BLEU, wmt14/full": ["", "26.50", "nrefs:1/tok:13a"],
        "BLEU, the paper's way, wmt14/full": ["27.3", "27.00", "nrefs:1/tok:sacremoses"],
    }
    assert text.startswith("# transformer_base on wmt_ende\n")
    words = " ".join(text.split())
    for fact in (
        "Trained in 12.50 hours on 8 x P100, in float32; seed 7; data 0123456789ab,",
        f"vocabulary {folder.vocabulary.fingerprint} of {folder.vocabulary.size}",
        "changed settings of the problem: none; changed hparams: train_steps=90000. ",
        " Averaged checkpoints: 4. Decoded with DecodeHParams(beam_size=4,",
        "perplexity is of its own vocabulary.",
    ):
        assert fact in words
    assert "Not scored" not in words


def test_the_report_says_what_makes_a_run_another(tmp_path: Path, make: Make) -> None:
    folder = make("wsj_parsing", registry.hparams("transformer_parsing_4layer"), 5)
    folder.origin = replace(folder.origin, precision="mixed_bfloat16", warm_start_from="/models/finished")
    folder.problem = registry.problem("wsj_parsing", {"test_sections": "24"})
    search = folder.problem.decode_hparams
    words = report(folder, "transformer_parsing_4layer", {}, Results(500, None), search).replace("\n", " ")
    assert "Trained, in mixed_bfloat16, from the weights of /models/finished; seed 7;" in words
    assert "changed settings of the problem: test_sections=24; changed hparams: none." in words
    assert "Time and steps are without those of the weights that it began with." in words


def test_the_report_of_a_parser(make: Make) -> None:
    folder = make("wsj_parsing", registry.hparams("transformer_parsing_4layer"), 5)
    found = [Score("F1", 90.125, "evalb"), Score("labelled recall", 91.0, "evalb")]
    text = report(
        folder,
        "transformer_parsing_4layer",
        {"dev": found, "test": found},
        Results(20_000, None),
        folder.problem.decode_hparams,
    )
    table = cells(text)
    assert table["F1, test"] == ["91.3", "90.12", "evalb"]
    assert table["F1, dev, last checkpoint"] == ["", "90.12", "evalb"]
    assert table["labelled recall, test"] == ["", "91.00", "evalb"]
    words = " ".join(text.split())
    assert "\n\nTrained, in float32; seed 7;" in text  # where and how long is not known
    assert "changed hparams: none. " in words and "DecodeHParams(beam_size=21, alpha=0.3, extra_length=300" in words


def test_the_report_where_the_paper_has_nothing(make: Make) -> None:
    folder = make("wmt_ende_rev", registry.hparams("transformer_base"), 1)
    scores = {"wmt14/full": [Score("BLEU, the paper's way", 27.0, PAPERS)]}
    text = report(folder, "transformer_base", scores, Results(100_000, 4.5), folder.problem.decode_hparams)
    assert cells(text)["BLEU, the paper's way, wmt14/full"] == ["27.00", "nrefs:1/tok:sacremoses"]  # no such column
    assert "Not scored, since not at hand: wmt13, wmt14.\n" in text
    assert "The paper has no figures of this set for this problem.\n" in text


def test_flags_that_cannot_be(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    both = failure(capsys, "--row=base", "--hparams_set=transformer_base", "--problem=wmt_ende")
    assert both == "give --row or --hparams_set, not both"
    part = failure(capsys, "--row=base", "--problem=wmt_ende", "--eval_steps=3")
    assert part.startswith("--eval_steps: the report's perplexity is that of the whole dev split")
    assert failure(capsys, "--row=base").startswith("--problem is required: ")
    monkeypatch.setenv("TF_CONFIG", "{}")
    several = failure(capsys, "--row=base", "--problem=wmt_ende")
    assert (
        several
        == "TF_CONFIG: train with t2t-trainer on all workers, then run the same t2t-reproduce on one without TF_CONFIG"
    )
    monkeypatch.delenv("TF_CONFIG")
    assert failure(capsys, "--problem=wmt_ende").startswith("--row is required: its hparams set without transformer_")
    assert failure(capsys, "--row=bsae", "--problem=wmt_ende") == "unknown row 'bsae'; did you mean 'base'?"
    message = "unknown hparams set 'transformer_bsae'; did you mean 'transformer_base'?"
    assert failure(capsys, "--hparams_set=transformer_bsae", "--problem=wmt_ende") == message
    assert failure(capsys, "--row=base", "--problem=wmt_ened") == "unknown problem 'wmt_ened'; did you mean 'wmt_ende'?"
    message = failure(capsys, "--row=base", "--problem=wmt_ende", "--hparams=train_stpes=3")
    assert message == "unknown field of HParams 'train_stpes'; did you mean 'train_steps'?"
    message = failure(capsys, "--row=base", "--problem=wmt_ende", "--local_eval_frequency=-1")
    assert message == "--local_eval_frequency=-1 must be 0 or more"


@pytest.mark.parametrize(
    ("problem", "command"),
    [
        ("wmt_ende", "--problem=wmt_ende"),
        ("wmt_ende_rev", "--problem=wmt_ende"),
        ("text_files", "--problem=text_files --train=... --dev=..."),
        ("wsj_parsing_semi", "--problem=wsj_parsing_semi --parsed_trees=..."),
    ],
)
def test_data_that_is_missing(problem: str, command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    data, model = tmp_path / "data", tmp_path / "model"
    message = failure(capsys, "--row=base", f"--problem={problem}", f"--data_dir={data}", f"--output_dir={model}")
    assert message.endswith(f"; run t2t-datagen {command} --data_dir={data}")
    assert list(tmp_path.iterdir()) == []
