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
        ([], "--row is required: hparams set of the row without"),
        (["--row=bsae"], "unknown row 'bsae'; did you mean 'base'?"),
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


def test_missing_data_is_reported_before_training(tmp_path: Path) -> None:
    folders = f"--data_dir={tmp_path / 'data'}", f"--output_dir={tmp_path / 'model'}"
    message = error("reproduce", "--row=base", "--problem=wmt_ende", *folders)
    assert message.endswith(f"; run t2t-datagen --problem=wmt_ende {folders[0]}")
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
