"""Compares the model, loss, gradients, search and learning rates with numbers that tensor2tensor
computed.

tests/golden/data/README.md describes the numbers.
"""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from golden_model import GOLDEN, golden_model, load
from t2t_repro import registry
from t2t_repro.decoding.batches import unpadded
from t2t_repro.decoding.beam_search import Hypotheses, Scoring, beam_search
from t2t_repro.hparam import DecodeHParams
from t2t_repro.tensor2tensor.variables import by_our_names
from t2t_repro.training.loss import smoothed_cross_entropy
from t2t_repro.training.schedule import Schedule

EXTRA_LENGTH = 50


@pytest.fixture(scope="module")
def model() -> Any:
    return golden_model()


def test_logits_and_losses_are_the_same(model: Any) -> None:
    golden = load("model_v1_postnorm_fwd")
    logits = model(golden["inputs"], golden["targets"])
    np.testing.assert_allclose(logits, golden["logits"], atol=1e-4)
    np.testing.assert_allclose(logits, golden["eval_logits"], atol=1e-4)
    tokens = float((golden["targets"] != 0).sum())
    smoothed = float(smoothed_cross_entropy(logits, golden["targets"], 0.1)) / tokens
    plain = float(smoothed_cross_entropy(logits, golden["targets"], 0.0)) / tokens
    assert smoothed == pytest.approx(float(golden["train_loss"]), abs=1e-5)
    assert plain == pytest.approx(float(golden["eval_loss"]), abs=1e-5)


def test_gradients_are_the_same(model: Any) -> None:
    golden = load("model_v1_postnorm_fwd")
    expected = by_our_names(load("model_v1_postnorm_grads"), "")
    with tf.GradientTape() as tape:
        logits = model(golden["inputs"], golden["targets"])
        loss = smoothed_cross_entropy(logits, golden["targets"], 0.1) / float(
            (golden["targets"] != 0).sum()
        )
    gradients = tape.gradient(loss, [variable.value for variable in model.trainable_variables])
    for variable, gradient in zip(model.trainable_variables, gradients, strict=True):
        np.testing.assert_allclose(
            tf.convert_to_tensor(gradient),
            expected[variable.path],
            atol=1e-4,
            err_msg=variable.path,
        )


def search(model: Any, inputs: Any, decode_hparams: DecodeHParams) -> Hypotheses:
    # In tensor2tensor, all outputs of a batch have the same maximum length, which depends on the
    # batch's longest input.
    limits = tf.fill([inputs.shape[0]], inputs.shape[1] + EXTRA_LENGTH)
    cache = model.start(inputs.shape[0] * decode_hparams.beam_size)
    memory = model.encode(inputs)
    return beam_search(Scoring(model.decode_step), cache, memory, limits, decode_hparams)


@pytest.mark.parametrize(
    ("name", "alpha"), [("beam4_a06_top4", 0.6), ("beam4_a00_top4", 0.0), ("beam4_a10_top4", 1.0)]
)
def test_four_hypotheses_are_the_same_or_better(model: Any, name: str, alpha: float) -> None:
    golden = load("model_v1_postnorm_beam")
    ours = search(model, golden["inputs"], DecodeHParams(4, alpha, n=4))
    ids = golden[f"{name}/ids"].tolist()
    scores = golden[f"{name}/scores"]
    our_ids = ours.ids.numpy().tolist()
    for row in range(len(ids)):
        assert unpadded(our_ids[row][0]) == unpadded(ids[row][0])
        assert float(ours.scores[row, 0]) == pytest.approx(scores[row, 0], abs=1e-4)
        for beam in range(1, 4):
            is_same = unpadded(our_ids[row][beam]) == unpadded(ids[row][beam])
            is_close = float(ours.scores[row, beam]) == pytest.approx(scores[row, beam], abs=1e-4)
            assert (is_same and is_close) or float(ours.scores[row, beam]) > scores[row, beam], (
                row,
                beam,
            )


def test_the_output_of_greedy_search_in_a_graph_is_the_same(model: Any) -> None:
    golden = load("model_v1_postnorm_beam")
    ours = tf.function(search, autograph=False)(model, golden["inputs"], DecodeHParams(1, 0.0))
    for row, (ids, score) in enumerate(
        zip(golden["greedy/ids"], golden["greedy/scores"], strict=True)
    ):
        assert unpadded(ours.ids[row, 0].numpy().tolist()) == unpadded(ids.tolist())
        assert float(ours.scores[row, 0]) == pytest.approx(score, abs=1e-4)


def test_learning_rates_are_the_same() -> None:
    golden = json.loads((GOLDEN / "lr_schedules.json").read_text())
    tiny = {"hidden_size": 128, "num_heads": 4}
    v3 = registry.hparams("transformer_base_v3")
    sets = {
        "transformer_base_v1": registry.hparams("transformer_base_v1"),
        "transformer_base_v2": registry.hparams("transformer_base_v2"),
        "transformer_base_v3": v3,
        "transformer_big": registry.hparams("transformer_big_v3"),
        "transformer_tiny": dataclasses.replace(v3, **tiny),
        "transformer_base_single_gpu": registry.hparams("transformer_base_single_gpu"),
    }
    assert sets.keys() == golden.keys()
    for name, hparams in sets.items():
        for step, expected in golden[name]["lr_at_step"].items():
            rate = float(Schedule(hparams)(int(step)))
            assert rate == pytest.approx(expected, rel=1e-6, abs=0.0), (name, step)
