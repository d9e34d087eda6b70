"""Trains one model on different numbers of devices and processes, and prints how much the results
differ.

    python benchmarks/any_devices.py --data=D --work=FOLDER

See docs/distributed.md, which has the table that this script prints. D is a data directory of
t2t-datagen with problem text_files. The devices are logical devices of the CPU. The script skips
runs that the work folder already has.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
from absl import app, flags

from t2t_repro.checkpoints.reader import read_checkpoint
from t2t_repro.training.metrics_log import read_metrics

DATA = flags.DEFINE_string("data", None, "data directory of t2t-datagen", required=True)
WORK = flags.DEFINE_string("work", None, "folder of all models", required=True)
STEPS = flags.DEFINE_integer("train_steps", 20, "number of steps of each run", lower_bound=1)
BATCH_SIZE = flags.DEFINE_integer("batch_size", 2048, "target tokens of a step", lower_bound=1)

ONE = (1, 1, 4096)
RUNS = [(devices, 1, limit) for devices in (1, 2, 3, 4) for limit in (4096, 600, 250)]
RUNS += [(1, 2, 4096), (1, 2, 250), (2, 2, 250)]
"""For each run, the number of devices in each process, the number of processes, and
--max_tokens_per_replica.
"""

PROGRAM = """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * {})
from t2t_repro.bin.t2t_trainer import run
run()
"""


def cluster(processes: int) -> list[dict[str, str]]:
    """Returns the environment of each process, in which TF_CONFIG has a free port for each."""
    if processes == 1:
        return [dict(os.environ)]
    sockets = [socket.create_server(("localhost", 0)) for _ in range(processes)]
    workers = [f"localhost:{worker_socket.getsockname()[1]}" for worker_socket in sockets]
    for worker_socket in sockets:
        worker_socket.close()
    tasks = ({"type": "worker", "index": index} for index in range(processes))
    return [
        {**os.environ, "TF_CONFIG": json.dumps({"cluster": {"worker": workers}, "task": task})}
        for task in tasks
    ]


def train(devices: int, processes: int, limit: int, rate: float) -> tuple[np.ndarray, np.ndarray]:
    """Trains a model if the work folder does not have it. Returns all its weights [W], and the loss
    of each step.
    """
    folder = Path(WORK.value) / f"{devices}x{processes}_{limit}_dropout_{rate}"
    checkpoint = folder / f"model.ckpt-{STEPS.value}"
    if not checkpoint.with_suffix(f"{checkpoint.suffix}.index").exists():
        hparams = (
            "num_hidden_layers=2,hidden_size=128,filter_size=512,num_heads=4,"
            f"batch_size={BATCH_SIZE.value},layer_prepostprocess_dropout={rate},"
            f"attention_dropout={rate},relu_dropout={rate}"
        )
        arguments = [
            "t2t-trainer",
            "--problem=text_files",
            "--hparams_set=transformer_base",
            f"--hparams={hparams}",
            f"--data_dir={DATA.value}",
            f"--output_dir={folder}",
            f"--train_steps={STEPS.value}",
            f"--local_eval_frequency={STEPS.value}",
            "--eval_decode_lines=0",
            "--eval_steps=1",
            "--log_step_count_steps=1",
            f"--max_tokens_per_replica={limit}",
        ]
        program = f"import sys\nsys.argv = {arguments}\n{PROGRAM.format(devices)}"
        command = [sys.executable, "-c", program]
        workers = [subprocess.Popen(command, env=environment) for environment in cluster(processes)]
        exit_codes = [worker.wait() for worker in workers]
        if any(exit_codes):
            sys.exit(f"{folder}: training failed")
    weights = read_checkpoint(str(checkpoint)).weights
    losses = [line["train_loss"] for line in read_metrics(folder) if "train_loss" in line]
    return np.concatenate([weights[name].reshape(-1) for name in sorted(weights)]), np.array(losses)


def main(argv: list[str]) -> None:
    """Trains all models and prints the table."""
    rows = []
    for rate in (0.0, 0.1):
        weights, losses = train(*ONE, rate)
        for run in RUNS:
            if run == ONE:
                continue
            other_weights, other_losses = train(*run, rate)
            difference = np.abs(other_weights - weights)
            loss = np.abs(other_losses / losses - 1).max()
            devices, processes, limit = run
            differences = f"{difference.max():.1e} | {(difference > 1e-6).sum()} | {loss:.1e}"
            rows.append(f"| {rate} | {processes} | {devices} | {limit} | {differences} |")
    print(f"{len(weights):,} weights, {STEPS.value} steps\n")
    print(
        "| dropout | processes | devices of each | positions of a micro-batch, at most "
        "| largest difference of a weight | weights that differ by more than 1e-6 "
        "| largest relative difference of a step's loss |\n"
        "| ---: | ---: | ---: | ---: | ---: | ---: | ---: |"
    )
    print("\n".join(rows))


if __name__ == "__main__":
    app.run(main)
