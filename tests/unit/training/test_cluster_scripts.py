"""Tests that the script of docs/distributed.md for Slurm gives each worker its TF_CONFIG."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from t2t_repro.training.distribution import workers

DOCS = Path(__file__).resolve().parents[3] / "docs" / "distributed.md"
TRAINER = """#!/bin/bash
echo "$TF_CONFIG" > "$OUT/$SLURM_PROCID"
exit "$TRAINER_EXITS"
"""
SCONTROL = """#!/bin/bash
if [ "$1" = show ]; then printf 'gpu-a\\ngpu-b\\n'; else echo "$*" > "$OUT/requeued"; fi
"""
SRUN = """#!/bin/bash
shift
for number in 0 1; do SLURM_PROCID=$number "$@" || failed=2; done
exit $failed
"""


@pytest.fixture
def stand_ins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts fake t2t-trainer, scontrol and srun programs on the PATH; returns the folder in which they write files."""
    for name, text in (("t2t-trainer", TRAINER), ("scontrol", SCONTROL), ("srun", SRUN)):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    for name, value in (("OUT", str(tmp_path / "out")), ("SLURM_JOB_ID", "7"), ("SLURM_JOB_NODELIST", "gpu-[a-b]")):
        monkeypatch.setenv(name, value)
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def received_addresses(out: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Returns, for each worker, the addresses in the TF_CONFIG that the worker received, its own address first."""
    received = []
    for index in range(2):
        text = (out / str(index)).read_text()
        monkeypatch.setenv("TF_CONFIG", text)
        assert workers() == 2
        addresses = json.loads(text)["cluster"]["worker"]
        index = json.loads(text)["task"]["index"]
        received.append([addresses[index], addresses[1 - index]])
    monkeypatch.delenv("TF_CONFIG")
    return received


@pytest.mark.parametrize("exits", ["0", "2"])
def test_the_slurm_script_gives_each_worker_its_index(
    exits: str, stand_ins: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = DOCS.read_text("utf-8").partition("```bash\n")[2].partition("```")[0]
    monkeypatch.setenv("TRAINER_EXITS", exits)
    result = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert result.returncode == int(exits), result.stderr
    assert received_addresses(stand_ins, monkeypatch) == [["gpu-a:2222", "gpu-b:2222"], ["gpu-b:2222", "gpu-a:2222"]]
    # If the trainer ends with 0 before the last step, the script queues the job again.
    assert (stand_ins / "requeued").exists() == (exits == "0")
