"""Tests that t2t-reproduce reports wrong flags and missing data in one line before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from programs import error, refused, run
from toys import lines, text_files


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row=base", "--hparams_set=transformer_base"], "--row and --hparams_set: give one of them"),
        (["--row=base", "--eval_steps=3"], "flag --eval_steps=3: the report needs the whole dev split; omit the flag"),
        (["--row=base", "--generate_data", "--dry_run"], "flags dry_run=True, generate_data=True: "),
        (["--row=base", "--problem="], "--problem is required: "),
        ([], "--row is required: hparams set of the row without"),
        (["--row=bsae"], "unknown row 'bsae'; did you mean 'base'?"),
        (
            ["--hparams_set=transformer_bsae"],
            "unknown hparams set 'transformer_bsae'; did you mean 'transformer_base'?",
        ),
        (["--row=base", "--problem=wmt_ened"], "unknown problem 'wmt_ened'; did you mean 'wmt_ende'?"),
        (["--row=base", "--hparams=train_stpes=3"], "unknown field of HParams 'train_stpes'; did you mean "),
        (
            ["--row=base", "--local_eval_frequency=-1"],
            "flag --local_eval_frequency=-1: -1 is not a non-negative integer",
        ),
        (["--row=base", "--inter_op_parallelism_threads=100000"], "flag --inter_op_parallelism_threads=100000: "),
        (["--row=base", "--decode_hparams=n=2"], "decode_hparams: n=2 has no effect here: one output of each "),
    ],
)
def test_wrong_flags_are_reported(arguments: list[str], message: str) -> None:
    assert error("reproduce", "--problem=wmt_ende", *arguments).startswith(message)


def test_workers_of_a_cluster_are_told_to_train_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert (
        error("reproduce", "--row=base", "--problem=wmt_ende")
        == "TF_CONFIG is set; train with t2t-trainer on all workers, then unset it and run this command on one of them"
    )


@pytest.mark.parametrize(
    ("problem", "command"),
    [
        ("wmt_ende", "--problem=wmt_ende"),
        ("wmt_ende_rev", "--problem=wmt_ende"),
        ("text_files", "--problem=text_files --train=... --dev=..."),
        ("wsj_parsing_semi", "--problem=wsj_parsing_semi --parsed_trees=..."),
    ],
)
def test_missing_data_is_reported_with_the_command_that_makes_it(problem: str, command: str, tmp_path: Path) -> None:
    data, model = tmp_path / "data", tmp_path / "model"
    message = error("reproduce", "--row=base", f"--problem={problem}", f"--data_dir={data}", f"--output_dir={model}")
    assert message.endswith(f"; run t2t-datagen {command} --data_dir={data}")
    assert list(tmp_path.iterdir()) == []


def test_the_report_replaces_no_source(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    (tmp_path / "M").mkdir()
    report = (tmp_path / "b.en").rename(tmp_path / "M" / "report.md")
    flags = (f"--train={problem.settings.train}", f"--dev={report},{tmp_path}/b.el", "--vocab_size=400")
    folders = (f"--data_dir={tmp_path}/D", f"--output_dir={tmp_path}/M")
    result = run("reproduce", "--hparams_set=transformer_tiny", "--problem=text_files", *flags, *folders)
    refused(result, "report.md is also an input (--dev)")
    assert report.read_text("utf-8") == "".join(f"{line}\n" for line in lines(5))
