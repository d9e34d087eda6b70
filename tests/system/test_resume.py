"""A training run that was killed or stopped, or whose files were damaged, resumes and gives the same model.

The model is Lookup, with dropout. tests/unit/training/test_checkpoint.py resumes a Transformer with all its dropouts.
"""

from __future__ import annotations

import importlib
import re
import shutil
import signal
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from types import SimpleNamespace
from typing import IO

import pytest
import tensorflow as tf

from processes import STOP_REQUESTED, Process, code_that_waits, start_program
from programs import LOOKUP, SMALL, succeed, write_pairs
from t2t_repro.checkpoints.reader import checkpoints_in, step_of
from t2t_repro.training.metrics_log import read_metrics

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
HPARAMS = f"{SMALL},layer_prepostprocess_dropout=0.1,attention_dropout=0.1,relu_dropout=0.1"
STEPS = 20
TIMES = {"seconds", "source_tokens_per_second", "target_tokens_per_second"}


@dataclass(frozen=True)
class Killed:
    """The files and the result of benchmarks/kill_resume.py, which compares killed runs with an undisturbed run."""

    text: Path
    data: Path
    unbroken: Path
    """The model folder of the undisturbed training run."""
    code: object
    """The exit code of kill_resume.py."""
    output: str

    def flags(self, model: Path) -> list[str]:
        """Returns flags with which t2t-trainer repeats the undisturbed run in another model folder."""
        return [
            "--problem=text_files", "--hparams_set=transformer_tiny", f"--hparams={HPARAMS}", *LOOKUP,
            f"--data_dir={self.data}", f"--output_dir={model}", f"--train_steps={STEPS}",
            "--local_eval_frequency=5", "--log_step_count_steps=1", "--eval_decode_lines=3",
        ]  # fmt: skip


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Runs benchmarks/kill_resume.py with --kills=3 and returns its files and its result."""
    root = tmp_path_factory.mktemp("killed")
    train = write_pairs(root / "text", "train", range(1000, 1900))
    dev = write_pairs(root / "text", "dev", range(1900, 1950))
    arguments = [
        "kill_resume", f"--train={train}", f"--dev={dev}", f"--work={root}", "--kills=3", "--seed=24",
        f"--train_steps={STEPS}", f"--hparams={HPARAMS}", "--high_step=0",
    ]  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as output:
        patch.syspath_prepend(str(BENCHMARKS))
        kill_resume = importlib.import_module("kill_resume")
        patch.setattr(kill_resume, "run", run_with_lookup)
        patch.setattr(kill_resume, "subprocess", SimpleNamespace(Popen=fork))
        kill_resume.flags.FLAGS(arguments)
        with pytest.raises(SystemExit) as end:
            kill_resume.main([])
    return Killed(root / "text", root / "data", root / "unbroken", end.value.code, output.getvalue())


def run_with_lookup(program: str, *arguments: str) -> None:
    """Runs t2t-PROGRAM; t2t-trainer trains the model Lookup. This function replaces `run` in kill_resume.py."""
    succeed(program, *arguments, *(LOOKUP if program == "trainer" else ()))


def fork(command: Sequence[str], stderr: IO[bytes]) -> Process:
    """Trains the model Lookup in a forked process. This function replaces subprocess.Popen in kill_resume.py."""
    return start_program("trainer", *command[1:], *LOOKUP, files={"stderr": stderr.name})


def steps(model: Path) -> list[int]:
    """Returns the steps of the checkpoints in a model folder, in ascending order."""
    return [step_of(path) for path in checkpoints_in(model)]


def assert_same(model: Path, unbroken: Path) -> None:
    """Asserts that two model folders have the same last checkpoint, best checkpoint and logged figures except times."""
    logs = [
        [{name: line[name] for name in line if name not in TIMES} for line in read_metrics(folder)]
        for folder in (model, unbroken)
    ]
    assert logs[0] == logs[1]
    assert len(logs[0]) == STEPS + STEPS // 5
    for place in (Path(f"model.ckpt-{STEPS}"), Path("best") / f"model.ckpt-{STEPS}"):
        ours, theirs = (tf.train.load_checkpoint(str(folder / place)) for folder in (model, unbroken))
        names = theirs.get_variable_to_shape_map().keys()
        assert ours.get_variable_to_shape_map().keys() == names
        assert sum(name.startswith(("weights/", "optimizer/")) for name in names) > 5
        for name in names:
            if "OBJECT_GRAPH" not in name:
                tensors = [checkpoint.get_tensor(name) for checkpoint in (ours, theirs)]
                contents = [tensor if isinstance(tensor, bytes) else tensor.tobytes() for tensor in tensors]
                assert contents[0] == contents[1], (place, name)


def test_kills_at_any_moment_change_nothing(killed: Killed) -> None:
    assert not killed.code, (killed.code, killed.output)
    assert len(re.findall("^kill ", killed.output, re.MULTILINE)) == 3
    assert " nothing differs\n" in killed.output
    assert steps(killed.unbroken) == [5, 10, 15, 20]
    models = sorted(killed.unbroken.parent.glob("killed_*[0-9]"))
    assert models
    for model in models:
        assert_same(model, killed.unbroken)


def test_the_first_signal_finishes_the_step_and_the_second_ends_at_once(killed: Killed, tmp_path: Path) -> None:
    model = tmp_path / "m"
    flags = killed.flags(model)

    step = ("t2t_repro.training.step:TrainStep", "__call__")
    process = start_program("trainer", *flags, before=code_that_waits(*step, call=3, until=STOP_REQUESTED))
    process.wait_for("waits\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    message = f"t2t-trainer: {model}: saved after step 3, as requested; run the same command to resume\n"
    assert process.errors.endswith(message)
    assert steps(model) == [3]

    process = start_program("trainer", *flags, before=code_that_waits(*step, call=1))
    process.wait_for("waits\n")
    process.send_signal(signal.SIGTERM)
    process.wait_for("SIGTERM: finishing the step, then saving")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == -signal.SIGINT
    assert "t2t-trainer: " not in process.errors
    assert steps(model) == [3]

    result = succeed("trainer", *flags)
    assert "resuming after step 3\n" in result.stderr
    assert_same(model, killed.unbroken)
    assert steps(model) == steps(killed.unbroken)  # model.ckpt-3, saved at the signal, was deleted


def test_a_training_resumes_before_damaged_checkpoints(killed: Killed, tmp_path: Path) -> None:
    model = tmp_path / "m"
    shutil.copytree(killed.unbroken, model)
    cut, flipped = (model / f"model.ckpt-{step}.data-00000-of-00001" for step in (20, 15))
    cut.write_bytes(cut.read_bytes()[:-1000])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    result = succeed("trainer", *killed.flags(model), "--keep_checkpoint_max=2")
    for step in (20, 15):
        assert f"{model}/model.ckpt-{step}: damaged" in result.stderr
    assert "resuming after step 10\n" in result.stderr
    assert steps(model) == [15, 20]
    assert_same(model, killed.unbroken)


def test_a_warm_start_begins_with_the_weights(killed: Killed, tmp_path: Path) -> None:
    model = tmp_path / "m"
    flags = [*killed.flags(model), f"--warm_start_from={killed.unbroken}", "--train_steps=1", "--eval_decode_lines=0"]
    result = succeed("trainer", *flags)
    assert f"{killed.unbroken}/model.ckpt-{STEPS}: training starts from its weights" in result.stderr
    # The first step has learning rate 0. After it, the new model still has the old model's weights and dev loss.
    [*_, old], [_, new] = read_metrics(killed.unbroken), read_metrics(model)
    assert (new["step"], new["dev_loss"]) == (1, old["dev_loss"])


def test_a_stopped_reproduction_does_not_average(tmp_path: Path) -> None:
    model = tmp_path / "m"
    flags = [
        "--problem=numbers_ende", "--hparams_set=transformer_tiny", f"--hparams={SMALL}", "--train_size=300",
        "--vocab_size=340", "--train_steps=3", f"--data_dir={tmp_path / 'data'}", f"--output_dir={model}",
        "--eval_decode_lines=20", *LOOKUP,
    ]  # fmt: skip
    evaluation = code_that_waits("t2t_repro.training.evaluation:Evaluator", "__call__", call=1, until=STOP_REQUESTED)
    process = start_program("reproduce", *flags, before=evaluation)
    process.wait_for("waits\n")
    assert steps(model) == [3]
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 130, process.errors
    assert "step 3: evaluation interrupted, as requested; the same command evaluates first\n" in process.errors
    assert f": {model}: saved after step 3, as requested; run the same command to resume\n" in process.errors
    assert not (model / "averaged").exists()
