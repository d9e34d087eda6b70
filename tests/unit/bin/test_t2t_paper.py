"""Tests that t2t-paper prints the paper's tables in three formats, with the results of model folders."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from programs import error, output, output_without_tensorflow
from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.models import size
from t2t_repro.training.metrics_log import MetricsLog

RESULTS = {
    "steps": 90_000,
    "dev_perplexity": 5.125,
    "dev_bleu": 24.5,
    "bleu": {"wmt14": 26.25, "wmt14/full": 26.5},
    "train_seconds": 43_200,
    "hardware": "Tesla P100-SXM2-16GB",
    "gpu_count": 4,
    "signatures": ["BLEU nrefs:1|case:mixed"],
}


def lines(*arguments: str) -> list[dict[str, str]]:
    """Returns the lines of t2t-paper's CSV output as dictionaries {column: cell}."""
    return list(csv.DictReader(io.StringIO(output("paper", "--format=csv", *arguments))))


def folder_lines(path: str, *arguments: str) -> list[dict[str, str]]:
    """Returns the lines of t2t-paper's CSV output that have figures of the model folder `path`."""
    return [line for line in lines(f"--output_dirs={path}", *arguments) if line["output_dir"]]


MakeFolder = Callable[..., str]


@pytest.fixture
def make_folder(tmp_path: Path, tiny_vocabulary: Vocabulary) -> MakeFolder:
    """Returns a function that makes a model folder, writes `results` to results.json, and returns the folder's path."""

    def make_folder(
        name: str, problem: str, hparams: HParams, results: dict[str, Any] | None = None, **origin: Any
    ) -> str:
        full_origin = Origin(problem, origin.pop("settings", {}), "vocab.model", "0123456789ab", 1, **origin)
        ModelFolder.create(tmp_path / name, hparams, tiny_vocabulary, full_origin)
        if results is not None:
            (tmp_path / name / "results.json").write_text(json.dumps(results))
        return str(tmp_path / name)

    return make_folder


def add_checkpoints(folder: str, *steps: int) -> None:
    for step in steps:
        (Path(folder) / f"model.ckpt-{step}.index").touch()


def test_csv_has_one_line_per_row_and_exact_figures() -> None:
    rows = lines()
    assert [line["table"] for line in rows] == 10 * ["2"] + 12 * ["2 cost"] + 20 * ["3"] + 12 * ["4"]
    base = next(line for line in rows if line["hparams_set"] == "transformer_base")
    assert base["row"] == "Transformer (base)"
    assert int(base["parameters"]) == size.parameters(registry.hparams("transformer_base"), int(base["vocab_size"]))
    assert (base["target_tokens_per_step"], base["source_tokens_per_step"]) == ("25000", "25000")
    assert (base["paper_bleu_ende"], base["paper_bleu_enfr"], base["output_dir"]) == ("27.3", "38.1", "")
    for line in rows:
        flops = line["token_flops"] if line["table"] == "2 cost" else line["flops_by_products"]
        assert bool(line["parameters"]) == bool(flops) == bool(line["hparams_set"])
    assert [line["table"] for line in lines("--table=4,2")] == 10 * ["2"] + 12 * ["2 cost"] + 12 * ["4"]


def test_training_costs_stand_below_table_2_with_remarks() -> None:
    text = output("paper", "--table=2")
    _, _, costs = text.partition("Training costs of the systems in Table 2")
    (gnmt,) = (line for line in costs.splitlines() if line.startswith("GNMT + RL") and "EN-FR" in line)
    assert gnmt.split()[3:] == ["EN-FR", "gnmt", "278", "280,826,880", "1.3e9", "7.9e9", "1.0e19", "1.4e20", "7%"]
    assert "\n\nByteNet: We know no published number of parameters" in costs
    assert "Training costs" not in output("paper", "--table=3")


