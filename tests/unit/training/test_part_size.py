"""The size of parts is what fits, is found again where it was found, and finding it changes nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.data import batching
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.models import size
from t2t_repro.models.transformer import Transformer
from t2t_repro.training import part_size
from t2t_repro.training.part_size import Demand, Place
from t2t_repro.training.step import TrainStep, adam

VOCAB = 12
GPU = Place("a GPU", 1, "float32", 0)
CPU = Place("a processor", 1, "float32", 16 << 30)
ONE = tf.distribute.MirroredStrategy(["/cpu:0"])


class Room:
    """A step, or a question, that finds room for parts of so many examples of a length."""

    def __init__(self, positions: int, longest: int = 10) -> None:
        self.positions, self.longest = positions, longest
        self.asked: list[int] = []
        self.taken: list[list[tuple[int, ...]]] = []

    def fits(self, positions: int) -> bool:
        self.asked.append(positions)
        return part_size.MARGIN * positions <= self.positions

    def __call__(self, parts: list[Any], num_tokens: int, seed: Any) -> tf.Tensor:
        assert num_tokens == sum(int((targets != 0).sum()) for _, targets in parts)
        assert all((inputs.shape == targets.shape) and inputs.dtype == np.int32 for inputs, targets in parts)
        self.taken.append([inputs.shape for inputs, _ in parts])
        if any(inputs.size > self.positions for inputs, _ in parts):
            raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor with shape[1]")
        return tf.constant(0.0)


@pytest.mark.parametrize("room", [12, 300, 1100, 1153, 1500, 2000, 5000, 11_000, 40_000, 100_000, 1_000_000])
def test_the_search_finds_what_fits(room: int) -> None:
    device = Room(room)
    found = part_size.search(device.fits, Demand(longest=10, largest=60_000, rounds=2))
    fitting = min(60_000.0, room / part_size.MARGIN)
    assert fitting / 1.26 < found <= fitting
    assert device.asked[-1] == found
    assert len(device.asked) < 14
    assert max(device.asked) < max(2 * room, 1025)  # no size is tried that is far too large


def test_no_more_is_tried_than_the_plan_can_need() -> None:
    device = Room(10**9)
    assert part_size.search(device.fits, Demand(longest=10, largest=3000, rounds=2)) == 3000
    assert device.asked == [1024, 2048, 3000]
    assert part_size.search(device.fits, Demand(longest=10, largest=200, rounds=2)) == 1024


@pytest.mark.parametrize("longest", [10, 500, 3000])
def test_an_example_that_does_not_fit(longest: int) -> None:
    step = Room(longest - 1)
    asked = Demand(longest, 60_000, 2)
    assert part_size.search(part_size.Trial(step, asked, 1).fits, asked) == 0  # type: ignore[arg-type]
    step = Room(longest)
    assert 0 < part_size.search(part_size.Trial(step, asked, 1).fits, asked) <= max(1024, longest)  # type: ignore[arg-type]


@pytest.mark.parametrize("replicas", [1, 3])
def test_what_is_tried_is_the_worst_that_training_has(replicas: int) -> None:
    step = Room(10**9)
    trial = part_size.Trial(step, Demand(longest=100, largest=5000, rounds=1), replicas)  # type: ignore[arg-type]
    assert trial.fits(2000)
    assert trial.fits(2000, accumulates=False)
    assert trial.fits(5000)
    assert trial.fits(9000)
    # 2,000 positions and an eighth more, in examples of 100; where steps are cut, gradients accumulate.
    cut, whole = (23, 100), (57, 100)
    assert step.taken == [
        [cut] * 3 * replicas, [cut] * 2 * replicas,
        [cut] * 2 * replicas,
        [whole] * replicas,
        [whole] * replicas,
    ]  # fmt: skip


def test_found_once_for_each_place_and_model(
    tmp_path: Path, tiny_hparams: HParams, capsys: pytest.CaptureFixture[str]
) -> None:
    step = Room(3000)
    asked = Demand(longest=10, largest=60_000, rounds=2)
    usual = (GPU, tiny_hparams, VOCAB, asked)

    def find(place: Place, *needs: Any) -> int:
        step.taken = []
        return part_size.find(tmp_path, place, *needs, step, [])

    found = find(*usual)
    assert 2000 < found < 3000 and step.taken
    kept = json.loads((tmp_path / "part_size.json").read_text())
    assert kept.items() >= {"max_tokens_per_replica": found, **asdict(GPU), **asdict(asked)}.items()
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert f"--max_tokens_per_replica={found} fits here (1 x a GPU, float32)" in said

    longer = (GPU, replace(tiny_hparams, train_steps=12345), VOCAB, asked)
    assert find(*usual) == part_size.kept(tmp_path, *longer) == found
    assert not step.taken
    assert capsys.readouterr().err == ""

    places = [replace(GPU, device="another"), replace(GPU, replicas=2), replace(GPU, precision="mixed_bfloat16")]
    for other in (
        *((place, *usual[1:]) for place in places),
        (GPU, replace(tiny_hparams, filter_size=128), VOCAB, asked),
        (GPU, tiny_hparams, VOCAB + 1, asked),
        (GPU, tiny_hparams, VOCAB, replace(asked, largest=50_000)),
    ):
        assert part_size.kept(tmp_path, *other) == 0
        assert find(*other) == found and step.taken
        assert "trying again" in capsys.readouterr().err.splitlines()[0]
        assert part_size.kept(tmp_path, *other) == found
    several = (replace(GPU, workers=2), *usual[1:])
    assert part_size.kept(tmp_path, *several) == 0


def test_other_memory_changes_nothing_as_long_as_it_is_enough(tmp_path: Path) -> None:
    needs = (HParams(), 37_000, Demand(longest=256, largest=60_000, rounds=2))
    eight, sixteen = (replace(CPU, memory=gigabytes << 30) for gigabytes in (8, 16))
    found = part_size.find(tmp_path, eight, *needs, Room(10**9, 256), [])  # type: ignore[arg-type]
    assert 0 < found == part_size.by_formula(eight, *needs) < part_size.by_formula(sixteen, *needs)
    assert part_size.kept(tmp_path, sixteen, *needs) == found
    assert part_size.kept(tmp_path, replace(eight, memory=eight.memory - 4096), *needs) in (0, found)
    assert part_size.kept(tmp_path, replace(eight, memory=6 << 30), *needs) == 0
    assert part_size.kept(tmp_path, replace(eight, memory=0), *needs) == 0  # as of GPUs


@pytest.mark.parametrize("contents", ["", "{", "[1]", "null", '{"max_tokens_per_replica": 5}', "-"])
def test_a_damaged_file_is_written_anew(tmp_path: Path, tiny_hparams: HParams, contents: str) -> None:
    needs = (tiny_hparams, VOCAB, Demand(longest=10, largest=500, rounds=2))
    path = tmp_path / part_size.FILE_NAME
    if contents == "-":
        part_size.find(tmp_path, GPU, *needs, Room(3000), [])  # type: ignore[arg-type]
        contents = json.dumps(json.loads(path.read_text()) | {"max_tokens_per_replica": "5"})
    path.write_text(contents)
    assert part_size.kept(tmp_path, GPU, *needs) == 0
    assert part_size.find(tmp_path, GPU, *needs, Room(3000), []) == 1024  # type: ignore[arg-type]
    assert part_size.kept(tmp_path, GPU, *needs) == 1024


@pytest.mark.parametrize(
    "place", [GPU, CPU, replace(CPU, memory=1 << 20), replace(GPU, precision="mixed_bfloat16")], ids=str
)
def test_too_little_memory_is_said_at_the_start(place: Place, tmp_path: Path, tiny_hparams: HParams) -> None:
    """On a CPU by a trial that fails, or by the formula."""
    asked = Demand(longest=300, largest=60_000, rounds=2)
    step = Room(299)
    with pytest.raises(UserError, match="one example with 300 tokens a side; give a lower max_length") as error:
        part_size.find(tmp_path, place, tiny_hparams, VOCAB, asked, step, [])  # type: ignore[arg-type]
    cure = str(error.value).partition(";")[2]
    assert ("mixed_bfloat16" in cure) == (place.precision == "float32")
    assert ("--max_tokens_per_replica=300, which tries all the same" in cure) == (place.memory > 0)
    assert list(tmp_path.iterdir()) == []
    assert bool(step.taken) == (place.memory != 1 << 20)


@pytest.mark.parametrize("place", [CPU, GPU], ids=["processors", "GPUs"])
def test_workers_try_together_what_the_smallest_holds(
    place: Place, tmp_path: Path, tiny_hparams: HParams, capsys: pytest.CaptureFixture[str]
) -> None:
    place = replace(place, workers=3)
    step, path = Room(10**9), tmp_path / part_size.FILE_NAME
    needs = (tiny_hparams, VOCAB, Demand(longest=10, largest=60_000, rounds=2))

    def find(others: int, writes: bool = True) -> int:
        step.taken = []
        return part_size.find(tmp_path, place, *needs, step, [], writes, lambda own: min(own, others))  # type: ignore[arg-type]

    assert find(others=1500, writes=False) == 1500
    assert step.taken == [[(169, 10)] * 2 * 3]  # an eighth more than 1,500 positions
    assert (path.exists(), capsys.readouterr().err) == (False, "")
    assert find(others=1500) == part_size.kept(tmp_path, place, *needs) == 1500
    assert find(others=10**9) == 1500  # as before, by all
    assert not step.taken
    path.unlink()
    assert find(others=10**9) == 4096
    path.unlink()
    step.positions = 2000
    with pytest.raises(UserError, match="too little") as error:
        find(others=10**9)
    assert ("give all workers --max_tokens_per_replica=2048, or less" in str(error.value)) == (place.memory == 0)
    assert not path.exists()


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16"])
def test_a_processor_takes_at_most_half_of_its_memory(precision: str) -> None:
    hparams, asked = HParams(), Demand(longest=256, largest=60_000, rounds=2)
    sizes = []
    for gigabytes in (2, 4, 6, 8, 12, 16, 24, 64):
        place = Place("a processor", 1, precision, gigabytes << 30)
        three = replace(place, replicas=3, memory=3 * place.memory)
        found = part_size.by_formula(place, hparams, 37_000, asked)
        assert part_size.by_formula(three, hparams, 37_000, asked) == found
        sizes.append(found)
        if found:
            parts = [(-(-found * 9 // (8 * 256)), 256, 256)] * 2
            assert size.step_memory(hparams, 37_000, parts, precision, True).total <= place.memory / 2
    assert sizes == sorted(sizes)
    assert sizes[0] == 0 < sizes[2] < sizes[5] and sizes[-1] == 4096
    assert part_size.by_formula(CPU, replace(hparams, num_hidden_layers=1), 100, replace(asked, largest=50)) == 4096


@pytest.mark.parametrize("spread", [0.7, 0.0])
def test_what_is_asked_for_is_what_the_plan_has(spread: float) -> None:
    random = np.random.default_rng(3)
    lengths = np.clip(random.lognormal(2.5, spread, (2, 3000)), 2, 120).astype(np.int32)
    epoch = batching.plan(lengths, 900, 90, seed=1, epoch=0)
    assert 0 < len(epoch.order) < 3000 or not spread
    for replicas in (1, 2, 3, 4, 5):
        asked = part_size.demand(lengths, epoch, replicas)
        assert asked.longest == lengths[:, epoch.order].max()
        most = 0
        for step in range(epoch.steps):
            uncut, parts = (
                batching.parts(lengths, epoch.blocks(step), max_tokens, replicas)
                for max_tokens in (10**6, int(asked.largest / part_size.OTHER_EPOCHS))
            )
            assert [part.tolist() for part in parts] == [part.tolist() for part in uncut]
            assert len(parts) == asked.rounds * replicas
            most = max(most, *(len(part) * int(lengths[:, part].max(initial=0)) for part in parts))
        bound = asked.largest / part_size.OTHER_EPOCHS
        assert most <= bound <= (3 if spread else 1) * most
        if replicas == 1:
            assert bound == pytest.approx(most, abs=1)


class Full:
    """A model on a device that has room for parts of so many examples, and for two larger ones of three."""

    def __init__(self, model: Any, room: int) -> None:
        self._model, self._room, self._larger = model, room, 0
        self.trainable_variables = model.trainable_variables

    def __call__(self, inputs: Any, targets: Any, seed: Any) -> Any:
        with tf.control_dependencies([tf.numpy_function(self._allocate, [tf.shape(inputs)[0]], tf.int32)]):
            return self._model(inputs, targets, seed)

    def _allocate(self, examples: int) -> int:
        self._larger += examples > self._room
        if examples > self._room and self._larger % 3 == 0:
            raise MemoryError  # which TensorFlow turns into the error of its own allocators
        return examples


class Training:
    """A model, its optimizer and its step, the same each time."""

    def __init__(self, hparams: HParams, room: int = 10**9) -> None:
        keras.utils.set_random_seed(1)
        with ONE.scope():
            model, optimizer = Transformer(hparams, VOCAB), adam(hparams)
        self.step = TrainStep(Full(model, room), optimizer, 0.1, ONE)
        self.variables = [*model.trainable_variables, *optimizer.variables]

    def values(self) -> list[np.ndarray]:
        return [variable.numpy() for variable in self.variables]

    def take_steps(self) -> list[np.ndarray]:
        """Two steps of three parts."""
        ids = np.random.default_rng(0).integers(1, VOCAB, (3, 3, 5)).astype(np.int32)
        for number in range(2):
            self.step([(part, part) for part in ids], ids.size, (1, number))
        return self.values()


@pytest.fixture(scope="module")
def expected(tiny_hparams: HParams) -> list[np.ndarray]:
    return Training(tiny_hparams).take_steps()


@pytest.mark.parametrize(
    ("place", "room", "found"), [(CPU, 10**9, 4096), (GPU, 65, 1024)], ids=["by the formula", "by trying"]
)
def test_finding_changes_nothing(
    place: Place, room: int, found: int, tiny_hparams: HParams, expected: list[np.ndarray], tmp_path: Path
) -> None:
    """Real steps, on the CPU: weights, moments and counters are the same bits, and training goes on from them alone."""
    training = Training(tiny_hparams, room)
    training.variables[-1].assign(np.full(training.variables[-1].shape, 0.25))
    before = training.values()
    asked = Demand(longest=20, largest=3000, rounds=2)
    assert part_size.find(tmp_path, place, tiny_hparams, VOCAB, asked, training.step, training.variables) == found
    for value, variable in zip(before, training.variables, strict=True):
        np.testing.assert_array_equal(value, variable.numpy(), strict=True)
    training.variables[-1].assign(np.zeros(training.variables[-1].shape))
    for ours, theirs in zip(training.take_steps(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)


TWO_REPLICAS = """
import sys, keras, numpy as np, tensorflow as tf
from pathlib import Path
tf.config.set_logical_device_configuration(
    tf.config.list_physical_devices("CPU")[0], [tf.config.LogicalDeviceConfiguration()] * 2
)
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer
from t2t_repro.training import part_size
from t2t_repro.training.step import TrainStep, adam

