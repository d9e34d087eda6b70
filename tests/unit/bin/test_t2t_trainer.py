"""Tests what t2t-trainer passes on from its flags to the training loop."""

from pathlib import Path
from typing import Any

import pytest

from t2t_repro import devices
from t2t_repro.bin import program, t2t_trainer
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.training import loop
from t2t_repro.training.config import RunConfig


def test_the_flags_reach_the_training_loop_and_tensorflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = t2t_trainer.make_flags()
    arguments = [
        "--keep_checkpoint_max=3",
        "--intra_op_parallelism_threads=3",
        "--inter_op_parallelism_threads=2",
    ]
    values(["t2t-trainer", f"--output_dir={tmp_path}", *arguments])
    calls: list[object] = []
    monkeypatch.setattr(devices, "set_threads", lambda *counts: calls.append(counts))
    monkeypatch.setattr(loop, "train", lambda run: calls.append((run.hparams, run.config)))
    hparams = HParams(local_eval_frequency=7)
    t2t_trainer.train(values, hparams, None)
    assert calls == [(3, 2), (hparams, RunConfig(keep_checkpoint_max=3))]


@pytest.mark.parametrize("num_last_checkpoints", [1, 5])
def test_the_next_commands_average_only_if_the_hparams_do(
    folder: ModelFolder, num_last_checkpoints: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folder, "hparams", HParams(num_last_checkpoints=num_last_checkpoints))
    commands = t2t_trainer.next_commands(folder, True, "")
    assert (
        ("t2t-avg-checkpoints" in commands)
        == ("to average" in commands)
        == (num_last_checkpoints > 1)
    )
    scoring = t2t_trainer.next_commands(folder, False, "")
    assert "--score_file=" in scoring and "decode_from_file" not in scoring
    assert f"t2t-decoder --output_dir={folder.path} --decode_from_file=" in commands
    assert "--checkpoint_path" not in commands
    (folder.path / "best").mkdir()
    (folder.path / "best" / "model.ckpt-3.index").touch()
    assert f"--checkpoint_path={folder.path}/best/model.ckpt-3\n" in t2t_trainer.next_commands(
        folder, True, ""
    )


def read_hparams(*arguments: str) -> Any:
    values = t2t_trainer.make_flags()
    values(["t2t-trainer", "--problem=text_files", *arguments])
    return t2t_trainer.read_hparams(values)


def test_hparams_come_from_the_set_and_the_flags() -> None:
    changes = "--hparams=moe_num_experts=16,moe_k=2"
    hparams = read_hparams(
        "--hparams_set=transformer_base", "--model=transformer_moe", "--train_steps=7", changes
    )
    assert (hparams.model, hparams.moe_num_experts, hparams.train_steps) == (
        "transformer_moe",
        16,
        7,
    )
    with pytest.raises(UserError, match=r"learning_rate_constant=0\.005 has no effect"):
        read_hparams("--hparams_set=transformer_tiny", "--hparams=learning_rate_schedule=noam")
    with pytest.raises(UserError, match="--train_steps is also given in --hparams"):
        read_hparams("--hparams_set=transformer_tiny", "--hparams=train_steps=5", "--train_steps=7")


def test_data_is_generated_again_only_if_the_flag_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def train_size(*flags_given: str) -> int:
        """Opens the data as t2t-trainer does; returns the number of training pairs, or 0 after an
        error.
        """
        values = t2t_trainer.make_flags()
        pairs = []
        arguments = [
            "t2t-trainer",
            "--problem=numbers_ende",
            f"--data_dir={tmp_path}",
            *flags_given,
        ]
        program.run(
            lambda values: pairs.append(t2t_trainer.open_data(values).description.pairs),
            values,
            "",
            arguments,
        )
        return int(pairs[0]["train"]) if pairs else 0

    assert train_size("--train_size=40") == 40
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert train_size() == train_size("--train_size=40") == 40
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert train_size("--generate_data", "--train_size=50") == 0
    assert (
        "and several workers must not generate the data at the same time" in capsys.readouterr().err
    )
    monkeypatch.delenv("TF_CONFIG")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before
    assert train_size("--generate_data", "--train_size=50") == 50
    assert train_size() == 50
