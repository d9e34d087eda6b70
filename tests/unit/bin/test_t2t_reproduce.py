"""t2t-reproduce reports wrong flags and missing data in one line before it trains."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from t2t_repro.bin import program, t2t_reproduce


def failure(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the line on standard error of a run that must end with code 2 and no output."""
    flags = copy.deepcopy(t2t_reproduce.FLAGS)
    assert program.run(t2t_reproduce.main, flags, t2t_reproduce.__doc__, ["t2t_reproduce.py", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("t2t-reproduce: ")
    return captured.err.removeprefix("t2t-reproduce: ").rstrip("\n")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--row=base", "--hparams_set=transformer_base"], "--row and --hparams_set: give one of them"),
        (["--row=base", "--eval_steps=3"], "flag --eval_steps=3: the report needs the whole dev split; omit the flag"),
        (["--row=base", "--generate_data", "--dry_run"], "flags dry_run=True, generate_data=True: "),
        (["--row=base", "--problem="], "--problem is required: "),
        ([], "--row is required: its hparams set without transformer_"),
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
        (["--row=base", "--decode_hparams=n=2"], "decode_hparams: n=2 does nothing here: one output of each "),
    ],
)
def test_wrong_flags_are_reported(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert failure(capsys, "--problem=wmt_ende", *arguments).startswith(message)


def test_workers_of_a_cluster_are_told_to_train_first(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert (
        failure(capsys, "--row=base", "--problem=wmt_ende")
        == "TF_CONFIG: train with t2t-trainer on all workers, then run the same t2t-reproduce on one without TF_CONFIG"
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
def test_missing_data_is_reported_with_the_command_that_makes_it(
    problem: str, command: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    data, model = tmp_path / "data", tmp_path / "model"
    message = failure(capsys, "--row=base", f"--problem={problem}", f"--data_dir={data}", f"--output_dir={model}")
    assert message.endswith(f"; run t2t-datagen {command} --data_dir={data}")
    assert list(tmp_path.iterdir()) == []