hparams = HParams(num_hidden_layers=1, hidden_size=16, filter_size=16, num_heads=2)
strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
with strategy.scope():
    model, optimizer = Transformer(hparams, 12), adam(hparams)
step = TrainStep(model, optimizer, 0.1, strategy)
variables = [*model.trainable_variables, *optimizer.variables]

def copies():
    return [[copy.numpy() for copy in strategy.experimental_local_results(variable.value)] for variable in variables]

before = copies()
place = part_size.here(2, "float32")
assert place.memory > 0 and len(before[0]) == 2
for memory, found in ((place.memory, 4096), (0, 1024)):
    place = part_size.Place(place.device, 2, "float32", memory)
    asked = part_size.Demand(longest=20, largest=700, rounds=1)
    assert part_size.find(Path(sys.argv[1]), place, hparams, 12, asked, step, variables) == found
    for ours, theirs in zip(before, copies(), strict=True):
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_array_equal(one, other)
"""


def test_two_replicas(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-P", "-c", TWO_REPLICAS, str(tmp_path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]


def test_advice_names_half() -> None:
    message = (
        "Graph execution error:\n\nDetected at node a defined at (most recent call last):\nOOM when allocating tensor "
        "with shape[8192,37000] and type float on /job:localhost/replica:0/device:GPU:0 by allocator GPU_0_bfc\n [[a]]"
    )
    error, other = (tf.errors.ResourceExhaustedError(None, None, text) for text in (message, "?"))
    told = str(part_size.advice(error, 5000))
    assert "(OOM when allocating tensor with shape[8192,37000] and type float)" in told
    assert "--max_tokens_per_replica=2500 " in told
    assert "(ResourceExhaustedError)" in str(part_size.advice(other, 5000))
    assert "--max_tokens_per_replica=1 " in str(part_size.advice(error, 1))
