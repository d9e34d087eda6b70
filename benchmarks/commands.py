"""Functions that run t2t programs of the current Python environment, for the other benchmarks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from t2t_repro.training.metrics_log import Evaluations, read_metrics


def run(program: str, *arguments: str) -> tuple[str, str]:
    """Runs the program t2t-`program`. Returns its standard output and its standard error.

    Also prints the standard error while the program runs. Exits with the program's exit code if the
    program fails.
    """
    command = [str(Path(sys.executable).parent / f"t2t-{program}"), *arguments]
    messages = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        for line in process.stderr:
            print(line, end="", file=sys.stderr, flush=True)
            messages.append(line)
        output = process.stdout.read()
    if process.returncode:
        sys.exit(process.returncode)
    return output, "".join(messages)


def run_trainer(model: str | Path, *arguments: str) -> list[dict[str, Any]]:
    """Runs t2t-trainer for the model folder `model`. Returns the lines of metrics.jsonl that are
    evaluations.

    Exits if a signal stopped the run before its last step, because t2t-trainer then has exit code
    0. Early stopping may end the run earlier.
    """
    run("trainer", f"--output_dir={model}", *arguments)
    train_steps = json.loads((Path(model) / "hparams.json").read_text())["train_steps"]
    evaluations = [line for line in read_metrics(model) if "dev_loss" in line]
    patience = next(
        (int(flag.partition("=")[2]) for flag in arguments if "early_stopping_patience" in flag), 0
    )
    has_converged = 0 < patience <= Evaluations(evaluations).evaluations_since_best()
    if not has_converged and (not evaluations or evaluations[-1]["step"] < train_steps):
        sys.exit(
            f"{model}: training stopped before step {train_steps}; run the same command to continue"
        )
    return evaluations
