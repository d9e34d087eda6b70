"""Tests that an ensemble's log-probabilities are the mean over its models, in steps and for whole
outputs.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from numpy_math import log_softmax
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import padded
from t2t_repro.decoding.ensemble import Ensemble
from t2t_repro.decoding.search import Sources, generate_outputs
from t2t_repro.hparam import DecodeHParams

Ids = tuple[np.ndarray, np.ndarray]
"""Token ids of a batch of sources, and token ids of the targets."""


@pytest.fixture(scope="module")
def members(new_word_model: Callable[..., Any], two_layers: Any) -> list[Any]:
    """Returns the models of the ensemble, which differ in size."""
    return [two_layers, new_word_model(2, filter_size=20), new_word_model(3, num_heads=4)]


@pytest.fixture(scope="module")
def ids(tiny_vocabulary: Vocabulary) -> Ids:
    sources = tiny_vocabulary.encode(["the dog", "a cat sat on the dog"])
    targets = tiny_vocabulary.encode(["a cat sat", "Ω on"])
    return padded(sources), padded(targets)


def test_log_probabilities_and_attention_are_means_over_the_members(
    members: list[Any], ids: Ids
) -> None:
    ensemble = Ensemble(members)
    sources, targets = ids
    memory = ensemble.encode(sources)
    log_probs, [layer] = ensemble.decode(targets, memory, return_attention=True)
    results = [
        model.decode(targets, model.encode(sources), return_attention=True) for model in members
    ]
    member_log_probs = [log_softmax(logits) for logits, _ in results]
    np.testing.assert_allclose(log_probs, np.mean(member_log_probs, axis=0), atol=1e-4)
    np.testing.assert_allclose(ensemble(sources, targets), log_probs, atol=1e-5)
    assert np.abs(member_log_probs[0] - member_log_probs[1]).max() > 0.1
    # The expected weights are the mean over the heads of each member's last layer, then over the
    # members.
    means = [np.asarray(layers[-1]["cross"]).mean(axis=1, keepdims=True) for _, layers in results]
    np.testing.assert_allclose(layer["cross"], np.mean(means, axis=0), atol=1e-5)
    # Steps give the same. Only odd ones save attention weights, which must not change the
    # log-probabilities.
    cache = ensemble.start(len(sources))
    last_ids = np.zeros_like(targets[:, :1])
    for t in range(targets.shape[1]):
        options = {"return_attention": True} if t % 2 else {}
        arguments = (last_ids, t, cache, memory)
        step_log_probs, cache, *attention = ensemble.decode_step(*arguments, **options)
        np.testing.assert_allclose(step_log_probs[:, 0], log_probs[:, t], atol=1e-4)
        for [step_layer] in attention:
            weights = step_layer["cross"][:, :, 0]
            np.testing.assert_allclose(weights, layer["cross"][:, :, t], atol=1e-5)
        last_ids = targets[:, t : t + 1]


@pytest.mark.parametrize(
    "options", [{"coverage_penalty": 0.3}, {"sampling_method": "random"}], ids=str
)
def test_an_ensemble_of_equal_models_decodes_like_one(
    members: list[Any], ids: Ids, options: dict[str, Any]
) -> None:
    decode_hparams = DecodeHParams(beam_size=3, extra_length=1, n=3, **options)
    random = np.random.default_rng(1).random((2, 3, 12), np.float32)
    twins, single = (
        generate_outputs(model, decode_hparams, Sources(inputs=ids[0], random=random))
        for model in (Ensemble(members[1:2] * 2), members[1])
    )
    np.testing.assert_array_equal(twins.ids, single.ids)
    np.testing.assert_allclose(twins.scores, single.scores, rtol=1e-4)