def test_text_and_markdown_show_the_same_cells() -> None:
    compared = ["(B)", "transformer_k128", "16", "5.16", "25.1", "58", "58,066,944"]
    every = [*compared[:-1], "41,100", "58,066,944", "-7", "-7.1", "25,000", "25,000", "100,000", "8.8e12", "8.8e17"]
    for flags, cells in (([], compared), (["--columns=all"], every)):
        text, markdown = (output("paper", "--table=3", f"--format={name}", *flags) for name in ("text", "markdown"))
        (line,) = (line for line in text.splitlines() if "transformer_k128" in line)
        assert line.split() == cells
        (row,) = (line for line in markdown.splitlines() if "transformer_k128" in line)
        assert [cell.strip() for cell in row.split("|") if cell.strip()] == cells
        assert "Table 2" not in text + markdown
        assert "PPL" in text
        assert "F1" not in text


@pytest.mark.parametrize("table", ["2", "3", "4"])
def test_by_default_a_table_fits_into_120_characters(table: str) -> None:
    assert max(map(len, output("paper", f"--table={table}").splitlines())) <= 120


def test_chosen_columns_come_in_the_chosen_order(make_folder: MakeFolder) -> None:
    path = make_folder("base", "wmt_ende", registry.hparams("transformer_base"), RESULTS)
    names = "output_dir,row,measured_bleu:wmt14"
    rows = lines("--table=3", f"--output_dirs={path}", f"--columns={names}")
    assert list(rows[0]) == ["table", *names.split(",")]
    assert list(rows[0].values()) == ["3", path, "base", "26.25"]
    text = output("paper", "--table=3", "--columns=row,difference").splitlines()
    assert text[-1].split() == ["big", "+148.0"]
    message = error("paper", "--columns=row,paramters")
    assert message == "unknown column 'paramters'; did you mean 'parameters'?"
    assert error("paper", f"--columns={names}").startswith("unknown column 'measured_bleu:wmt14'; did you mean 'meas")


def test_one_vocabulary_size_can_count_every_row() -> None:
    rows = [line for line in lines("--vocab_size=500") if line["hparams_set"]]
    for line in rows:
        hparams = registry.hparams(line["hparams_set"])
        assert int(line["parameters"]) == size.parameters(hparams, 500)
    (big,) = (line for line in rows if line["row"] == "Transformer (big)" and line["table"] == "2")
    assert big["parameters_enfr"] == str(size.parameters(registry.hparams("transformer_big_enfr"), 500))


def test_a_folder_appears_in_its_rows(make_folder: MakeFolder, tiny_vocabulary: Vocabulary) -> None:
    base = replace(registry.hparams("transformer_base"), train_steps=90_000)
    path = make_folder("base", "wmt_ende", base, RESULTS)
    rows = lines(f"--output_dirs={path}")
    assert len(rows) == len(lines())
    measured = [line for line in rows if line["output_dir"]]
    assert [(line["table"], line["hparams_set"]) for line in measured] == [
        ("2", "transformer_base"),
        ("3", "transformer_base"),
    ]
    for line in measured:
        assert line["output_dir"] == path
        assert line["problem"] == "wmt_ende"
        assert line["measured_steps"] == "90000"
        assert (line["measured_perplexity"], line["measured_bleu_dev"]) == ("5.125", "24.5")
        assert (line["measured_bleu:wmt14"], line["measured_bleu:wmt14/full"]) == ("26.25", "26.5")
        # "measured_vocab_size" is the size of the model folder's vocabulary. "vocab_size" is the size with which
        # t2t-paper counts the parameters of the paper's model.
        vocab_size = tiny_vocabulary.size
        assert line["measured_vocab_size"] == str(vocab_size) != line["vocab_size"]
        assert line["measured_parameters"] == str(size.parameters(base, vocab_size))
        assert (line["train_seconds"], line["gpu_count"]) == ("43200", "4")
        assert float(line["measured_flops_by_time"]) == 43_200 * 4 * 9.5e12
    text = output("paper", "--table=3", f"--output_dirs={path}")
    assert "12.00" in text
    assert "1.6e18" in text
    assert text.endswith(f"\n\n{path}: BLEU nrefs:1|case:mixed\n")


def test_each_folder_of_a_row_has_its_own_line(make_folder: MakeFolder) -> None:
    hparams = registry.hparams("transformer_big_enfr")
    paths = [make_folder(name, "wmt_enfr", hparams, {"bleu": {"wmt14": 41.0}}) for name in ("one", "two")]
    rows = lines("--table=2,3", f"--output_dirs={','.join(paths)}")
    assert len(rows) == 10 + 12 + 20 + 1  # a row with two folders has two lines
    assert [(line["row"], line["output_dir"]) for line in rows if line["output_dir"]] == [
        ("Transformer (big)", path) for path in paths
    ]


