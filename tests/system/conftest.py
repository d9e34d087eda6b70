"""The model that the system tests share."""

from __future__ import annotations

import fcntl
import gzip
import os
import random
from pathlib import Path

import pytest

from programs import MINUTE, SMALL, Road, TrainedModel, run, succeed, write_pairs

STEPS = 60
DEV_LINES = 50
TEST_LINES = 1000


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """A model that translates numbers badly, saved every 20 of its 60 steps; tests only read it.

    text/ has its training and dev sets and test.en, 1,000 other lines. The processes of pytest-xdist share it.
    """
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    root = root / "trained"
    root.mkdir(exist_ok=True)
    model = TrainedModel(
        root / "text",
        root / "data",
        root / "model",
        [
            "--problem=text_files", "--hparams_set=transformer_tiny", f"--hparams={SMALL}",
            f"--data_dir={root / 'data'}", f"--output_dir={root / 'model'}", "--local_eval_frequency=20",
        ],
    )  # fmt: skip
    is_complete = root / "is_complete"
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_complete.exists():
            train(model)
            is_complete.touch()
    return model


def train(model: TrainedModel) -> None:
    """Writes the text, generates the data and trains."""
    numbers = random.Random(1).sample(range(1000, 1_000_000), 1000 + DEV_LINES + TEST_LINES)
    train = write_pairs(model.text, "train", numbers[:1000])
    dev = write_pairs(model.text, "dev", numbers[1000 : 1000 + DEV_LINES])
    write_pairs(model.text, "test", numbers[-TEST_LINES:])
    succeed(
        "datagen", "--problem=text_files", f"--train={train}", f"--dev={dev}", "--vocab_size=340",
        f"--data_dir={model.data}",
    )  # fmt: skip
    succeed("trainer", *model.flags, f"--train_steps={STEPS}", "--eval_decode_lines=0")


@pytest.fixture(scope="session")
def road(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """Generates data and trains 40 steps, saved every 10."""
    root = tmp_path_factory.mktemp("road")
    train = write_pairs(root / "text", "train", range(1000, 1900))
    dev = write_pairs(root / "text", "dev", range(1900, 1950))
    result = run(
        "datagen", "--problem=text_files", f"--train={train}", f"--dev={dev}", "--vocab_size=340",
        f"--data_dir={root / 'data'}",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    flags = [
        "--problem=text_files", "--hparams_set=transformer_tiny", f"--hparams={MINUTE}", f"--data_dir={root / 'data'}",
        f"--output_dir={root / 'model'}", "--local_eval_frequency=10",
    ]  # fmt: skip
    result = run("trainer", *flags, "--train_steps=40")
    assert result.returncode == 0, result.stderr
    return Road(root / "text", root / "data", root / "model", flags)


@pytest.fixture(scope="session")
def captions(tmp_path_factory: pytest.TempPathFactory) -> Road:
    """A model of real text, 1,014 captions in English and German, which it has not learned well; text/ has them.

    Processes that test side by side share it: tests only read it.
    """
    folder = Path(__file__).parents[3] / "shared" / "data" / "multi30k"
    if not folder.is_dir():
        pytest.skip("real parallel text, ../shared/data/multi30k, is not there")
    root = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        root = root.parent
    root = root / "captions"
    model = Road(root / "text", root / "data", root / "model", [])
    with open(root.with_suffix(".lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not root.exists():
            make_captions(folder, root)
    return model


def make_captions(folder: Path, root: Path) -> None:
    """Generates data and trains 120 steps."""
    (root / "text").mkdir(parents=True)
    for language in ("en", "de"):
        (root / "text" / f"val.{language}").write_bytes(gzip.decompress((folder / f"val.{language}.gz").read_bytes()))
    pair = f"{root / 'text' / 'val.en'},{root / 'text' / 'val.de'}"
    result = run(
        "datagen", "--problem=text_files", f"--train={pair}", f"--dev={pair}", "--vocab_size=1000",
        f"--data_dir={root / 'data'}",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    hparams = MINUTE.replace("batch_size=400", "batch_size=2000")
    flags = [
        "--problem=text_files", "--hparams_set=transformer_tiny", f"--hparams={hparams}",
        f"--data_dir={root / 'data'}", f"--output_dir={root / 'model'}", "--eval_decode_lines=0",
    ]  # fmt: skip
    result = run("trainer", *flags, "--train_steps=120", "--local_eval_frequency=120")
    assert result.returncode == 0, result.stderr
