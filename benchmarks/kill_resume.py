"""Kills small training runs at random moments, resumes them, and compares each with an "unbroken"
run.

    python benchmarks/kill_resume.py --train=SOURCE,TARGET --dev=SOURCE,TARGET --work=FOLDER
    [--kills=50]

The unbroken run is the same training run without kills. --train and --dev take any pair of files
that t2t-datagen reads. All kinds of dropout are on. Every third kill comes while t2t-trainer writes
a checkpoint. The other kills come at a random time after the start of t2t-trainer, within the
duration of the unbroken run. If a run ends before its next kill, the script compares the run with
the unbroken run and starts a new run. The script starts t2t-trainer about every second time with
--save_checkpoints_secs=1, so that t2t-trainer also saves at steps without an evaluation. The last
checkpoint, the best checkpoint, every line of metrics.jsonl and every point in TensorBoard must
equal the unbroken run's bit by bit, except times and speeds.

Then the script lets t2t-trainer resume after 10 steps and after --high_step steps. It prints the
seconds from the start of the program to the end of its first new step.
"""

from __future__ import annotations

import collections
import random
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import tensorflow as tf
from absl import app, flags
from tensorflow.compat.v1 import Event, SessionLog

from commands import run
from t2t_repro.checkpoints.reader import checkpoints_in, step_of
from t2t_repro.files.output_files import UNFINISHED
from t2t_repro.training import logs, metrics_log
from t2t_repro.training.metrics_log import read_metrics

TRAIN = flags.DEFINE_string(
    "train", None, "like --train and --dev of t2t-datagen --problem=text_files", required=True
)
DEV = flags.DEFINE_string(
    "dev", None, "like --train and --dev of t2t-datagen --problem=text_files", required=True
)
WORK = flags.DEFINE_string("work", None, "folder of all output", required=True)
KILLS = flags.DEFINE_integer("kills", 50, "number of kills")
TRAIN_STEPS = flags.DEFINE_integer("train_steps", 40, "number of steps of each run")
HIGH_STEP = flags.DEFINE_integer(
    "high_step", 2000, "steps after which to time how a run resumes; 0: do not time"
)
SEED = flags.DEFINE_integer("seed", 1, "random seed for the times of the kills")

HPARAMS_SET = flags.DEFINE_string("hparams_set", "transformer_tiny", "hparams set")
HPARAMS = flags.DEFINE_string(
    "hparams",
    "num_hidden_layers=1,hidden_size=32,num_heads=2,filter_size=64,batch_size=400,learning_rate_warmup_steps=100,layer_prepostprocess_dropout=0.1,attention_dropout=0.1,relu_dropout=0.1",
    "overrides of the hparams set",
)

EVALUATION = 5
LOW_STEP = 10
TIMES = {"seconds", "source_tokens_per_second", "target_tokens_per_second"}


def flags_of(model: Path, steps: int, evaluation: int = EVALUATION) -> list[str]:
    """Returns t2t-trainer's flags for training in folder `model`, with an evaluation every
    `evaluation` steps.
    """
    return [
        "--problem=text_files", f"--hparams_set={HPARAMS_SET.value}", f"--hparams={HPARAMS.value}",
        f"--data_dir={WORK.value}/data", f"--output_dir={model}", f"--train_steps={steps}",
        f"--local_eval_frequency={evaluation}", "--log_step_count_steps=1", "--eval_decode_lines=3",
    ]  # fmt: skip


def half_written(model: Path) -> set[str]:
    """Returns the names of parts of checkpoints in a model folder and its best/ folder that are not
    complete.
    """
    files = {
        path.name
        for folder in (model, model / "best")
        if folder.exists()
        for path in folder.iterdir()
    }
    indexes = {name.removesuffix(".index") for name in files}
    return {
        name for name in files
        if name == UNFINISHED or (".data-" in name and name.partition(".data-")[0] not in indexes)
    }  # fmt: skip


def newest(model: Path) -> int:
    """Returns the step of the latest checkpoint in a model folder, or 0 if the folder has no
    checkpoint.
    """
    return max(map(step_of, checkpoints_in(model)), default=0)