def test_a_folder_whose_table_is_not_printed_still_appears(make_folder: MakeFolder) -> None:
    path = make_folder("base", "wmt_ende", registry.hparams("transformer_base"), RESULTS)
    (line,) = folder_lines(path, "--table=4")
    assert (line["table"], line["measured_steps"]) == ("", "90000")


@pytest.mark.parametrize(
    ("hparams_set", "problem", "row"),
    [
        ("bytenet", "wmt_ende", "ByteNet"),
        ("deep_att", "wmt_enfr", "Deep-Att + PosUnk"),
        ("gnmt", "wmt_ende", "GNMT + RL"),
        ("gnmt", "wmt_enfr", "GNMT + RL"),
        ("convs2s_enfr", "wmt_enfr", "ConvS2S"),
        ("moe", "wmt_enfr", "MoE"),
        ("deep_att", "wmt_ende", ""),  # Table 2 has Deep-Att only for EN-FR
        ("convs2s_enfr", "wmt_ende", ""),
    ],
)
def test_a_model_of_another_system_appears_in_its_row(
    hparams_set: str, problem: str, row: str, make_folder: MakeFolder, tiny_vocabulary: Vocabulary
) -> None:
    hparams = registry.hparams(hparams_set)
    path = make_folder("model", problem, hparams, {"bleu": {"wmt14/full": 24.5}})
    (line,) = folder_lines(path)
    assert (line["row"], line["measured_bleu:wmt14/full"]) == (row, "24.5")
    assert line["measured_parameters"] == str(size.parameters(hparams, tiny_vocabulary.size))


def test_the_parameters_of_a_custom_model_are_not_computed(make_folder: MakeFolder, tiny_hparams: HParams) -> None:
    path = make_folder("model", "numbers_ende", replace(tiny_hparams, model="recurrent"), RESULTS)
    (line,) = folder_lines(path)
    assert (line["measured_steps"], line["measured_parameters"]) == ("90000", "")


def test_a_parser_is_recognised_by_its_problem(make_folder: MakeFolder) -> None:
    path = make_folder("semi", "wsj_parsing_semi", registry.hparams("transformer_parsing_4layer_semi"), {"f1": 92.125})
    (line,) = folder_lines(path)
    assert (line["hparams_set"], line["measured_f1"]) == ("transformer_parsing_4layer_semi", "92.125")


@pytest.mark.parametrize(
    ("problem", "changes"),
    [
        ("numbers_ende", {}),
        ("wmt_enfr_rev", {}),
        ("wmt_ende", {"batch_size": 4096}),
        ("wmt_ende", {"hidden_size": 128}),
    ],
)
def test_a_folder_with_another_problem_or_other_hparams_fits_no_row(
    problem: str, changes: dict[str, int], make_folder: MakeFolder, tiny_vocabulary: Vocabulary
) -> None:
    hparams = replace(registry.hparams("transformer_base"), **changes)
    path = make_folder("other", problem, hparams, {"dev_bleu": 30.0})
    *rows, line = lines("--table=3", f"--output_dirs={path}")
    assert len(rows) == 20
    assert not any(row["output_dir"] for row in rows)
    assert (line["table"], line["row"], line["problem"], line["measured_bleu_dev"]) == ("", "", problem, "30.0")
    vocab_size = tiny_vocabulary.size
    assert line["measured_vocab_size"] == str(vocab_size)
    assert line["measured_parameters"] == str(size.parameters(hparams, vocab_size))
    assert "Model folders that fit no row above\n\n" in output("paper", f"--output_dirs={path}")


