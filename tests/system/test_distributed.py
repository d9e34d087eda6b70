"""A training run takes the same steps on any number of devices and workers, and resumes after a worker was killed.

Most tests train the model Lookup. tests/unit/training/test_step.py tests that a Transformer takes the same steps on two
devices and with any micro-batches.
"""

from __future__ import annotations

import json
import random
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import clusters
from processes import Process
from programs import LOOKUP, refused, succeed, write_pairs
from t2t_repro.checkpoints.reader import checkpoints_in, step_of
from t2t_repro.data.dataset import load_data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.hparam import HParams

BATCH_SIZE, STEPS = 1024, 20
HPARAMS = (
    f"num_hidden_layers=1,hidden_size=32,filter_size=64,num_heads=4,batch_size={BATCH_SIZE},"
    "attention_dropout=0.1,relu_dropout=0.1"
)
"""Hparams overrides for a small model with all kinds of dropout. It keeps the paper's learning rates, which are tiny in
the first steps. Adam turns even a gradient of rounding errors into a step of the whole learning rate, up or down. With
high learning rates, such steps would make the weights of equal runs different."""

LOGICAL_DEVICES = """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * {}
)
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with generated data: numbers of up to 6 digits, but every 20th number has up to 30 digits."""
    root = tmp_path_factory.mktemp("numbers")
    draw = random.Random(1)
    numbers = [draw.randrange(10 ** (draw.randrange(1, 7) if place % 20 else 30)) for place in range(1050)]
    train, dev = write_pairs(root, "train", numbers[:1000]), write_pairs(root, "dev", numbers[1000:])
    succeed(
        "datagen", "--problem=text_files", f"--train={train}", f"--dev={dev}", "--vocab_size=400",
        f"--data_dir={root / 'data'}",
    )  # fmt: skip
    return root / "data"


def trainer_flags(data: Path, model: Path, *flags: str) -> list[str]:
    return [
        "--problem=text_files", "--hparams_set=transformer_base", *LOOKUP,
        f"--hparams={HPARAMS}", f"--data_dir={data}", f"--output_dir={model}",
        "--eval_decode_lines=0", "--eval_steps=1", *flags,
    ]  # fmt: skip


def start_two(data: Path, model: Path, *flags: str, worker_flags: Sequence[str] = ("", "")) -> list[Process]:
    """Starts two t2t-trainer workers that train `model` together; the first one is the chief.

    Args:
        flags: flags of both workers.
        worker_flags: an additional flag for each worker; an empty string adds none.
    """
    cluster = {"worker": clusters.free_addresses(2)}
    processes = []
    for index, flag in enumerate(worker_flags):
        arguments = trainer_flags(data, model, *flags, *filter(None, [flag]))
        processes.append(clusters.start_trainer(*arguments, config=clusters.tf_config(cluster, index=index)))
    return processes


def ended(*processes: Process) -> list[subprocess.CompletedProcess[str]]:
    """Waits until all processes end and returns their exit codes and outputs."""
    return [process.result() for process in processes]


def state(model: Path, step: int) -> dict[str, np.ndarray]:
    """Returns the weights and the optimizer's variables in the checkpoint of step `step`, by name."""
    checkpoint = tf.train.load_checkpoint(f"{model}/model.ckpt-{step}")
    names = checkpoint.get_variable_to_shape_map()
    return {name: checkpoint.get_tensor(name) for name in names if name.startswith(("weights/", "optimizer/"))}


def figures(model: Path, name: str) -> list[float]:
    """Returns the values of `name` in metrics.jsonl, one for each step."""
    lines = map(json.loads, (model / "metrics.jsonl").read_text("utf-8").splitlines())
    return [line[name] for line in lines if name in line]


CUTS = {  # {name of the run with one worker: (number of devices, --max_tokens_per_replica)}
    "one": (1, 4096),
    "2 devices": (2, 4096),
    "4 devices": (4, 4096),
    "accumulated micro-batches": (1, 300),
    "3 devices, small micro-batches": (3, 150),
}
# {name of the run with two workers: --max_tokens_per_replica}
WORKERS = {"2 workers": 4096, "2 workers, small micro-batches": 150}