def stage(model: Path, messages: str, start: int) -> str:
    """Returns what t2t-trainer was doing when it was killed, e.g. "it saves", judged by its files
    and messages.

    `start` is the step of the checkpoint from which the killed t2t-trainer resumed, or 0 if it had
    none.
    """
    if "steps an epoch" not in messages:
        return "it imports and opens the data"
    if half_written(model):
        return "it saves"
    last = next(iter(read_metrics(model)[-1:]), {"step": 0})
    if last["step"] <= start:
        return "it builds, restores, or takes its first step"
    if "dev_loss" not in last and last["step"] % EVALUATION == 0 and last["step"] == newest(model):
        return "it evaluates"
    return "it takes steps"


def killed(model: Path, arguments: list[str], reached: Callable[[], bool]) -> tuple[bool, str]:
    """Starts t2t-trainer and kills it when `reached()` returns True.

    Returns whether the kill came before t2t-trainer ended by itself, and what t2t-trainer wrote to
    standard error.
    """
    errors = model.with_suffix(".errors")
    with open(errors, "wb") as file:
        command = [str(Path(sys.executable).parent / "t2t-trainer"), *arguments]
        process = subprocess.Popen(command, stderr=file)
    while process.poll() is None and not reached():
        time.sleep(0.0002)
    process.kill()
    code = process.wait()
    messages = errors.read_text("utf-8", errors="replace")
    if code > 0:
        sys.exit(messages)
    return code < 0, messages