def test_without_results_the_metrics_of_the_training_are_shown(make_folder: MakeFolder, tiny_hparams: HParams) -> None:
    path = make_folder("model", "numbers_ende", replace(tiny_hparams, train_steps=110))
    add_checkpoints(path, 20, 110, 90)
    log = MetricsLog(path, 0)
    log.add(90, seconds=7200.0, train_loss=1.0, hardware="P100", gpu_count=2)
    log.add(110, dev_loss=1.0, dev_perplexity=2.75)
    line = lines(f"--output_dirs={path}")[-1]
    names = ("measured_steps", "measured_perplexity", "train_seconds", "gpu_count", "hardware")
    assert [line[name] for name in names] == ["110", "2.75", "7200.0", "2", "P100"]
    assert line["measured_bleu_dev"] == "" and not any(name.startswith("measured_bleu:") for name in line)
    for steps, bleu in ((110, "27.5"), (100, "")):  # the last step is 110, so results of step 100 are outdated
        (Path(path) / "results.json").write_text(json.dumps({"steps": steps, "dev_bleu": 27.5}))
        line = lines(f"--output_dirs={path}")[-1]
        assert (line["measured_steps"], line["measured_bleu_dev"]) == ("110", bleu)


def test_notes_below_a_table_say_what_limits_a_comparison(make_folder: MakeFolder) -> None:
    hparams = registry.hparams("transformer_parsing_4layer")
    results = {"f1": 43.0, "search": "beam_size=1", "train_seconds": 5, "hardware": "2 x K80, then 1 x P100"}
    path = make_folder("model", "wsj_parsing", hparams, results, settings={"train_sections": "0001-0159"})
    (note, _, _) = notes = output("paper", "--table=4", f"--output_dirs={path}").split("\n\n")[2:]
    assert note == f"{path}: decoded with beam_size=1"
    assert notes[1] == f"{path}: no FLOPs by time, because it was trained on several machines"
    assert notes[2] == f"{path}: its data was generated with --train_sections=0001-0159\n"


def test_precision_and_warm_starts_are_noted(make_folder: MakeFolder) -> None:
    hparams = registry.hparams("transformer_base")
    path = make_folder("model", "wmt_ende", hparams, {"steps": 500}, precision="mixed_bfloat16")
    assert f"\n{path}: trained in mixed_bfloat16\n" in output("paper", "--table=3", f"--output_dirs={path}")
    path = make_folder("tuned", "wmt_ende", hparams, {"steps": 500}, warm_start_from="/models/finished")
    rows = [line["row"] for line in folder_lines(path, "--table=3")]
    assert rows == [""]
    _, _, others = output("paper", f"--output_dirs={path}").partition("Model folders that fit no row above")
    assert f"{path}: fits no row, because it started with the weights of /models/finished" in others


def test_flops_by_time_need_the_sustained_rate_of_the_hardware(make_folder: MakeFolder) -> None:
    hparams = registry.hparams("transformer_l2")
    timed = {"train_seconds": 10, "gpu_count": 2}
    path = make_folder("model", "wmt_ende", hparams, timed | {"hardware": "Tesla V100 SXM2"})
    text = output("paper", "--table=3", f"--output_dirs={path}")
    assert f"{path}: no FLOPs by time, because the paper gives no sustained rate for 'Tesla V100 SXM2'" in text
    rate = "--sustained_tflops=V100 = 14.5"
    (line,) = folder_lines(path, rate)
    assert float(line["measured_flops_by_time"]) == 10 * 2 * 14.5e12
    assert "no FLOPs by time" not in output("paper", f"--output_dirs={path}", rate)
    (Path(path) / "results.json").write_text(json.dumps(timed | {"hardware": "Tesla P100-PCIE-16GB (R)"}))
    for flag, sustained in (("P100-PCIE=8,Tesla=1", 8), ("P100=7", 7), ("(R)=5", 5), ("", 9.5)):
        rates = [f"--sustained_tflops={flag}"] if flag else []
        (line,) = folder_lines(path, *rates)
        assert float(line["measured_flops_by_time"]) == 10 * 2 * sustained * 1e12
    (Path(path) / "results.json").write_text(json.dumps(timed | {"hardware": "Tesla V100 SXM2"}))
    unknown = "--sustained_tflops: no model folder of --output_dirs was trained on 'K81'; their hardware: "
    assert error("paper", f"--output_dirs={path}", "--sustained_tflops=K81=1") == f"{unknown}'Tesla V100 SXM2'"
    assert error("paper", "--sustained_tflops=K81=1") == f"{unknown}none"
    for other in ({"hardware": "GRID K8000"}, {"hardware": "K80", "gpu_count": 0}, {"hardware": ""}):
        (Path(path) / "results.json").write_text(json.dumps(timed | other))
        (line,) = folder_lines(path)
        assert line["measured_flops_by_time"] == ""


