"""A training run that was killed or stopped resumes and gives the same model.

The model is Lookup, with dropout. Its data are two corpora with weights, and its subwords are
sampled.
"""

import importlib
import re
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
from programs import LOOKUP, SMALL, refused, run, succeed, write_pairs
from t2t_repro.checkpoints.reader import checkpoints_in, step_of
from t2t_repro.training.metrics_log import read_metrics

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
HPARAMS = (
    f"{SMALL},subword_alpha=0.1,layer_prepostprocess_dropout=0.1,attention_dropout=0.1,"
    "relu_dropout=0.1"
)
STEPS = 20
NUMBERS = {"large": range(1000, 1700), "small": range(1700, 1900)}
"""The numbers that are the text of each corpus."""
TWO_DEVICES = """
import tensorflow as tf
cpu = tf.config.list_physical_devices("CPU")[0]
tf.config.set_logical_device_configuration(cpu, [tf.config.LogicalDeviceConfiguration()] * 2)
"""
TIMES = {"seconds", "source_tokens_per_second", "target_tokens_per_second"}


@dataclass(frozen=True)
class Killed:
    """The files and the result of benchmarks/kill_resume.py, which compares killed runs with an
    undisturbed run.
    """

    data: Path
    unbroken: Path
    """The model folder of the undisturbed training run."""
    code: object
    """The exit code of kill_resume.py."""
    output: str

    def flags(self, model: Path) -> list[str]:
        """Returns flags with which t2t-trainer repeats the undisturbed run in another model
        folder.
        """
        return [
            "--problem=text_files",
            "--hparams_set=transformer_tiny",
            f"--hparams={HPARAMS}",
            *LOOKUP,
            f"--data_dir={self.data}",
            f"--output_dir={model}",
            f"--train_steps={STEPS}",
            "--local_eval_frequency=5",
            "--log_step_count_steps=1",
            "--eval_decode_lines=3",
        ]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Runs benchmarks/kill_resume.py with --kills=2 and returns its files and its result."""
    root = tmp_path_factory.mktemp("killed")
    corpora = (write_pairs(root / "text", name, numbers) for name, numbers in NUMBERS.items())
    train = ";".join(f"{files}:{weight}" for files, weight in zip(corpora, (1, 4), strict=True))
    dev = write_pairs(root / "text", "dev", range(1900, 1950))
    arguments = [
        "kill_resume",
        f"--train={train}",
        f"--dev={dev}",
        f"--work={root}",
        "--kills=2",
        "--seed=24",
        f"--train_steps={STEPS}",
        f"--hparams={HPARAMS}",
        "--high_step=0",
    ]
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()) as output:
        patch.syspath_prepend(str(BENCHMARKS))
        kill_resume = importlib.import_module("kill_resume")
        patch.setattr(kill_resume, "run", run_with_lookup)
        patch.setattr(kill_resume, "subprocess", SimpleNamespace(Popen=fork))
        kill_resume.flags.FLAGS(arguments)
        with pytest.raises(SystemExit) as end:
            kill_resume.main([])
    return Killed(root / "data", root / "unbroken", end.value.code, output.getvalue())


def run_with_lookup(program: str, *arguments: str) -> None:
    """Runs t2t-PROGRAM; t2t-trainer trains the model Lookup. This function replaces `run` in
    kill_resume.py.
    """
    succeed(program, *arguments, *(LOOKUP if program == "trainer" else ()))


def fork(command: Sequence[str], stderr: IO[bytes]) -> Process:
    """Trains the model Lookup in a forked process. This function replaces subprocess.Popen in
    kill_resume.py.
    """
    return start_program("trainer", *command[1:], *LOOKUP, files={"stderr": stderr.name})


def steps(model: Path) -> list[int]:
    """Returns the steps of the checkpoints in a model folder, in ascending order."""
    return [step_of(path) for path in checkpoints_in(model)]


def assert_same(model: Path, unbroken: Path) -> None:
    """Asserts that two model folders have the same checkpoints and logged figures except times."""
    logs = [
        [{name: line[name] for name in line if name not in TIMES} for line in read_metrics(folder)]
        for folder in (model, unbroken)
    ]
    assert logs[0] == logs[1]
    assert len(logs[0]) == STEPS + STEPS // 5
    for place in (
        Path(f"model.ckpt-{STEPS}"),
        Path("best") / f"model.ckpt-{steps(unbroken / 'best')[0]}",
    ):
        ours, theirs = (
            tf.train.load_checkpoint(str(folder / place)) for folder in (model, unbroken)
        )
        names = theirs.get_variable_to_shape_map().keys()
        assert ours.get_variable_to_shape_map().keys() == names
        assert sum(name.startswith(("weights/", "optimizer/")) for name in names) > 5
        for name in names:
            if "OBJECT_GRAPH" not in name:
                tensors = [checkpoint.get_tensor(name) for checkpoint in (ours, theirs)]
                contents = [
                    tensor if isinstance(tensor, bytes) else tensor.tobytes() for tensor in tensors
                ]
                assert contents[0] == contents[1], (place, name)


def test_kills_at_any_moment_change_nothing(killed: Killed) -> None:
    assert not killed.code, (killed.code, killed.output)
    assert len(re.findall("^kill ", killed.output, re.MULTILINE)) == 2
    assert " nothing differs\n" in killed.output
    assert steps(killed.unbroken) == [5, 10, 15, 20]
    models = sorted(killed.unbroken.parent.glob("killed_*[0-9]"))
    assert models
    for model in models:
        assert_same(model, killed.unbroken)


def test_a_kill_changes_nothing_on_two_devices_nor_in_what_is_chosen(
    killed: Killed, tmp_path: Path
) -> None:
    choice = ["--best_by=chrf", "--max_checkpoints_by_score=2", "--keep_checkpoint_max=1"]
    flags = {name: [*killed.flags(tmp_path / name), *choice] for name in ("killed", "unbroken")}
    waits = code_that_waits("t2t_repro.training.step:TrainStep", "__call__", call=9)
    process = start_program("trainer", *flags["killed"], before=TWO_DEVICES + waits)
    unbroken = start_program("trainer", *flags["unbroken"], before=TWO_DEVICES)
    process.wait_for("waits\n")
    process.kill()
    assert process.wait() == -signal.SIGKILL
    assert steps(tmp_path / "killed") == [5]
    result = start_program("trainer", *flags["killed"], before=TWO_DEVICES).result()
    assert (
        result.returncode == 0
        and "resuming after step 5\n" in result.stderr
        and "; 2 x " in result.stderr
    )
    assert unbroken.wait() == 0
    assert_same(tmp_path / "killed", tmp_path / "unbroken")
    # One of the two best checkpoints is that of step 5, which was saved before the kill.
    lines = [line for line in read_metrics(tmp_path / "unbroken") if "dev_chrf" in line]
    best = [line["step"] for line in sorted(lines, key=lambda line: line["dev_chrf"], reverse=True)]
    assert steps(tmp_path / "unbroken" / "best") == best[:1]
    assert steps(tmp_path / "killed") == steps(tmp_path / "unbroken") == sorted({*best[:2], STEPS})
    average = ["avg-checkpoints", f"--output_dir={tmp_path / 'killed'}", "--nocompare", LOOKUP[0]]
    assert f"model.ckpt-{max(best[:2])}\n" in succeed(*average, "--num_best_checkpoints=2").stderr
    refused(
        run(*average, "--num_best_checkpoints=3"),
        "no longer exists",
        "--max_checkpoints_by_score=3",
    )


def test_the_first_signal_finishes_the_step_and_the_second_ends_at_once(
    killed: Killed, tmp_path: Path
) -> None:
    model = tmp_path / "m"
    flags = killed.flags(model)

    step = ("t2t_repro.training.step:TrainStep", "__call__")
    process = start_program(
        "trainer", *flags, before=code_that_waits(*step, call=3, until=STOP_REQUESTED)
    )
    process.wait_for("waits\n")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 0
    message = (
        f"t2t-trainer: {model}: saved after step 3, as requested; run the same command to resume\n"
    )
    assert process.errors.endswith(message)
    assert steps(model) == [3]

    process = start_program("trainer", *flags, before=code_that_waits(*step, call=1))
    process.wait_for("waits\n")
    process.send_signal(signal.SIGTERM)
    process.wait_for("SIGTERM: finishing the step, then saving")
    process.send_signal(signal.SIGINT)
    assert process.wait(120) == 128 + signal.SIGINT
    assert "t2t-trainer: " not in process.errors
    assert steps(model) == [3]

    result = succeed("trainer", *flags)
    assert "resuming after step 3\n" in result.stderr
    assert_same(model, killed.unbroken)
    assert steps(model) == steps(killed.unbroken)  # model.ckpt-3, saved at the signal, was deleted
