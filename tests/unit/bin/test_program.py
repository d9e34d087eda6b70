"""What all programs do before their own work."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf

from programs import here
from t2t_repro.bin import program


@pytest.mark.parametrize(
    ("there", "visible", "seen", "said"),
    [(True, "0", [], True), (True, "0", ["GPU:0"], False), (True, "-1", [], False), (False, "0", [], False)],
)
def test_a_gpu_that_tensorflow_does_not_see_is_spoken_of(
    there: bool,
    visible: str,
    seen: list[str],
    said: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(program, "GPU_DEVICE", tmp_path if there else tmp_path / "none")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    monkeypatch.setattr(tf.config, "list_physical_devices", lambda kind: seen)
    program.load_tensorflow()
    assert ("TensorFlow does not see this machine's GPU" in capsys.readouterr().err) == said


def test_a_seed_that_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    for seed, words in ((2**32, "must be below 2^32"), (-1, "must be 0 or more")):
        flags = ("--problem=numbers_ende", "--hparams_set=transformer_tiny", f"--random_seed={seed}")
        assert here("trainer", *flags) == 2
        assert f"--random_seed={seed} {words}" in capsys.readouterr().err