def test_a_run_that_did_not_reach_its_last_step_has_a_note(make_folder: MakeFolder, tiny_hparams: HParams) -> None:
    path = make_folder("unfinished", "numbers_ende", tiny_hparams)
    note = f"{path}: trained for {{}} of {tiny_hparams.train_steps:,} steps\n"
    assert ": trained for" not in output("paper", f"--output_dirs={path}")  # it has no metrics
    add_checkpoints(path, 5, 10)
    MetricsLog(path, 0).add(10, dev_loss=2.0, dev_perplexity=7.4)
    assert note.format(10) in output("paper", f"--output_dirs={path}")
    MetricsLog(path, 10).add(tiny_hparams.train_steps, dev_loss=2.0, dev_perplexity=7.4)
    assert ": trained for" not in output("paper", f"--output_dirs={path}")


def test_a_folder_may_have_a_comma_in_its_path_and_counts_once(
    make_folder: MakeFolder, tiny_hparams: HParams, tmp_path: Path
) -> None:
    path = Path(make_folder("model", "numbers_ende", tiny_hparams, RESULTS))
    with_comma = path.rename(path.with_name("a,b"))
    assert len(folder_lines(str(with_comma))) == 1
    with_comma.rename(path)
    assert len(folder_lines(f"{path},{path}")) == 1
    assert "the name of a folder is empty; remove the extra comma" in error("paper", f"--output_dirs={path},")


def test_wrong_flags_and_folders_are_reported(make_folder: MakeFolder, tiny_hparams: HParams, tmp_path: Path) -> None:
    assert error("paper", "--table=3,5") == "unknown table '5'; there are: 2, 3, 4"
    assert error("paper", "--table=") == "--table is required: numbers of the tables"
    assert error("paper", "--format=latex") == "flag --format=latex: value should be one of <text|markdown|csv>"
    for number in (-1, 10**400):
        assert error("paper", f"--vocab_size={number}").startswith(f"flag --vocab_size={number}: ")
    nowhere = tmp_path / "nowhere"
    cure = "so this is not a model folder; run t2t-trainer"
    assert error("paper", f"--output_dirs={nowhere}") == f"{nowhere}: no hparams.json there, {cure}"
    broken = make_folder("broken", "numbers_ende", tiny_hparams, {"steps": "many"})
    assert error("paper", f"--output_dirs={broken}").startswith(f"{broken}/results.json: steps='many' must be a whole")
    for rate in ("V100", "=14", "V100=", "V100=fast", "V100=0", "V100=nan", "V100=inf"):
        expected = f"--sustained_tflops: cannot read '{rate}'; write a GPU's name, = and a number above 0"
        assert error("paper", f"--sustained_tflops={rate}") == expected


def test_the_program_does_not_load_tensorflow(make_folder: MakeFolder, tiny_hparams: HParams) -> None:
    path = make_folder("model", "numbers_ende", tiny_hparams, RESULTS)
    assert output_without_tensorflow("paper", f"--output_dirs={path}").startswith("Table 2: ")


def test_on_a_terminal_no_line_is_wider_than_it_and_the_output_is_utf8() -> None:
    reader, writer = os.openpty()
    command = [sys.executable, "-m", "t2t_repro.bin.t2t_paper", "--table=3", "--columns=all"]
    environment = os.environ | {"COLUMNS": "120", "PYTHONIOENCODING": "ascii"}
    with subprocess.Popen(command, stdout=writer, env=environment) as process:
        os.close(writer)
        shown = b""
        with contextlib.suppress(OSError):  # os.read raises OSError after the process has closed the terminal
            while block := os.read(reader, 4096):
                shown += block
    os.close(reader)
    assert process.returncode == 0
    text = shown.decode().splitlines()
    assert 100 < max(map(len, text)) <= 120
    assert [line.split()[:2] for line in text].count(["row", "hparams_set"]) > 1
    assert any("ε_ls" in line for line in text)