def after(seconds: float) -> Callable[[], bool]:
    """Returns a function that returns True once `seconds` have passed since the call of `after`."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() >= end


def at_saving(model: Path, number: int) -> Callable[[], bool]:
    """Returns a function that returns True while t2t-trainer writes its `number`-th checkpoint.

    The caller must call the function often, because the function counts only checkpoints that it
    sees being written.
    """
    count = 0
    was_saving = False

    def reached() -> bool:
        nonlocal count, was_saving
        is_saving = bool(half_written(model))
        count += is_saving and not was_saving
        was_saving = is_saving
        return count == number

    return reached


def content(model: Path) -> dict[str, object]:
    """Returns all values of a model folder that a kill must not change: {name: value}.

    The values are the tensors of the last and the best checkpoint, the lines of metrics.jsonl and
    the points in TensorBoard, without times and speeds.
    """
    values: dict[str, object] = {}
    for kind, path in (
        ("last", checkpoints_in(model)[-1]),
        ("best", checkpoints_in(model / "best")[-1]),
    ):
        reader = tf.train.load_checkpoint(path)
        for name in reader.get_variable_to_shape_map():
            value = reader.get_tensor(name)
            if "OBJECT_GRAPH" not in name:
                values[f"{kind}: {name}"] = value if isinstance(value, bytes) else value.tobytes()
    for line in read_metrics(model):
        kind = "evaluation" if "dev_loss" in line else "step"
        values[f"metrics.jsonl: {kind} {line['step']}"] = {
            k: line[k] for k in line if k not in TIMES
        }
    values["metrics.jsonl: lines"] = len(read_metrics(model))
    points: dict[str, dict[int, bytes]] = collections.defaultdict(dict)
    for event_file in sorted((model / logs.TENSORBOARD).iterdir()):
        try:
            for record in tf.data.TFRecordDataset(str(event_file)).as_numpy_iterator():
                event = Event.FromString(record)
                # A resumed t2t-trainer writes a START event with the number of its first step.
                # TensorBoard then drops the old points of this step and of later steps, because
                # t2t-trainer takes these steps again.
                if event.session_log.status == SessionLog.START:
                    for tag_points in points.values():
                        for step in [step for step in tag_points if step >= event.step]:
                            del tag_points[step]
                for value in event.summary.value:
                    points[value.tag][event.step] = value.SerializeToString()
        except tf.errors.DataLossError:  # a kill can leave half a record at the end of the file
            continue
    return values | {
        f"TensorBoard: {tag}": points[tag]
        for tag in points
        if tag.removeprefix("train/") not in TIMES
    }


def compare(model: Path, unbroken: Path) -> bool:
    """Prints how the folder `model` of a killed run differs from `unbroken`; returns True if the
    runs are equal.
    """
    ours = content(model)
    theirs = content(unbroken)
    different = sorted(
        name for name in ours.keys() | theirs.keys() if ours.get(name) != theirs.get(name)
    )
    leftovers = sorted(half_written(model) | {path.name for path in model.glob("damaged-*")})
    print(
        f"{model}: {len(different)} of {len(theirs)} values "
        f"differ{''.join(f', {name}' for name in different)}"
    )
    print(f"{model}: half-written files left behind: {', '.join(leftovers) or 'none'}")
    return not different


def kill_and_compare(work: Path) -> bool:
    """Kills runs --kills times and resumes them. Returns True if every run ends equal to the
    unbroken run.
    """
    unbroken = work / "unbroken"
    draw = random.Random(SEED.value)
    start_time = time.monotonic()
    run("trainer", *flags_of(unbroken, TRAIN_STEPS.value))
    seconds = time.monotonic() - start_time
    runs = 1
    stages = collections.Counter[str]()
    is_same = True
    while (kills := stages.total()) < KILLS.value:
        model = work / f"killed_{runs}"
        start = newest(model)
        save_flags = ["--save_checkpoints_secs=1"] * draw.randrange(2)
        moment = (
            at_saving(model, draw.randrange(1, 5))
            if kills % 3 == 2
            else after(draw.uniform(0.0, seconds))
        )
        was_killed, messages = killed(
            model, [*flags_of(model, TRAIN_STEPS.value), *save_flags], moment
        )
        if was_killed:
            task = stage(model, messages, start)
            stages[task] += 1
            print(
                f"kill {kills + 1}, of a run from step {start}, latest checkpoint "
                f"{newest(model)}: while {task}"
            )
        else:
            is_same &= compare(model, unbroken)
            runs += 1
    model = work / f"killed_{runs}"
    run("trainer", *flags_of(model, TRAIN_STEPS.value))
    is_same &= compare(model, unbroken)
    print(
        f"{KILLS.value} kills in {runs} training runs: "
        f"{'nothing differs' if is_same else 'SOMETHING DIFFERS'}"
    )
    for task, count in stages.most_common():
        print(f"  {count:3} while {task}")
    return is_same


def time_to_first_step(work: Path) -> None:
    """Prints the seconds that t2t-trainer needs to resume and take one step, after 10 and after
    --high_step steps.
    """
    folders = {}
    high = HIGH_STEP.value
    for step in (LOW_STEP, high):
        run("trainer", *flags_of(work / "long", step, evaluation=high))
        folders[step] = shutil.copytree(work / "long", work / f"after_{step}")
    taken: dict[int, list[float]] = collections.defaultdict(list)
    for _ in range(5):
        for step, folder in folders.items():
            copy = Path(shutil.copytree(folder, work / "resumed"))
            start_time = time.monotonic()
            log = copy / metrics_log.FILE
            size = log.stat().st_size

            def has_grown(log: Path = log, size: int = size) -> bool:
                return log.stat().st_size > size

            arguments = flags_of(copy, 2 * high, evaluation=high)
            killed(copy, arguments, has_grown)
            taken[step].append(time.monotonic() - start_time)
            shutil.rmtree(copy)
    for step, seconds in taken.items():
        times = ", ".join(f"{value:.2f}" for value in seconds)
        print(
            f"from the start to the end of step {step + 1:,}: {statistics.median(seconds):.2f} s, "
            f"median of {times}"
        )


def main(argv: list[str]) -> None:
    """Generates the data, compares killed runs with an unbroken run, and measures how fast runs
    resume.
    """
    work = Path(WORK.value)
    run(
        "datagen",
        "--problem=text_files",
        f"--train={TRAIN.value}",
        f"--dev={DEV.value}",
        "--vocab_size=340",
        f"--data_dir={work}/data",
    )
    is_same = kill_and_compare(work)
    if HIGH_STEP.value:
        time_to_first_step(work)
    sys.exit(0 if is_same else 1)


if __name__ == "__main__":
    app.run(main)
