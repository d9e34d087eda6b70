"""Tests what t2t-trainer passes on from its flags to the training loop."""

from __future__ import annotations

from pathlib import Path

import pytest
from absl import flags

from t2t_repro.bin import t2t_trainer
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.model_folder import ModelFolder
from t2t_repro.training import loop
from t2t_repro.training.config import RunConfig


@pytest.mark.parametrize(
    ("arguments", "lines", "is_limited"),
    [([], 200, True), (["--eval_decode_lines=200"], 200, False), (["--eval_decode_lines=0"], 0, False)],
)
def test_only_the_default_number_of_decoded_lines_has_a_time_limit(
    arguments: list[str], lines: int, is_limited: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = flags.FlagValues()
    t2t_trainer.define_flags(values)
    values(["t2t-trainer", f"--output_dir={tmp_path}", "--keep_checkpoint_max=3", *arguments])
    configs: list[RunConfig] = []
    monkeypatch.setattr(loop, "train", lambda *run: configs.append(run[-1]))
    t2t_trainer.train(values, HParams(local_eval_frequency=7), None)
    assert configs == [
        RunConfig(local_eval_frequency=7, keep_checkpoint_max=3, eval_decode_lines=lines, limits_decoding=is_limited)
    ]


@pytest.mark.parametrize("num_last_checkpoints", [1, 5])
def test_the_next_commands_average_only_if_the_hparams_do(
    folder: ModelFolder, num_last_checkpoints: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "hparams", HParams(num_last_checkpoints=num_last_checkpoints))
    commands = t2t_trainer.next_commands(folder, "")
    assert ("t2t-avg-checkpoints" in commands) == ("to average" in commands) == (num_last_checkpoints > 1)
    assert f"t2t-decoder --output_dir={folder.path} --decode_from_file=" in commands


def test_hparams_of_the_model_that_a_flag_names_may_change() -> None:
    values = flags.FlagValues()
    t2t_trainer.define_flags(values)
    changes = "--hparams=moe_num_experts=16,moe_k=2"
    values(["t2t-trainer", "--problem=p", "--hparams_set=transformer_base", "--model=transformer_moe", changes])
    hparams = t2t_trainer.read_hparams(values)
    assert (hparams.model, hparams.moe_num_experts) == ("transformer_moe", 16)


def test_a_constant_that_the_schedule_does_not_use_is_refused() -> None:
    values = flags.FlagValues()
    t2t_trainer.define_flags(values)
    arguments = ("--problem=text_files", "--hparams_set=transformer_tiny", "--hparams=learning_rate_schedule=noam")
    values(["t2t-trainer", *arguments])
    with pytest.raises(UserError, match=r"learning_rate_constant=0\.005 does nothing"):
        t2t_trainer.read_hparams(values)
