"""Our model, loss, gradients, search and learning rates against the numbers that tensor2tensor itself computed."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.decoding.beam_search import Hypotheses, beam_search
from t2t_repro.hparam import HParams
from t2t_repro.layers.position import Sinusoids
from t2t_repro.models.transformer import Transformer
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.schedule import Schedule

GOLDEN = Path(__file__).resolve().parents[2].parent / "shared" / "golden"
pytestmark = pytest.mark.skipif(not GOLDEN.exists(), reason="../shared/golden is not there")

HPARAMS = HParams(
    num_hidden_layers=2,
    hidden_size=32,
    num_heads=4,
    filter_size=64,
    layer_prepostprocess_dropout=0.0,
    use_target_space_embedding=True,
)
TARGET_SPACE_ID = 1
EXTRA_LENGTH = 50


def load(name: str) -> dict[str, np.ndarray]:
    return dict(np.load(GOLDEN / "tensor2tensor" / f"{name}.npz"))


def by_our_names(theirs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """tensor2tensor's variables, or gradients of them, under the names of ours."""
    ours = {}

    def take(name: str) -> np.ndarray:
        return theirs[f"transformer/{name}"]

    shards = [take(f"symbol_modality_100_32/shared/weights_{i}") for i in range(16)]
    ours["embedding/table"] = np.concatenate(shards)
    ours["target_space_embedding"] = take("body/target_space_embedding/kernel")
    sublayers = {
        "encoder": {"self_attention": "self_attention"},
        "decoder": {"self_attention": "self_attention", "encdec_attention": "memory_attention"},
    }
    for stack, attentions in sublayers.items():
        for layer in range(2):
            source, target = f"body/{stack}/layer_{layer}", f"{stack}/layer_{layer}"
            for number, sublayer in enumerate([*attentions, "ffn"]):
                for part in ("scale", "bias"):
                    ours[f"{target}/residual_{number}/norm/{part}"] = take(
                        f"{source}/{sublayer}/layer_postprocess/layer_norm/layer_norm_{part}"
                    )
            for number in (1, 2):
                for part in ("kernel", "bias"):
                    ours[f"{target}/feed_forward/{part}{number}"] = take(f"{source}/ffn/conv{number}/{part}")
            for theirs_name, name in attentions.items():
                q, k, v, output = (
                    take(f"{source}/{theirs_name}/multihead_attention/{kernel}/kernel")
                    for kernel in ("q", "k", "v", "output_transform")
                )
                ours[f"{target}/{name}/output"] = output
                if name == "self_attention":
                    ours[f"{target}/{name}/qkv"] = np.concatenate([q, k, v], axis=1)
                else:
                    ours[f"{target}/{name}/q"] = q
                    ours[f"{target}/{name}/kv"] = np.concatenate([k, v], axis=1)
    return {f"transformer/{name}": value for name, value in ours.items()}


@pytest.fixture(scope="module")
def model() -> Transformer:
    model = Transformer(HPARAMS, 100, TARGET_SPACE_ID)
    weights = by_our_names(load("model_v1_postnorm_vars"))
    assert weights.keys() == {variable.path for variable in model.trainable_variables}
    for variable in model.trainable_variables:
        variable.assign(weights[variable.path])
    return model


def test_position_signal() -> None:
    golden = load("timing_signal")
    signal = Sinusoids(512, "position")
    np.testing.assert_allclose(signal(0, 50), golden["len50_ch512"], atol=1e-4)
    np.testing.assert_allclose(signal(7, 50), golden["len50_ch512_start7"], atol=1e-4)


def test_logits_and_loss(model: Transformer) -> None:
    golden = load("model_v1_postnorm_fwd")
    logits = model(golden["inputs"], golden["targets"])
    np.testing.assert_allclose(logits, golden["logits"], atol=1e-4)
    np.testing.assert_allclose(logits, golden["eval_logits"], atol=1e-4)
    tokens = float((golden["targets"] != 0).sum())
    smoothed = float(smoothed_cross_entropy(logits, golden["targets"], 0.1)) / tokens
    plain = float(smoothed_cross_entropy(logits, golden["targets"], 0.0)) / tokens
    assert smoothed == pytest.approx(float(golden["train_loss"]), abs=1e-5)
    assert plain == pytest.approx(float(golden["eval_loss"]), abs=1e-5)


