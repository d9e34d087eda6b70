"""Tests the outputs of beam search and sampling for different decode_hparams.

The tests compute the expected scores and penalties without a search.
"""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from models import ModelWithoutCache
from numpy_math import log_softmax
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import padded, unpadded
from t2t_repro.decoding.sampling import random_numbers
from t2t_repro.decoding.search import Sources, generate_outputs, target_log_probs
from t2t_repro.hparam import DecodeHParams, override

SOURCES = ["the dog", "a cat sat on the", "cat", "a dog sat"]
ALPHA = 0.8
Output = tuple[list[int], float]
"""The ids and the score of an output."""


@pytest.fixture(scope="module")
def inputs(tiny_vocabulary: Vocabulary) -> np.ndarray:
    return padded(tiny_vocabulary.encode(SOURCES))


@pytest.fixture(scope="module")
def prefixes(tiny_vocabulary: Vocabulary) -> np.ndarray:
    """Returns ids of a prefix for each source: several tokens, no token, one token, and the bytes
    of a letter.
    """
    return padded([ids[:-1] for ids in tiny_vocabulary.encode(["the cat the", "", "dog", "Ω"])])


def log_probs_and_coverage(
    model: Any, sources: np.ndarray, outputs: Sequence[Sequence[int]]
) -> list[tuple[float, float]]:
    """Returns each output's log-probability and coverage (the sum over source tokens of
    log(min(attention, 1))).
    """
    memory = model.encode(sources)
    logits, layers = model.decode(padded(outputs), memory, return_attention=True)
    assert len(layers) == 2
    # The mean over the heads of the last layer: [B, T, S].
    attention = np.asarray(layers[1]["cross"]).mean(axis=1)
    results = []
    for source, ids, log_probs, weights_of_row in zip(
        sources, outputs, log_softmax(logits), attention, strict=True
    ):
        total_attention = weights_of_row[: len(ids)].sum(axis=0)[source != 0]
        log_prob = float(log_probs[range(len(ids)), list(ids)].sum())
        results.append((log_prob, float(np.log(np.clip(total_attention, 1e-6, 1)).sum())))
    return results


def count_repetitions(ids: Sequence[int], size: int) -> int:
    """Returns the number of tokens that complete an n-gram of length `size` that occurred earlier
    in `ids`.
    """
    ngrams = [tuple(ids[end - size : end]) for end in range(size, len(ids) + 1)]
    return len(ngrams) - len(set(ngrams))


def generate(
    model: Any, decode_hparams: DecodeHParams, inputs: Any, prefix: Any = None, random: Any = None
) -> list[list[Output]]:
    """Runs `generate_outputs`, and returns each source's outputs, except those with score -inf,
    which do not exist.
    """
    arrays = {"inputs": inputs, "prefix": prefix, "random": random}
    sources = Sources(**{name: array for name, array in arrays.items() if array is not None})
    result = generate_outputs(model, decode_hparams, sources)
    outputs = []
    for hypotheses, scores in zip(result.ids.numpy(), result.scores.numpy(), strict=True):
        pairs = zip(hypotheses.tolist(), scores.tolist(), strict=True)
        outputs.append([(unpadded(ids), score) for ids, score in pairs if score > -math.inf])
    return outputs


@pytest.mark.parametrize(
    ("has_prefix", "options"),
    [
        (False, "beam_size=5,n=5,coverage_penalty=0.4"),
        (True, "n=4,repeat_ngram_size=1,repeat_ngram_penalty=0.7"),
        (True, "n=3,coverage_penalty=0.2,repeat_ngram_size=2,repeat_ngram_penalty=1.5"),
        (False, "beam_size=1,coverage_penalty=3,repeat_ngram_size=1,repeat_ngram_penalty=0.1"),
        (
            True,
            "sampling_method=random,n=3,sampling_temp=0.7,sampling_keep_top_k=5,"
            "repeat_ngram_size=1,repeat_ngram_penalty=0.5",
        ),
    ],
    ids=["coverage", "repetitions", "both", "greedy", "random"],
)
def test_scores_follow_the_formula(
    two_layers: Any,
    inputs: np.ndarray,
    prefixes: np.ndarray,
    has_prefix: bool,
    options: str,
) -> None:
    params = override(DecodeHParams(alpha=ALPHA, extra_length=2), options)
    random = random_numbers_of_lines(1, len(inputs), 20, params.n)
    outputs = generate(two_layers, params, inputs, prefixes if has_prefix else None, random)
    assert [len(hypotheses) for hypotheses in outputs] == [params.n] * len(inputs)
    rows = np.repeat(np.arange(len(inputs)), params.n)
    all_outputs = [output for hypotheses in outputs for output in hypotheses]
    total_penalty = 0.0
    log_probs = log_probs_and_coverage(two_layers, inputs[rows], [ids for ids, _ in all_outputs])
    for row, (ids, score), (log_prob, coverage) in zip(rows, all_outputs, log_probs, strict=True):
        prefix = [token for token in prefixes[row].tolist() if token and has_prefix]
        size = params.repeat_ngram_size or 1
        # A prefix may have repetitions.
        repetitions = count_repetitions(ids, size) - count_repetitions(prefix, size)
        penalty = params.repeat_ngram_penalty * repetitions
        expected = (log_prob - penalty) / ((5 + len(ids)) / 6) ** ALPHA
        expected += params.coverage_penalty * coverage
        assert score == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert ids[: len(prefix)] == prefix
        assert ids[-1] == EOS_ID or len(ids) == np.count_nonzero(inputs[row]) + 2 + len(prefix)
        total_penalty += penalty - coverage
    assert total_penalty > 1
    for hypotheses in outputs:
        order = [(ids[-1] == EOS_ID, score) for ids, score in hypotheses]
        if params.is_random:  # in the order in which they were drawn
            order = [(has_end, 0.0) for has_end, _ in order]
            assert len({tuple(ids) for ids, _ in hypotheses}) > 1
        assert order == sorted(order, reverse=True)


