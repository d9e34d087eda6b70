"""Several models as one: the mean of what each says alone, step by step and of whole outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from t2t_repro.data.vocabulary import EOS_ID, Vocabulary
from t2t_repro.decoding.batches import padded
from t2t_repro.decoding.ensemble import Ensemble
from t2t_repro.decoding.search import generate_outputs
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models.transformer import Transformer


@pytest.fixture(scope="module")
def members(new_word_model: Callable[..., Transformer], two_layers: Transformer) -> list[Transformer]:
    """Of several sizes."""
    return [two_layers, new_word_model(2, filter_size=20), new_word_model(3, num_heads=4)]


@pytest.fixture(scope="module")
def ids(tiny_vocabulary: Vocabulary) -> tuple[np.ndarray, np.ndarray]:
    """Sources and targets."""
    sources, targets = ["the dog", "a cat sat on the dog"], ["a cat sat", "Ω on"]
    return padded(tiny_vocabulary.encode(sources)), padded(tiny_vocabulary.encode(targets))


def log_softmax(logits: Any) -> np.ndarray:
    values = np.asarray(logits, np.float64)
    return values - np.log(np.exp(values).sum(axis=-1, keepdims=True))


def test_log_probabilities_are_the_mean_of_the_members(
    members: list[Transformer], ids: tuple[np.ndarray, np.ndarray]
) -> None:
    ours, (sources, targets) = Ensemble(members), ids
    weights: list[Any] = []
    found = ours.decode(targets, ours.encode(sources), save_weights_to=weights)
    theirs: list[list[Any]] = [[] for _ in members]
    alone = [
        log_softmax(model.decode(targets, model.encode(sources), save_weights_to=own))
        for model, own in zip(members, theirs, strict=True)
    ]
    np.testing.assert_allclose(found, np.mean(alone, axis=0), atol=1e-4)
    assert np.abs(alone[0] - alone[1]).max() > 0.1
    # Of the last layer of each the mean over its heads, and of these the mean.
    [attention] = weights
    means = [np.asarray(own[-1]).mean(axis=1, keepdims=True) for own in theirs]
    np.testing.assert_allclose(attention, np.mean(means, axis=0), atol=1e-5)


def test_step_by_step_it_says_what_it_says_of_the_whole(
    members: list[Transformer], ids: tuple[np.ndarray, np.ndarray]
) -> None:
    ours, (sources, targets) = Ensemble(members), ids
    memory, weights = ours.encode(sources), list[Any]()
    whole = np.asarray(ours.decode(targets, memory, save_weights_to=weights))
    cache, before = ours.start(len(sources)), np.zeros_like(targets[:, :1])
    for t in range(targets.shape[1]):
        own: list[Any] = []
        # What the attention is asked for must not change what is said.
        asked = {"save_weights_to": own} if t % 2 else {}
        log_probs, cache = ours.decode_step(before, t, cache, memory, **asked)
        np.testing.assert_allclose(log_probs[:, 0], whole[:, t], atol=1e-4)
        if asked:
            np.testing.assert_allclose(own[0][:, :, 0], weights[0][:, :, t], atol=1e-5)
        before = targets[:, t : t + 1]


def test_scores_of_pairs_are_the_mean_of_the_members(members: list[Transformer], tiny_vocabulary: Vocabulary) -> None:
    sources, targets = ["the dog", "", "a cat sat on the dog"], ["a cat sat", "on", ""]
    of_all, *of_each = (
        Translator(model, tiny_vocabulary, DecodeHParams()).score(sources, targets)
        for model in (Ensemble(members[1:]), *members[1:])
    )
    for found, *alone in zip(of_all, *of_each, strict=True):
        expected = np.mean([each.token_scores for each in alone], axis=0)
        assert found.token_scores == pytest.approx(expected.tolist(), rel=1e-4)
        assert found.log_prob == pytest.approx(np.mean([each.log_prob for each in alone]), rel=1e-4)


@pytest.mark.parametrize("options", [{"coverage_penalty": 0.3}, {"sampling_method": "random"}], ids=str)
def test_of_one_model_twice_it_is_that_model(
    members: list[Transformer], ids: tuple[np.ndarray, np.ndarray], options: dict[str, Any]
) -> None:
    params = DecodeHParams(beam_size=3, extra_length=1, n=3, **options)
    random = np.random.default_rng(1).random((2, 3, 12), np.float32)
    found, expected = (
        generate_outputs(model, params, ids[0], random=random) for model in (Ensemble(members[1:2] * 2), members[1])
    )
    np.testing.assert_array_equal(found.ids, expected.ids)
    np.testing.assert_allclose(found.scores, expected.scores, rtol=1e-4)


def test_an_outputs_score_is_the_mean_of_the_members(
    members: list[Transformer], ids: tuple[np.ndarray, np.ndarray]
) -> None:
    params, sources = DecodeHParams(beam_size=2, alpha=0.5, extra_length=1), ids[0]
    found = generate_outputs(Ensemble(members[1:]), params, sources)
    outputs = found.ids.numpy()[:, 0]
    alone = [log_softmax(model(sources, outputs)) for model in members[1:]]
    for row, output in enumerate(outputs.tolist()):
        length = output.index(EOS_ID) + 1 if EOS_ID in output else sum(i != 0 for i in output)
        totals = [log_probs[row, range(length), output[:length]].sum() for log_probs in alone]
        assert found.scores.numpy()[row, 0] == pytest.approx(np.mean(totals) / ((5 + length) / 6) ** 0.5, rel=1e-4)


def test_all_members_variables(members: list[Transformer]) -> None:
    found = Ensemble(members).trainable_variables
    assert len(found) == sum(len(model.trainable_variables) for model in members)
    assert {id(variable) for variable in found} == {id(v) for model in members for v in model.trainable_variables}
