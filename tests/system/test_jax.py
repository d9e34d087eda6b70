"""With Keras's JAX backend, the Transformer, its loss and its learning rate have the same values as with TensorFlow.

Run as a program with KERAS_BACKEND=jax, this file writes JAX's values to a file.
"""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from keras import ops

from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.schedule import Schedule

HPARAMS = HParams(num_hidden_layers=1, hidden_size=32, filter_size=64, num_heads=4)
CHANGES = {"norm_before": True, "pos": "emb", "self_attention_neighborhood": 2, "use_target_space_embedding": True}
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]], np.int32)
TARGETS = np.array([[4, 5, 6, 1], [7, 1, 0, 0]], np.int32)


def values() -> dict[str, np.ndarray]:
    """Returns what Keras's current backend computes, by name: two models' logits and losses, and a learning rate.

    The models get the same random weights with every backend, so the values can be compared.
    """
    draw, tensors = np.random.default_rng(1), {"learning rate": Schedule(HPARAMS)(5000)}
    for name, hparams in (("base", HPARAMS), ("variant", replace(HPARAMS, **CHANGES))):
        model = Transformer(hparams, vocab_size=20, target_space_id=1)
        for variable in model.trainable_variables:
            variable.assign(draw.normal(0.0, 0.2, variable.shape))
        logits = model(INPUTS, TARGETS)
        step_logits, _ = model.decode_step(TARGETS[:, :1] * 0, 0, model.start(2), model.encode(INPUTS))
        tensors |= {
            f"{name}: logits": logits,
            f"{name}: logits of the first decoding step": step_logits,
            f"{name}: loss": smoothed_cross_entropy(logits, TARGETS, HPARAMS.label_smoothing),
            f"{name}: dropout": model(INPUTS, TARGETS, np.arange(2, dtype=np.uint32)),
        }
    return {name: ops.convert_to_numpy(tensor) for name, tensor in tensors.items()}


def test_jax_computes_the_same_as_tensorflow(tmp_path: Path) -> None:
    # setup.py does not install JAX for tests: TensorFlow would import it, which takes each process a second.
    pytest.importorskip("jax", reason="to run this test: pip install jax")
    environment = os.environ | {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    subprocess.run([sys.executable, __file__, tmp_path / "jax.npz"], env=environment, check=True)
    others, expected = np.load(tmp_path / "jax.npz"), values()
    assert set(others) == set(expected)
    for name, tensor in expected.items():
        np.testing.assert_allclose(others[name], tensor, rtol=0, atol=1e-5, err_msg=name)


if __name__ == "__main__":
    np.savez(sys.argv[1], **values())
