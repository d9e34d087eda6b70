"""A training takes the same steps on any number of devices and machines, and goes on after one of them was lost."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import clusters
from programs import refused
from programs import run_process as run
from t2t_repro.checkpoint_reader import checkpoints_in, step_of
from t2t_repro.data.dataset import load_data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.hparam import HParams

MULTI30K = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "multi30k"
pytestmark = pytest.mark.skipif(not MULTI30K.exists(), reason="../shared/data/multi30k is not there")

BATCH_SIZE, STEPS = 1024, 20
HPARAMS = f"num_hidden_layers=1,hidden_size=64,filter_size=128,num_heads=4,batch_size={BATCH_SIZE}"
"""A small model with the paper's schedule: at the start of a warmup of 4,000 steps the learning rate is tiny. Adam
divides a gradient by its own size, so where a gradient is nothing but rounding noise, two equal trainings move a weight
by the whole learning rate, one up and one down. At a high rate that would hide whether all else is equal."""

LOGICAL_DEVICES = """
import tensorflow as tf
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * {}
)
"""
PROGRAM = "from t2t_repro.bin.t2t_trainer import run; run()"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The first captions of Multi30k, encoded."""
    root = tmp_path_factory.mktemp("multi30k")
    paths = {}
    for split, published, count in (("train", "train", 2000), ("dev", "val", 50)):
        for language in ("en", "de"):
            with gzip.open(MULTI30K / f"{published}.{language}.gz", "rt", encoding="utf-8") as file:
                (root / f"{split}.{language}").write_text("".join(islice(file, count)), encoding="utf-8")
        paths[split] = f"{root / split}.en,{root / split}.de"
    result = run(
        "datagen", "--problem=text_files", f"--train={paths['train']}", f"--dev={paths['dev']}", "--vocab_size=1000",
        f"--data_dir={root / 'data'}",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    return root / "data"


def start(
    data: Path, model: Path, *flags: str, dropout: float = 0.0, devices: int = 1, config: str = ""
) -> subprocess.Popen[str]:
    """Starts t2t-trainer on so many devices of this machine, or as one of several workers."""
    return clusters.start(
        (LOGICAL_DEVICES.format(devices) if devices > 1 else "") + PROGRAM,
        "--problem=text_files", "--hparams_set=transformer_base",
        f"--hparams={HPARAMS},layer_prepostprocess_dropout={dropout}", f"--data_dir={data}", f"--output_dir={model}",
        "--eval_decode_lines=0", "--eval_steps=1", "--intra_op_parallelism_threads=1", *flags, config=config,
    )  # fmt: skip


def start_two(
    data: Path, model: Path, *flags: str, own: Sequence[str] = ("", ""), dropout: float = 0.0
) -> list[subprocess.Popen[str]]:
    """Starts two workers, the chief first, each with a flag of its `own`."""
    cluster = {"worker": clusters.free_addresses(2)}
    configs = [clusters.tf_config(cluster, index=index) for index in range(2)]
    return [
        start(data, model, *flags, *filter(None, [flag]), dropout=dropout, config=each)
        for flag, each in zip(own, configs, strict=True)
    ]


def ended(*processes: subprocess.Popen[str]) -> list[subprocess.CompletedProcess[str]]:
    """Waits for processes; what they said."""
    results = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        results.append(subprocess.CompletedProcess(process.args, process.returncode, output, errors))
    return results


def state(model: Path, step: int) -> dict[str, np.ndarray]:
    """Weights and optimizer after `step` steps."""
    checkpoint = tf.train.load_checkpoint(f"{model}/model.ckpt-{step}")
    names = checkpoint.get_variable_to_shape_map()
    return {name: checkpoint.get_tensor(name) for name in names if name.startswith(("weights/", "optimizer/"))}


def measured(model: Path, name: str) -> list[float]:
    """What metrics.jsonl says of each step."""
    lines = map(json.loads, (model / "metrics.jsonl").read_text("utf-8").splitlines())
    return [line[name] for line in lines if name in line]


CUTS = {  # devices, --max_tokens_per_replica
    "one": (1, 4096),
    "2 devices": (2, 4096),
    "4 devices": (4, 4096),
    "accumulated micro-batches": (1, 300),
    "3 devices, small micro-batches": (3, 150),
}
WORKERS = {"2 workers": 4096, "2 workers, small micro-batches": 150}  # --max_tokens_per_replica


@pytest.fixture(scope="module")
def models(data: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same training in each of CUTS, and by two workers."""
    root = tmp_path_factory.mktemp("models")
    flags = [f"--train_steps={STEPS}", f"--local_eval_frequency={STEPS}", "--log_step_count_steps=1"]

    def train(name: str) -> None:
        if name in CUTS:
            devices, most = CUTS[name]
            processes = [start(data, root / name, *flags, f"--max_tokens_per_replica={most}", devices=devices)]
        else:
            processes = start_two(data, root / name, *flags, f"--max_tokens_per_replica={WORKERS[name]}")
        for result in ended(*processes):
            assert result.returncode == 0, result.stderr

    names = [*CUTS, *WORKERS]
    with ThreadPoolExecutor(2) as two_at_once:
        list(two_at_once.map(train, names))
    return {name: root / name for name in names}


@pytest.mark.parametrize("name", [*list(CUTS)[1:], *WORKERS])
def test_the_same_training_on_any_devices(models: dict[str, Path], name: str) -> None:
    one, other = models["one"], models[name]
    assert len(measured(other, "train_loss")) == STEPS
    np.testing.assert_allclose(measured(other, "train_loss"), measured(one, "train_loss"), rtol=1e-6)
    # Adam does not see by what factor a gradient is wrong; its norm does.
    np.testing.assert_allclose(measured(other, "gradient_norm"), measured(one, "gradient_norm"), rtol=1e-5)
    weights = state(other, STEPS)
    for key, value in state(one, STEPS).items():
        if key.startswith("weights/"):
            np.testing.assert_allclose(weights[key], value, rtol=0, atol=1e-5, err_msg=key)


def test_steps_are_cut_as_differently_as_they_may_be(data: Path) -> None:
    records = load_data(str(data), "text_files").records["train"]

    def sizes(devices: int, most: int) -> list[list[int]]:
        batches = Pipeline(records, HParams(batch_size=BATCH_SIZE), 1, most, devices).batches(0, STEPS)
        return [[len(inputs) for inputs, _ in batch.micro_batches] for batch in batches]

    whole, two, four, accumulated, three = ([len(step) for step in sizes(*cut)] for cut in CUTS.values())
    assert {*whole, *two} == {2}
    assert {*four} == {4}
    assert min(accumulated) >= 4
    # Three devices get more micro-batches than devices, in a number that is no multiple of 3, some without any example.
    assert min(three) > 6
    assert any(len(step) % 3 for step in sizes(1, 150))
    unequal = sizes(3, 150)
    assert any(0 in step for step in unequal)
    assert any(max(step) > 4 * min(size for size in step if size) for step in unequal)


def first_new_checkpoint(model: Path, processes: list[subprocess.Popen[str]]) -> int:
    """Waits for a checkpoint that is not there yet; its step."""
    before, deadline = set(model.glob("model.ckpt-*.index")), time.monotonic() + 200
    while not (new := set(model.glob("model.ckpt-*.index")) - before):
        assert [process.poll() for process in processes] == [None, None]
        assert time.monotonic() < deadline
        time.sleep(0.02)
    return max(int(path.stem.rpartition("-")[2]) for path in new)


def test_what_is_lost_is_taken_up_again(data: Path, tmp_path: Path) -> None:
    flags = ["--train_steps=60", "--local_eval_frequency=10", "--max_tokens_per_replica=4096"]
    unbroken, broken = tmp_path / "unbroken", tmp_path / "broken"
    for result in ended(*start_two(data, unbroken, *flags, dropout=0.1)):
        assert result.returncode == 0, result.stderr

    for victim in (1, 0):
        both = start_two(data, broken, *flags, dropout=0.1)
        last = first_new_checkpoint(broken, both)
        both[victim].kill()
        results = ended(*both)
        assert results[victim].returncode == -signal.SIGKILL
        refused(results[1 - victim], "lost the connection to the other workers", "start all again")
        assert "grpc_status" not in results[1 - victim].stderr

    both = start_two(data, broken, *flags, dropout=0.1)
    assert first_new_checkpoint(broken, both) > last
    both[1].send_signal(signal.SIGTERM)
    for result in ended(*both):
        assert result.returncode == 0, result.stderr
        found = re.search(r"saved after step (\d+), as requested", result.stderr)
        assert found, result.stderr
        stopped = int(found[1])
        assert (broken / f"model.ckpt-{stopped}.index").exists()
        assert last < stopped < 60

    chief, _ = ended(*start_two(data, broken, *flags, dropout=0.1))
    assert f"resuming after step {stopped}\n" in chief.stderr
    resumed = state(broken, 60)
    for name, value in state(unbroken, 60).items():
        np.testing.assert_array_equal(resumed[name], value, err_msg=name)


def test_workers_with_other_flags_are_refused_by_all(data: Path, tmp_path: Path) -> None:
    own = ["--max_tokens_per_replica=300", "--max_tokens_per_replica=600"]
    for result in ended(*start_two(data, tmp_path / "model", "--train_steps=2", own=own)):
        refused(result, "--max_tokens_per_replica is 300 and 600 on different workers; start all with the same command")
    assert not (tmp_path / "model").exists()


def test_a_folder_that_one_worker_does_not_see(data: Path, tmp_path: Path) -> None:
    own = [f"--output_dir={tmp_path / name}" for name in ("chiefs", "others")]
    chief, other = ended(*start_two(data, tmp_path, "--train_steps=2", own=own))
    refused(
        other,
        f"{tmp_path / 'others'}: the chief created it, but this worker does not see it; put --output_dir on a disk",
    )
    assert chief.returncode == 2


def test_two_workers_stop_early_at_the_step_of_one(data: Path, tmp_path: Path) -> None:
    # At a rate of nothing no evaluation after the first is better.
    flags = ["--train_steps=50", "--local_eval_frequency=3", "--early_stopping_patience=2",
             "--save_checkpoints_secs=600", f"--hparams={HPARAMS},learning_rate_constant=1e-30"]  # fmt: skip
    for result in ended(*start_two(data, tmp_path / "m", *flags)):
        assert result.returncode == 0, result.stderr
    assert list(map(step_of, checkpoints_in(tmp_path / "m"))) == [9]


def test_a_dry_run_waits_for_no_other_worker(data: Path, tmp_path: Path) -> None:
    cluster = {"worker": ["localhost:1", "localhost:2"]}
    alone = clusters.tf_config(cluster, index=1)
    (result,) = ended(start(data, tmp_path / "m", "--dry_run", config=alone))
    assert result.returncode == 0, result.stderr
    assert "trained on            2 workers, each 1 x " in result.stdout
    assert list(tmp_path.iterdir()) == []
