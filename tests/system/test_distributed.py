"""A training run takes the same steps in two workers, and resumes after a worker was killed.

The tests train the model Lookup. tests/unit/training/test_step.py tests that a model takes the same
steps on two devices and with any micro-batches.
"""

import random
import re
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import clusters
from processes import Process
from programs import LOOKUP, refused, succeed, write_pairs
from t2t_repro.checkpoints.reader import checkpoints_in, step_of
from t2t_repro.training.metrics_log import read_metrics

BATCH_SIZE = 1024
STEPS = 40
HPARAMS = (
    f"num_hidden_layers=1,hidden_size=32,filter_size=64,num_heads=4,batch_size={BATCH_SIZE},"
    "attention_dropout=0.1,relu_dropout=0.1"
)
"""Hparams overrides for a small model with all kinds of dropout. It keeps the paper's learning
rates, which are tiny in the first steps. Adam turns even a gradient of rounding errors into a step
of the whole learning rate, up or down. With high learning rates, such steps would make the weights
of equal runs different.
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Returns a folder with generated data: numbers of up to 6 digits, but every 20th number has up
    to 30 digits.
    """
    root = tmp_path_factory.mktemp("numbers")
    draw = random.Random(1)
    numbers = [
        draw.randrange(10 ** (draw.randrange(1, 7) if place % 20 else 30)) for place in range(1050)
    ]
    train = write_pairs(root, "train", numbers[:1000])
    dev = write_pairs(root, "dev", numbers[1000:])
    files = (f"--train={train}", f"--dev={dev}", f"--data_dir={root / 'data'}")
    succeed("datagen", "--problem=text_files", *files, "--vocab_size=400")
    return root / "data"


def trainer_flags(data: Path, model: Path, *flags: str) -> list[str]:
    return [
        "--problem=text_files",
        "--hparams_set=transformer_base",
        *LOOKUP,
        f"--hparams={HPARAMS}",
        f"--data_dir={data}",
        f"--output_dir={model}",
        "--eval_decode_lines=0",
        "--eval_steps=1",
        f"--train_steps={STEPS}",
        "--local_eval_frequency=10",
        "--log_step_count_steps=1",
        *flags,
    ]


def start_two(data: Path, model: Path, *flags: str) -> list[Process]:
    """Starts two t2t-trainer workers that train `model` together; the first one is the chief."""
    cluster = {"worker": clusters.free_addresses(2)}
    return [
        clusters.start_trainer(
            *trainer_flags(data, model, *flags), config=clusters.tf_config(cluster, index=index)
        )
        for index in range(2)
    ]


def finish(*processes: Process) -> list[str]:
    """Waits until all processes end, asserts that they succeeded, and returns what they wrote to
    standard error.
    """
    results = [process.result() for process in processes]
    for result in results:
        assert result.returncode == 0, result.stderr
    return [result.stderr for result in results]


def state(model: Path) -> dict[str, np.ndarray]:
    """Returns the weights and the optimizer's variables in the last checkpoint, by name."""
    checkpoint = tf.train.load_checkpoint(f"{model}/model.ckpt-{STEPS}")
    names = checkpoint.get_variable_to_shape_map()
    return {
        name: checkpoint.get_tensor(name)
        for name in names
        if name.startswith(("weights/", "optimizer/"))
    }


def figures(model: Path, name: str) -> list[float]:
    """Returns the values of `name` in metrics.jsonl, one for each step."""
    return [line[name] for line in read_metrics(model) if name in line]


@pytest.fixture(scope="module")
def models(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Trains the same model on one device, and in two workers with accumulation."""
    root = tmp_path_factory.mktemp("models")
    small = "--max_tokens_per_replica=150"
    one = clusters.start_trainer(*trainer_flags(data, root / "one"))
    finish(one, *start_two(data, root / "workers", small))
    return root


def test_a_training_is_the_same_on_one_device_and_in_two_workers(models: Path) -> None:
    one = models / "one"
    other = models / "workers"
    assert len(figures(other, "train_loss")) == STEPS
    np.testing.assert_allclose(figures(other, "train_loss"), figures(one, "train_loss"), rtol=1e-5)
    # If a wrong factor multiplied all gradients, Adam's steps would still be right. Only the norm
    # would be wrong.
    np.testing.assert_allclose(
        figures(other, "gradient_norm"), figures(one, "gradient_norm"), rtol=1e-4
    )
    weights = state(other)
    for key, value in state(one).items():
        if key.startswith("weights/"):
            np.testing.assert_allclose(weights[key], value, rtol=0, atol=2e-5, err_msg=key)


def first_new_checkpoint(model: Path, processes: list[Process]) -> int:
    """Waits until the running processes write a new checkpoint and returns the checkpoint's
    step.
    """
    before = set(checkpoints_in(model))
    deadline = time.monotonic() + 200
    while not (new := set(checkpoints_in(model)) - before):
        assert [process.poll() for process in processes] == [None, None]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return max(map(step_of, new))


def test_a_training_resumes_after_losing_a_worker_or_the_chief(
    data: Path, models: Path, tmp_path: Path
) -> None:
    model = tmp_path / "broken"
    small = "--max_tokens_per_replica=150"
    for victim in (1, 0):
        both = start_two(data, model, small)
        last = first_new_checkpoint(model, both)
        both[victim].kill()
        results = [process.result() for process in both]
        assert results[victim].returncode == -signal.SIGKILL
        refused(results[1 - victim], "lost the connection to the other workers", "start all again")
        assert "grpc_status" not in results[1 - victim].stderr

    both = start_two(data, model, small)
    assert first_new_checkpoint(model, both) > last
    both[1].send_signal(signal.SIGTERM)
    stops = [re.search(r"saved after step (\d+), as requested", errors) for errors in finish(*both)]
    [stopped] = {int(stop[1]) for stop in stops if stop}
    assert len([stop for stop in stops if stop]) == 2 and last < stopped < STEPS
    assert stopped in map(step_of, checkpoints_in(model))

    chief, _ = finish(*start_two(data, model, small))
    assert f"resuming after step {stopped}\n" in chief
    resumed = state(model)
    for name, value in state(models / "workers").items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


def test_two_workers_stop_early_at_the_same_step(data: Path, tmp_path: Path) -> None:
    # The learning rate is almost 0, so no later evaluation has a lower dev loss than the first.
    flags = [
        "--local_eval_frequency=3",
        "--early_stopping_patience=2",
        "--save_checkpoints_secs=600",
        f"--hparams={HPARAMS},learning_rate_constant=1e-30",
    ]
    finish(*start_two(data, tmp_path / "m", *flags))
    assert list(map(step_of, checkpoints_in(tmp_path / "m"))) == [9]


def test_a_dry_run_waits_for_no_other_worker(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    monkeypatch.setenv("TF_CONFIG", clusters.tf_config(cluster, index=1))
    result = succeed("trainer", *trainer_flags(data, tmp_path / "m", "--dry_run"))
    assert "trained on            2 workers, each 1 x " in result.stdout
    assert list(tmp_path.iterdir()) == []
