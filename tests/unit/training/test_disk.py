"""Tests that a run needs the disk space that a dry run states, and that it does not start on a full
disk.
"""

import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from checkpoints import Training
from t2t_repro.checkpoints.averaging import average_checkpoints
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.models.model import parameter_count
from t2t_repro.training.config import RunConfig
from t2t_repro.training.disk import disk_need, kept_checkpoints, refuse_full_disk

BASE = 65_000_000
"""Number of parameters of the paper's base model, rounded. A checkpoint takes 0.78 GB."""
HPARAMS = HParams(train_steps=100_000)


def test_the_need_is_what_a_run_writes(folder: ModelFolder) -> None:
    training = Training(folder, keep=2, vocab_size=3000).saved(1, 2, 3)
    training.checkpoints.save_best(3)
    average_checkpoints(folder, 2)
    hparams = HParams(train_steps=3, local_eval_frequency=1)
    config = RunConfig(keep_checkpoint_max=2)
    need = disk_need(parameter_count(training.model), hparams, config)
    written = sum(path.stat().st_size for path in folder.path.rglob("*.data-*"))
    being_written = next(folder.path.glob("model.ckpt-3.data-*")).stat().st_size
    assert need == pytest.approx(written + being_written, rel=0.01)


@pytest.mark.parametrize(
    ("config", "eval_frequency", "latest"),
    [
        (RunConfig(), 1500, 20),
        (RunConfig(keep_checkpoint_max=5), 1500, 5),
        (RunConfig(keep_checkpoint_max=5, max_checkpoints_by_score=3), 1500, 8),
        (RunConfig(keep_checkpoint_max=5, max_checkpoints_by_score=3), 20_000, 5),
        (RunConfig(), 40_000, 3),
        (RunConfig(save_checkpoints_secs=600), 40_000, 20),
    ],
)
def test_the_number_of_checkpoints_is_limited_by_the_flag_and_the_steps(
    config: RunConfig, eval_frequency: int, latest: int
) -> None:
    hparams = replace(HPARAMS, local_eval_frequency=eval_frequency)
    assert kept_checkpoints(hparams, config) == latest


@pytest.mark.parametrize(
    ("free", "latest", "best", "result"),
    [
        (1.9, 0, 0, "refused"),
        (2.1, 0, 0, "warned"),
        (5.3, 0, 0, "warned"),
        (5.4, 0, 0, ""),
        (2.4, 2, 1, ""),
        (1.1, 4, 1, "warned"),
        (1.4, 3, 0, "refused"),
    ],
)
def test_a_run_starts_only_if_the_disk_holds_its_next_checkpoints(
    free: float,
    latest: int,
    best: int,
    result: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (tmp_path / "best").mkdir()
    for folder, count in ((tmp_path, latest), (tmp_path / "best", best)):
        for step in range(count):
            (folder / f"model.ckpt-{step}.index").touch()
    monkeypatch.setattr(
        shutil, "disk_usage", lambda path: SimpleNamespace(free=int(free * 12 * BASE))
    )
    try:
        warning = refuse_full_disk(tmp_path, BASE, HPARAMS, RunConfig(keep_checkpoint_max=3))
    except UserError as error:
        assert result == "refused"
        assert f"{free * 0.78:.2f} GB free" in str(error)
        assert "--output_dir on another disk" in str(error)
    else:
        assert result == ("warned" if warning else "")
        assert not warning or "--keep_checkpoint_max" in warning
