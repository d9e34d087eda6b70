"""What the system tests share: one small model, trained once."""

from __future__ import annotations

import pytest

from programs import MINUTE, Road, run, write_pairs


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