@pytest.fixture(scope="module")
def models(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Trains the same model once for each entry of CUTS and of WORKERS; returns the model folders by run name."""
    root = tmp_path_factory.mktemp("models")
    flags = [f"--train_steps={STEPS}", f"--local_eval_frequency={STEPS}", "--log_step_count_steps=1"]

    def train(name: str) -> None:
        devices, limit = CUTS.get(name) or (1, WORKERS[name])
        arguments = [*flags, f"--max_tokens_per_replica={limit}"]
        if name in WORKERS:
            processes = start_two(data, root / name, *arguments)
        else:
            before = LOGICAL_DEVICES.format(devices) if devices > 1 else ""
            processes = [clusters.start_trainer(*trainer_flags(data, root / name, *arguments), before=before)]
        for result in ended(*processes):
            assert result.returncode == 0, result.stderr

    with ThreadPoolExecutor(2) as two_at_once:
        list(two_at_once.map(train, (*CUTS, *WORKERS)))
    return {name: root / name for name in (*CUTS, *WORKERS)}


@pytest.mark.parametrize("name", [*list(CUTS)[1:], *WORKERS])
def test_a_training_is_the_same_on_any_devices(models: dict[str, Path], name: str) -> None:
    one, other = models["one"], models[name]
    assert len(figures(other, "train_loss")) == STEPS
    np.testing.assert_allclose(figures(other, "train_loss"), figures(one, "train_loss"), rtol=1e-6)
    # If a wrong factor multiplied all gradients, Adam's steps would still be right. Only the norm would be wrong.
    np.testing.assert_allclose(figures(other, "gradient_norm"), figures(one, "gradient_norm"), rtol=1e-5)
    weights = state(other, STEPS)
    for key, value in state(one, STEPS).items():
        if key.startswith("weights/"):
            np.testing.assert_allclose(weights[key], value, rtol=0, atol=1e-5, err_msg=key)


def test_the_trainings_cut_their_steps_differently(data: Path) -> None:
    records = load_data(str(data), "text_files").records["train"]

    def sizes(devices: int, limit: int) -> list[list[int]]:
        """Returns, for each step, the number of examples in each micro-batch. `limit` is --max_tokens_per_replica."""
        batches = Pipeline(records, HParams(batch_size=BATCH_SIZE), 1, limit, devices).batches(0, STEPS)
        return [[len(cut.inputs) for cut in batch.micro_batches] for batch in batches]

    whole, two, four, accumulated, three = ([len(step) for step in sizes(*cut)] for cut in CUTS.values())
    assert {*whole, *two} == {2}
    assert {*four} == {4}
    assert min(accumulated) >= 4
    # In the run with 3 devices, each step has more than 6 micro-batches. If the examples of a step fill a number of
    # micro-batches that is no multiple of 3, the pipeline adds empty micro-batches.
    assert min(three) > 6
    assert any(len(step) % 3 for step in sizes(1, 150))
    unequal = sizes(3, 150)
    assert any(0 in step for step in unequal)
    assert any(max(step) > 4 * min(size for size in step if size) for step in unequal)


def first_new_checkpoint(model: Path, processes: list[Process]) -> int:
    """Waits until the running processes write a new checkpoint and returns the checkpoint's step."""
    before, deadline = set(model.glob("model.ckpt-*.index")), time.monotonic() + 200
    while not (new := set(model.glob("model.ckpt-*.index")) - before):
        assert [process.poll() for process in processes] == [None, None]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return max(int(path.stem.rpartition("-")[2]) for path in new)


def test_a_training_resumes_after_losing_a_worker_or_the_chief(data: Path, tmp_path: Path) -> None:
    flags = ["--train_steps=120", "--local_eval_frequency=10", "--max_tokens_per_replica=4096"]
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    for result in ended(*start_two(data, unbroken, *flags)):
        assert result.returncode == 0, result.stderr

    for victim in (1, 0):
        both = start_two(data, broken, *flags)
        last = first_new_checkpoint(broken, both)
        both[victim].kill()
        results = ended(*both)
        assert results[victim].returncode == -signal.SIGKILL
        refused(results[1 - victim], "lost the connection to the other workers", "start all again")
        assert "grpc_status" not in results[1 - victim].stderr

    both = start_two(data, broken, *flags)
    assert first_new_checkpoint(broken, both) > last
    both[1].send_signal(signal.SIGTERM)
    for result in ended(*both):
        assert result.returncode == 0, result.stderr
        message = re.search(r"saved after step (\d+), as requested", result.stderr)
        assert message, result.stderr
        stopped = int(message[1])
        assert (broken / f"model.ckpt-{stopped}.index").exists()
        assert last < stopped < 120

    chief, _ = ended(*start_two(data, broken, *flags))
    assert f"resuming after step {stopped}\n" in chief.stderr
    resumed = state(broken, 120)
    for name, value in state(unbroken, 120).items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


def test_every_worker_refuses_flags_that_differ(data: Path, tmp_path: Path) -> None:
    worker_flags = ["--max_tokens_per_replica=300", "--max_tokens_per_replica=600"]
    for result in ended(*start_two(data, tmp_path / "model", "--train_steps=2", worker_flags=worker_flags)):
        refused(result, "--max_tokens_per_replica is 300 and 600 on different workers; start all with the same command")
    assert not (tmp_path / "model").exists()


def test_a_model_folder_that_one_worker_does_not_see_is_refused(data: Path, tmp_path: Path) -> None:
    worker_flags = [f"--output_dir={tmp_path / name}" for name in ("chiefs", "others")]
    chief, other = ended(*start_two(data, tmp_path, "--train_steps=2", worker_flags=worker_flags))
    refused(
        other,
        f"{tmp_path / 'others'}: the chief created it, but this worker does not see it; put --output_dir on a disk",
    )
    assert chief.returncode == 2


def test_two_workers_stop_early_at_the_same_step(data: Path, tmp_path: Path) -> None:
    # The learning rate is almost 0, so no later evaluation has a lower dev loss than the first.
    flags = ["--train_steps=50", "--local_eval_frequency=3", "--early_stopping_patience=2",
             "--save_checkpoints_secs=600", f"--hparams={HPARAMS},learning_rate_constant=1e-30"]  # fmt: skip
    for result in ended(*start_two(data, tmp_path / "m", *flags)):
        assert result.returncode == 0, result.stderr
    assert list(map(step_of, checkpoints_in(tmp_path / "m"))) == [9]


def test_a_dry_run_waits_for_no_other_worker(data: Path, tmp_path: Path) -> None:
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    flags = trainer_flags(data, tmp_path / "m", "--dry_run")
    (result,) = ended(clusters.start_trainer(*flags, config=clusters.tf_config(cluster, index=1)))
    assert result.returncode == 0, result.stderr
    assert "trained on            2 workers, each 1 x " in result.stdout
    assert list(tmp_path.iterdir()) == []
