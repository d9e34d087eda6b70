"""Trains the model that the system tests share."""

import fcntl
import os
import random

import pytest

from programs import SMALL, TrainedModel, succeed, write_pairs

STEPS = 60
DEV_LINES = 50
DECODED_LINES = 10
"""Number of dev lines that each evaluation decodes."""
TEST_LINES = 400


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> TrainedModel:
    """Returns a model trained for 60 steps, with a checkpoint every 20 steps. It translates number
    words badly.

    Tests must not change the model's files, because all tests and all processes of pytest-xdist
    share them. The text folder has the training set, the dev set, a test set of 400 other numbers,
    and t2t-trainer's messages.
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
            "--problem=text_files",
            "--hparams_set=transformer_tiny",
            f"--hparams={SMALL}",
            f"--data_dir={root / 'data'}",
            f"--output_dir={root / 'model'}",
            "--local_eval_frequency=20",
        ],
    )
    is_complete = root / "is_complete"
    with open(root / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not is_complete.exists():
            train(model)
            is_complete.touch()
    return model


def train(model: TrainedModel) -> None:
    """Writes the text of the shared model, runs t2t-datagen and trains the model."""
    numbers = random.Random(1).sample(range(1000, 1_000_000), 1000 + DEV_LINES + TEST_LINES)
    train = write_pairs(model.text, "train", numbers[:1000])
    dev = write_pairs(model.text, "dev", numbers[1000 : 1000 + DEV_LINES])
    write_pairs(model.text, "test", numbers[-TEST_LINES:])
    files = (f"--train={train}", f"--dev={dev}", f"--data_dir={model.data}")
    succeed("datagen", "--problem=text_files", *files, "--vocab_size=340")
    steps = (
        f"--train_steps={STEPS}",
        "--log_step_count_steps=10",
        f"--eval_decode_lines={DECODED_LINES}",
    )
    (model.text / "messages").write_text(succeed("trainer", *model.flags, *steps).stderr)
