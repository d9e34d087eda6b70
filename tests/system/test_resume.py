"""A training that is killed, asked to stop, or finds its files damaged, and started again: as if nothing had been."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from programs import MINUTE, refused, write_pairs
from programs import run_process as run
from t2t_repro.checkpoint_reader import checkpoints_in, step_of
from t2t_repro.training.metrics_log import read_metrics

KILL_RESUME = Path(__file__).parents[2] / "benchmarks" / "kill_resume.py"
HPARAMS = f"{MINUTE},layer_prepostprocess_dropout=0.1,attention_dropout=0.1,relu_dropout=0.1"
STEPS = 20
TIMES = {"seconds", "source_tokens_per_second", "target_tokens_per_second"}


@dataclass(frozen=True)
class Killed:
    """What benchmarks/kill_resume.py made."""

    text: Path
    data: Path
    unbroken: Path
    """The model folder of a training that nobody disturbed."""
    result: subprocess.CompletedProcess[str]

    def flags(self, model: Path, data: Path | None = None) -> list[str]:
        """t2t-trainer's, of the same training into another folder."""
        return [
            "--problem=text_files", "--hparams_set=transformer_tiny", f"--hparams={HPARAMS}",
            f"--data_dir={data or self.data}", f"--output_dir={model}", f"--train_steps={STEPS}",
            "--local_eval_frequency=5", "--log_step_count_steps=1", "--eval_decode_lines=3",
        ]  # fmt: skip


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Killed:
    """Trains once undisturbed and once killed five times."""
    root = tmp_path_factory.mktemp("killed")
    train = write_pairs(root / "text", "train", range(1000, 1900))
    dev = write_pairs(root / "text", "dev", range(1900, 1950))
    result = subprocess.run(
        [sys.executable, str(KILL_RESUME), f"--train={train}", f"--dev={dev}", f"--work={root}", "--kills=5",
         "--seed=24", f"--train_steps={STEPS}", f"--hparams={HPARAMS}", "--high_step=0"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    return Killed(root / "text", root / "data", root / "unbroken", result)


def steps(model: Path) -> list[int]:
    """Of the checkpoints."""
    return [step_of(path) for path in checkpoints_in(model)]


def assert_same(model: Path, unbroken: Path) -> None:
    """The same last state, best state and log of losses."""
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
        assert sum(name.startswith(("weights/", "optimizer/")) for name in names) > 50
        for name in names:
            if "OBJECT_GRAPH" not in name:
                one, other = ours.get_tensor(name), theirs.get_tensor(name)
                assert one == other if isinstance(other, bytes) else one.tobytes() == other.tobytes(), (place, name)


class Running:
    """A program that a test sends signals to."""

    def __init__(self, program: str, flags: list[str], errors: Path) -> None:
        self._errors = errors
        command = [sys.executable, "-c", f"from t2t_repro.bin.t2t_{program} import run; run()", *flags]
        with open(errors, "wb") as file:
            self._process = subprocess.Popen(command, stderr=file)

    def said(self) -> str:
        return self._errors.read_text("utf-8")

    def signal(self, number: signal.Signals, reached: Callable[[], Any]) -> None:
        """Sends a signal as soon as the program has got so far."""
        deadline = time.monotonic() + 120
        while not reached():
            assert self._process.poll() is None and time.monotonic() < deadline, self.said()
            time.sleep(0.005)
        self._process.send_signal(number)

    def handles(self, number: signal.Signals) -> bool:
        """Whether the program has a handler of its own for a signal."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        caught = re.search(r"^SigCgt:\s*(\w+)", status, re.MULTILINE)
        return caught is not None and bool(int(caught[1], 16) >> (number - 1) & 1)

    def ended(self) -> int:
        return self._process.wait(timeout=120)


def test_five_kills_at_any_moment(killed: Killed) -> None:
    assert killed.result.returncode == 0, killed.result.stdout + killed.result.stderr
    assert killed.result.stdout.count("\nkill ") + killed.result.stdout.startswith("kill ") == 5
    assert " nothing differs\n" in killed.result.stdout
    assert steps(killed.unbroken) == [5, 10, 15, 20]
    for model in killed.unbroken.parent.glob("killed_*[0-9]"):
        assert_same(model, killed.unbroken)


def test_asked_to_stop_it_finishes_the_step_and_asked_twice_it_does_not(killed: Killed, tmp_path: Path) -> None:
    model, errors = tmp_path / "m", tmp_path / "errors"
    flags = killed.flags(model)

    first = Running("trainer", flags, errors)
    first.signal(signal.SIGINT, lambda: read_metrics(model))
    assert first.ended() == 0
    [step] = steps(model)
    assert 1 <= step < STEPS
    assert first.said().endswith(
        f"-c: {model}: saved after step {step}, as requested; run the same command to resume\n"
    )

    # The first step after a resume builds its graph, which takes long enough for two signals.
    second = Running("trainer", flags, errors)
    second.signal(signal.SIGTERM, lambda: second.handles(signal.SIGTERM))
    second.signal(signal.SIGINT, lambda: "SIGTERM: finishing the step, then saving" in second.said())
    assert second.ended() == -signal.SIGINT
    assert "-c: " not in second.said()
    assert steps(model) == [step]

    result = run("trainer", *flags)
    assert result.returncode == 0, result.stderr
    assert f"resuming after step {step}\n" in result.stderr
    assert_same(model, killed.unbroken)
    assert steps(model) == steps(killed.unbroken)  # or an average would be another


def test_of_damaged_checkpoints_the_one_before_is_used(killed: Killed, tmp_path: Path) -> None:
    model = tmp_path / "m"
    shutil.copytree(killed.unbroken, model)
    cut, flipped = (model / f"model.ckpt-{step}.data-00000-of-00001" for step in (20, 15))
    cut.write_bytes(cut.read_bytes()[:-1000])
    content = bytearray(flipped.read_bytes())
    content[len(content) // 2] ^= 1
    flipped.write_bytes(content)
    result = run("trainer", *killed.flags(model), "--keep_checkpoint_max=2")
    assert result.returncode == 0, result.stderr
    for step in (20, 15):
        assert f"{model}/model.ckpt-{step}: damaged" in result.stderr
    assert "resuming after step 10\n" in result.stderr
    assert steps(model) == [15, 20]
    assert_same(model, killed.unbroken)


def test_other_data_is_refused_and_another_folder_starts_from_the_weights(killed: Killed, tmp_path: Path) -> None:
    others = write_pairs(tmp_path, "others", range(3000, 3400))
    vocabulary = next(killed.data.glob("vocab.*"))
    made = run(
        "datagen", "--problem=text_files", f"--train={others}",
        f"--dev={killed.text / 'dev'}.en,{killed.text / 'dev'}.de", f"--vocab_file={vocabulary}",
        f"--data_dir={tmp_path / 'data'}",
    )  # fmt: skip
    assert made.returncode == 0, made.stderr
    before, now = (
        json.loads((data / "text_files.json").read_text())["fingerprint"] for data in (killed.data, tmp_path / "data")
    )
    assert before != now
    files = {path: path.read_bytes() for path in killed.unbroken.rglob("*") if path.is_file()}
    refusal = run("trainer", *killed.flags(killed.unbroken, data=tmp_path / "data"))
    refused(refusal, f"data of fingerprint {before}", now, "another --output_dir", "--warm_start_from")
    assert {path: path.read_bytes() for path in killed.unbroken.rglob("*") if path.is_file()} == files

    model = tmp_path / "m"
    flags = [*killed.flags(model, data=tmp_path / "data"), f"--warm_start_from={killed.unbroken}", "--train_steps=1"]
    flags.append("--eval_decode_lines=0")
    result = run("trainer", *flags)
    assert result.returncode == 0, result.stderr
    assert f"{killed.unbroken}/model.ckpt-{STEPS}: training starts from its weights" in result.stderr
    # The first step's learning rate is 0.
    [*_, old], [_, new] = read_metrics(killed.unbroken), read_metrics(model)
    assert (new["step"], new["dev_loss"]) == (1, old["dev_loss"])


def test_a_reproduction_that_is_asked_to_stop_does_not_go_on_to_average(tmp_path: Path) -> None:
    model = tmp_path / "m"
    flags = [
        "--problem=numbers_ende", "--hparams_set=transformer_tiny", f"--hparams={MINUTE}", "--train_size=300",
        "--vocab_size=340", "--train_steps=3", f"--data_dir={tmp_path / 'data'}", f"--output_dir={model}",
    ]  # fmt: skip
    stopped = Running("reproduce", flags, tmp_path / "errors")
    stopped.signal(signal.SIGTERM, lambda: steps(model) == [3])  # then it evaluates, which is training too
    assert stopped.ended() == 130, stopped.said()
    assert "step 3: evaluation interrupted, as requested; the same command evaluates first\n" in stopped.said()
    assert f": {model}: saved after step 3, as requested; run the same command to resume\n" in stopped.said()
    assert not (model / "averaged").exists()

    again = Running("reproduce", flags, tmp_path / "errors")
    again.signal(signal.SIGKILL, lambda: steps(model / "averaged") == [3])
    assert again.ended() == -signal.SIGKILL
    assert again.said().index("step 3: dev loss ") < again.said().index("has taken 3 steps already")
