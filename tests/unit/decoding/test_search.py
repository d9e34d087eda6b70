"""What decode_hparams ask for, by hand: every score from the whole output at once, every rule from a plain loop."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from t2t_repro.data.vocabulary import EOS_ID, Vocabulary
from t2t_repro.decoding.batches import padded
from t2t_repro.decoding.beam_search import Hypotheses
from t2t_repro.decoding.sampling import random_numbers
from t2t_repro.decoding.search import generate_outputs, target_log_probs
from t2t_repro.hparam import DecodeHParams
from t2t_repro.models.transformer import Transformer

SOURCES = ["the dog", "a cat sat on the", "cat", "a dog sat"]
ALPHA = 0.8


@pytest.fixture(scope="module")
def inputs(tiny_vocabulary: Vocabulary) -> np.ndarray:
    return padded(tiny_vocabulary.encode(SOURCES))


@pytest.fixture(scope="module")
def prefixes(tiny_vocabulary: Vocabulary) -> np.ndarray:
    """One of several tokens, none, one of one, and one of bytes."""
    return padded([ids[:-1] for ids in tiny_vocabulary.encode(["the cat on", "", "dog", "Ω"])])


def log_softmax(logits: Any) -> np.ndarray:
    values = np.asarray(logits, np.float64)
    return values - np.log(np.exp(values).sum(axis=-1, keepdims=True))


def by_hand(model: Transformer, sources: np.ndarray, outputs: Sequence[Sequence[int]]) -> list[tuple[float, float]]:
    """log P of each output, and the sum over source tokens of the logarithm of what attention they had, at most 1."""
    weights: list[Any] = []
    logits = model.decode(padded(outputs), model.encode(sources), save_weights_to=weights)
    assert len(weights) == 2  # layers
    of_positions = np.asarray(weights[1]).mean(axis=1)  # [B, T, S]
    found = []
    for source, ids, row, attention in zip(sources, outputs, log_softmax(logits), of_positions, strict=True):
        taken = attention[: len(ids)].sum(axis=0)[source != 0]
        found.append((float(row[range(len(ids)), list(ids)].sum()), float(np.log(np.clip(taken, 1e-6, 1)).sum())))
    return found


def repetitions(ids: Sequence[int], size: int) -> int:
    """How many tokens complete an n-gram that was there before."""
    seen, count = set(), 0
    for end in range(size, len(ids) + 1):
        count += tuple(ids[end - size : end]) in seen
        seen.add(tuple(ids[end - size : end]))
    return count


def outputs(found: Hypotheses) -> list[list[tuple[list[int], float]]]:
    """The ids and the score of each output that there is."""
    rows = []
    for hypotheses, scores in zip(found.ids.numpy().tolist(), found.scores.numpy().tolist(), strict=True):
        trimmed = [ids[: ids.index(EOS_ID) + 1] if EOS_ID in ids else ids for ids in hypotheses]
        rows.append(
            [
                (ids[: max(place for place, i in enumerate(ids, 1) if i)], score)
                for ids, score in zip(trimmed, scores, strict=True)
                if score > -math.inf
            ]
        )
    return rows


@pytest.mark.parametrize(
    ("is_forced", "options"),
    [
        (False, {"beam_size": 5, "coverage_penalty": 0.4}),
        (True, {"beam_size": 4, "repeat_ngram_size": 1, "repeat_ngram_penalty": 0.7}),
        (True, {"beam_size": 3, "coverage_penalty": 0.2, "repeat_ngram_size": 2, "repeat_ngram_penalty": 1.5}),
        (False, {"beam_size": 1, "coverage_penalty": 3.0, "repeat_ngram_size": 1, "repeat_ngram_penalty": 0.1}),
    ],
    ids=str,
)
def test_the_score_is_that_of_the_formula(
    two_layers: Transformer, inputs: np.ndarray, prefixes: np.ndarray, is_forced: bool, options: dict[str, Any]
) -> None:
    params = DecodeHParams(alpha=ALPHA, extra_length=2, return_beams=True, **options)
    found = outputs(generate_outputs(two_layers, params, inputs, prefixes if is_forced else None))
    assert [len(hypotheses) for hypotheses in found] == [params.beam_size] * len(inputs)
    rows = np.repeat(np.arange(len(inputs)), params.beam_size)
    flat = [each for hypotheses in found for each in hypotheses]
    penalties = 0.0
    parts = by_hand(two_layers, inputs[rows], [ids for ids, _ in flat])
    for row, (ids, score), (log_prob, coverage) in zip(rows, flat, parts, strict=True):
        prefix = [i for i in prefixes[row].tolist() if i and is_forced]
        taken = params.repeat_ngram_penalty * repetitions(ids, params.repeat_ngram_size or 1)
        expected = (log_prob - taken) / ((5 + len(ids)) / 6) ** ALPHA + params.coverage_penalty * coverage
        assert score == pytest.approx(expected, rel=1e-4, abs=1e-4)
        assert ids[: len(prefix)] == prefix
        assert ids[-1] == EOS_ID or len(ids) == np.count_nonzero(inputs[row]) + 2 + len(prefix)
        penalties += taken - coverage
    assert penalties > 1
    for hypotheses in found:
        order = [(ids[-1] == EOS_ID, score) for ids, score in hypotheses]
        assert order == sorted(order, reverse=True)


def test_a_free_beginning_is_as_if_there_were_no_prefix(
    two_layers: Transformer, inputs: np.ndarray, prefixes: np.ndarray
) -> None:
    params = DecodeHParams(beam_size=3, extra_length=2, return_beams=True)
    forced, free = (
        outputs(generate_outputs(two_layers, params, inputs, prefixes)),
        outputs(generate_outputs(two_layers, params, inputs)),
    )
    assert [ids for ids, _ in forced[1]] == [ids for ids, _ in free[1]]
    assert [score for _, score in forced[1]] == pytest.approx([score for _, score in free[1]], rel=1e-4)
    assert forced[0] != free[0]


def test_a_prefix_of_the_best_output_leads_to_it(two_layers: Transformer, inputs: np.ndarray) -> None:
    params = DecodeHParams(beam_size=1, extra_length=2)
    best = [hypotheses[0] for hypotheses in outputs(generate_outputs(two_layers, params, inputs))]
    halves = padded([ids[: len(ids) // 2] for ids, _ in best])
    again = [hypotheses[0] for hypotheses in outputs(generate_outputs(two_layers, params, inputs, halves))]
    for (ids, _), (found, _) in zip(best, again, strict=True):
        assert found[: len(ids)] == ids


class Parrot:
    """A model that likes some words after others, and to end rather late."""

    has_attention, is_normalized = False, False

    def __init__(self, padding: float = -9.0) -> None:
        self.table = np.random.default_rng(4).normal(0, 2, (8, 8)).astype("float32")
        self.table[:, EOS_ID] = -1.0
        self.table[:, 0] = padding

    def encode(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs

    def start(self, hypotheses: tf.Tensor) -> tf.Tensor:
        return tf.zeros([hypotheses])

    def decode_step(
        self, ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(self.table, ids), cache


@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("method", ["argmax", "random"])
def test_what_is_forbidden_to_be_repeated_is_not(inputs: np.ndarray, size: int, method: str) -> None:
    options: dict[str, Any] = {"n": 4, "extra_length": 12, "sampling_method": method}
    if method == "random":
        options["sampling_keep_top_k"] = 3
    random = np.stack([random_numbers(3, line, 0, 30, 4) for line in range(len(inputs))])
    forbidden: dict[str, Any] = {"repeat_ngram_size": size, "repeat_ngram_penalty": math.inf}
    free, strict = (
        outputs(generate_outputs(Parrot(), DecodeHParams(**each), inputs, random=random))
        for each in (options, options | forbidden)
    )
    assert sum(repetitions(ids, size) for row in free for ids, _ in row) > 3
    assert sum(repetitions(ids, size) for row in strict for ids, _ in row) == 0
    assert any(len(ids) > size + 2 for row in strict for ids, _ in row)


@pytest.mark.parametrize("method", ["argmax", "random"])
def test_padding_is_no_token_of_an_output(inputs: np.ndarray, method: str) -> None:
    random = np.stack([random_numbers(3, line, 0, 30, 4) for line in range(len(inputs))])
    params = DecodeHParams(n=4, extra_length=3, sampling_method=method)
    for hypotheses in generate_outputs(Parrot(padding=1.0), params, inputs, random=random).ids.numpy().tolist():
        for ids in hypotheses:
            assert 0 not in ids[: len([i for i in ids if i])]


def test_draws_have_prefixes_and_the_models_scores(
    two_layers: Transformer, inputs: np.ndarray, prefixes: np.ndarray
) -> None:
    params = DecodeHParams(
        alpha=ALPHA, extra_length=2, n=3, sampling_method="random", sampling_temp=0.7, sampling_keep_top_k=5,
        repeat_ngram_size=1, repeat_ngram_penalty=0.5,
    )  # fmt: skip
    random = np.stack([random_numbers(1, line, 0, 20, 3) for line in range(len(inputs))])
    found = outputs(generate_outputs(two_layers, params, inputs, prefixes, random))
    for row, hypotheses in enumerate(found):
        prefix = [i for i in prefixes[row].tolist() if i]
        assert len({tuple(ids) for ids, _ in hypotheses}) > 1
        parts = by_hand(two_layers, inputs[[row] * 3], [ids for ids, _ in hypotheses])
        for (ids, score), (log_prob, _) in zip(hypotheses, parts, strict=True):
            expected = (log_prob - 0.5 * repetitions(ids, 1)) / ((5 + len(ids)) / 6) ** ALPHA
            assert score == pytest.approx(expected, rel=1e-4)
            assert ids[: len(prefix)] == prefix


def test_the_log_probabilities_of_given_targets(
    two_layers: Transformer, inputs: np.ndarray, tiny_vocabulary: Vocabulary
) -> None:
    targets = tiny_vocabulary.encode(["the cat", "Ω", "", "a dog sat on the cat"])
    log_probs, places = (x.numpy() for x in target_log_probs(two_layers, inputs, padded(targets)))
    weights: list[tf.Tensor] = []
    logits = two_layers.decode(padded(targets), two_layers.encode(inputs), save_weights_to=weights)
    for row, ids in enumerate(targets):
        expected = log_softmax(logits[row])[range(len(ids)), ids]
        np.testing.assert_allclose(log_probs[row, : len(ids)], expected, rtol=1e-4)
        assert not log_probs[row, len(ids) :].any()
        means = np.asarray(weights[1])[row].mean(axis=0)
        assert places[row, : len(ids)].tolist() == means.argmax(axis=1)[: len(ids)].tolist()
        assert (places[row] < np.count_nonzero(inputs[row])).all()
    assert len(set(places.ravel().tolist())) > 2