def test_gradients(model: Transformer) -> None:
    golden = load("model_v1_postnorm_fwd")
    expected = by_our_names(load("model_v1_postnorm_grads"))
    with tf.GradientTape() as tape:
        logits = model(golden["inputs"], golden["targets"])
        loss = smoothed_cross_entropy(logits, golden["targets"], 0.1) / float((golden["targets"] != 0).sum())
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient), expected[variable.path], atol=1e-4, err_msg=variable.path
        )


def search(model: Transformer, inputs: np.ndarray, beam_size: int, alpha: float, num_best: int) -> Hypotheses:
    # tensor2tensor's limit is that of the batch's longest input, for all.
    limits = tf.fill([len(inputs)], inputs.shape[1] + EXTRA_LENGTH)

    @tf.function(input_signature=[tf.TensorSpec([None, None], tf.int32)])
    def run(inputs: tf.Tensor) -> Hypotheses:
        cache = model.start(tf.shape(inputs)[0] * beam_size)
        return beam_search(model.decode_step, cache, model.encode(inputs), limits, beam_size, alpha, num_best)

    return run(inputs)


def ended(ids: Any) -> list[int]:
    """The ids up to the first end token, with it."""
    ids = [int(i) for i in ids]
    return ids[: ids.index(1) + 1] if 1 in ids else [i for i in ids if i]


@pytest.mark.parametrize(("name", "alpha"), [("beam4_a06_top4", 0.6), ("beam4_a00_top4", 0.0), ("beam4_a10_top4", 1.0)])
def test_all_beams(model: Transformer, name: str, alpha: float) -> None:
    golden = load("model_v1_postnorm_beam")
    ours = search(model, golden["inputs"], 4, alpha, 4)
    ids, scores = golden[f"{name}/ids"], golden[f"{name}/scores"]
    for row in range(len(ids)):
        assert ended(ours.ids[row, 0]) == ended(ids[row, 0])
        assert float(ours.scores[row, 0]) == pytest.approx(scores[row, 0], abs=1e-4)
        for beam in range(1, 4):
            same = ended(ours.ids[row, beam]) == ended(ids[row, beam])
            close = float(ours.scores[row, beam]) == pytest.approx(scores[row, beam], abs=1e-4)
            assert (same and close) or float(ours.scores[row, beam]) > scores[row, beam], (row, beam)


@pytest.mark.parametrize(("name", "beam_size", "alpha"), [("beam4_a06_top1", 4, 0.6), ("greedy", 1, 0.0)])
def test_best_alone(model: Transformer, name: str, beam_size: int, alpha: float) -> None:
    golden = load("model_v1_postnorm_beam")
    ours = search(model, golden["inputs"], beam_size, alpha, 1)
    for row, (ids, score) in enumerate(zip(golden[f"{name}/ids"], golden[f"{name}/scores"], strict=True)):
        assert ended(ours.ids[row, 0]) == ended(ids)
        assert float(ours.scores[row, 0]) == pytest.approx(score, abs=1e-4)


def test_schedules() -> None:
    golden = json.loads((GOLDEN / "lr_schedules.json").read_text())
    tiny = {"hidden_size": 128, "num_heads": 4}
    v3 = registry.hparams("transformer_base_v3")
    sets = {
        "transformer_base_v1": registry.hparams("transformer_base_v1"),
        "transformer_base_v2": registry.hparams("transformer_base_v2"),
        "transformer_base_v3": v3,
        "transformer_big": dataclasses.replace(v3, hidden_size=1024),
        "transformer_tiny": dataclasses.replace(v3, **tiny),
        "transformer_base_single_gpu": dataclasses.replace(
            v3,
            learning_rate_schedule="constant*linear_warmup*rsqrt_decay",
            learning_rate_constant=0.1,
            learning_rate_warmup_steps=16000,
        ),
    }
    assert sets.keys() == golden.keys()
    for name, hparams in sets.items():
        for step, expected in golden[name]["lr_at_step"].items():
            rate = float(Schedule(hparams)(int(step)))
            assert rate == pytest.approx(expected, rel=1e-6, abs=0.0), (name, step)
