"""Tests that t2t-reproduce reports wrong flags and missing data in one line before it trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from programs import error, refused, run
from toys import lines, text_files


def test_workers_of_a_cluster_are_told_to_train_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert (
        error("reproduce", "--row=base", "--problem=wmt_ende")
        == "TF_CONFIG is set; train with t2t-trainer on all workers, then unset it and run this command on one of them"
    )


def test_the_report_replaces_no_source(tmp_path: Path) -> None:
    problem = text_files(tmp_path)
    (tmp_path / "M").mkdir()
    report = (tmp_path / "b.en").rename(tmp_path / "M" / "report.md")
    flags = (f"--train={problem.settings.train}", f"--dev={report},{tmp_path}/b.el", "--vocab_size=400")
    folders = (f"--data_dir={tmp_path}/D", f"--output_dir={tmp_path}/M")
    result = run("reproduce", "--hparams_set=transformer_tiny", "--problem=text_files", *flags, *folders)
    refused(result, "report.md is also an input (--dev)")
    assert report.read_text("utf-8") == "".join(f"{line}\n" for line in lines(5))