class RepeatingModel(ModelWithoutCache):
    """A model whose next token depends only on the last token. Its outputs are long and have many
    repetitions.
    """

    has_attention = False
    is_normalized = False

    def __init__(self, padding: float = -9.0) -> None:
        self.table = np.random.default_rng(4).normal(0, 2, (8, 8)).astype("float32")
        self.table[:, EOS_ID] = -1.0
        self.table[:, 0] = padding

    def decode_step(
        self, ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(self.table, ids), cache


def random_numbers_of_lines(seed: int, lines: int, length: int, count: int) -> np.ndarray:
    return np.stack([random_numbers(seed, line, 0, length, count) for line in range(lines)])


@pytest.mark.parametrize(
    ("size", "options"),
    [(1, ""), (2, ""), (3, ",sampling_method=random,sampling_keep_top_k=3")],
    ids=["1", "2", "3, random"],
)
def test_forbidden_repetitions_do_not_occur(inputs: np.ndarray, size: int, options: str) -> None:
    random = random_numbers_of_lines(3, len(inputs), 30, 4)

    def outputs(penalty: str = "") -> list[list[int]]:
        params = override(DecodeHParams(n=4, extra_length=12), penalty + options)
        results = generate(RepeatingModel(), params, inputs, random=random)
        return [ids for hypotheses in results for ids, _ in hypotheses]

    assert sum(count_repetitions(ids, size) for ids in outputs()) > 3
    strict = outputs(f"repeat_ngram_size={size},repeat_ngram_penalty=inf")
    assert not any(count_repetitions(ids, size) for ids in strict)
    assert any(len(ids) > size + 2 for ids in strict)


@pytest.mark.parametrize("method", ["argmax", "random"])
def test_padding_is_never_a_token_of_an_output(inputs: np.ndarray, method: str) -> None:
    random = random_numbers_of_lines(3, len(inputs), 30, 4)
    decode_hparams = DecodeHParams(n=4, extra_length=3, sampling_method=method)
    result = generate_outputs(
        RepeatingModel(padding=1.0), decode_hparams, Sources(inputs=inputs, random=random)
    )
    for ids in result.ids.numpy().reshape(-1, result.ids.shape[2]).tolist():
        assert 0 not in ids[: len([token for token in ids if token])]


def test_log_probabilities_and_attention_of_given_targets(
    two_layers: Any, inputs: np.ndarray, tiny_vocabulary: Vocabulary
) -> None:
    targets = tiny_vocabulary.encode(["the cat", "Ω", "", "a dog sat on the cat"])
    log_probs, attention = map(np.asarray, target_log_probs(two_layers, inputs, padded(targets)))
    memory = two_layers.encode(inputs)
    logits, layers = two_layers.decode(padded(targets), memory, return_attention=True)
    for row, ids in enumerate(targets):
        expected = log_softmax(logits[row])[range(len(ids)), ids]
        np.testing.assert_allclose(log_probs[row, : len(ids)], expected, rtol=1e-4)
        assert not log_probs[row, len(ids) :].any()
        mean_weights = np.asarray(layers[1]["cross"])[row].mean(axis=0)
        assert (
            attention[row, : len(ids)].tolist() == mean_weights.argmax(axis=1)[: len(ids)].tolist()
        )
        assert (attention[row] < np.count_nonzero(inputs[row])).all()
    assert len(set(attention.ravel().tolist())) > 2
