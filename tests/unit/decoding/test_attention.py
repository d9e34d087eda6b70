"""Compares attention weights with a plain numpy computation from a model's matrices; tests tokens and words."""

from __future__ import annotations

import threading
from dataclasses import replace
from functools import partial
from typing import Any

import keras
import numpy as np
import pytest

from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.attention import (
    START,
    Attention,
    Tokens,
    attention_of,
    attention_weights,
    merged,
    require_attention,
)
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.layers.attention import save_weights
from t2t_repro.models.transformer import Transformer

HPARAMS = HParams(num_hidden_layers=3, hidden_size=12, filter_size=20, num_heads=3, attention_value_channels=6)
SOURCE, TARGET = np.array([5, 9, 3, 7, 7, 2, 1]), np.array([4, 8, 8, 6, 1])


class Reference:
    """The Transformer in numpy (float64), from the weights of a model, by their names in a checkpoint."""

    def __init__(self, model: Transformer) -> None:
        self.hparams = model.hparams
        self.values = {
            variable.path.removeprefix("transformer/"): np.asarray(variable.value, np.float64)
            for variable in model.trainable_variables
        }
        self.saved: dict[str, list[np.ndarray]] = {"encoder": [], "decoder": [], "cross": []}

    def norm(self, x: np.ndarray, path: str) -> np.ndarray:
        scaled = (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + self.hparams.norm_epsilon)
        return scaled * self.values[f"{path}/norm/scale"] + self.values[f"{path}/norm/bias"]

    def residual(self, x: np.ndarray, path: str, sublayer: Any) -> np.ndarray:
        if self.hparams.norm_before:
            return x + sublayer(self.norm(x, path))
        return self.norm(x + sublayer(x), path)

    def attention(self, x: np.ndarray, memory: np.ndarray, path: str, kind: str) -> np.ndarray:
        heads, keys, depth = self.hparams.num_heads, self.hparams.key_channels, self.hparams.key_channels // 3
        if kind == "cross":
            matrices = [self.values[f"{path}/q"], *np.split(self.values[f"{path}/kv"], [keys], axis=1)]
        else:
            matrices = np.split(self.values[f"{path}/qkv"], [keys, 2 * keys], axis=1)
        q, k, v = (side @ matrix for side, matrix in zip((x, memory, memory), matrices, strict=True))
        weights, outputs = np.zeros((heads, len(x), len(memory))), []
        for head in range(heads):
            queries, values = q[:, head * depth : (head + 1) * depth], np.split(v, heads, axis=1)[head]
            output = np.zeros((len(x), values.shape[1]))
            for i, query in enumerate(queries):
                logits = np.array(
                    [self.logit(query, k[j, head * depth :][:depth], i, j, path, kind) for j in range(len(k))]
                )
                weights[head, i] = np.exp(logits) / np.exp(logits).sum()
                for j, weight in enumerate(weights[head, i]):
                    output[i] += weight * (values[j] + self.relative("values", i, j, path, kind))
            outputs.append(output)
        self.saved[kind].append(weights)
        return np.concatenate(outputs, axis=1) @ self.values[f"{path}/output"]

    def self_attention(self, x: np.ndarray, path: str, kind: str) -> np.ndarray:
        return self.attention(x, x, path, kind)

    def logit(self, query: np.ndarray, key: np.ndarray, i: int, j: int, path: str, kind: str) -> float:
        reach = self.hparams.self_attention_neighborhood // 2
        if (kind == "decoder" and j > i) or (kind != "cross" and reach and abs(i - j) > reach):
            return -np.inf
        return float(query @ (key + self.relative("keys", i, j, path, kind)) / np.sqrt(len(query)))

    def relative(self, side: str, i: int, j: int, path: str, kind: str) -> Any:
        most = self.hparams.max_relative_position
        if kind == "cross" or not most:
            return 0.0
        return self.values[f"{path}/relative_{side}/table"][np.clip(j - i, -most, most) + most]

    def stack(self, x: np.ndarray, side: str, memory: np.ndarray | None = None) -> np.ndarray:
        for layer in range(self.hparams.num_hidden_layers):
            path = f"{side}/layer_{layer}"
            names = [f"{path}/residual_{number}" for number in range(3)]
            x = self.residual(x, names[0], partial(self.self_attention, path=f"{path}/self_attention", kind=side))
            if memory is not None:
                cross = partial(self.attention, memory=memory, path=f"{path}/memory_attention", kind="cross")
                x = self.residual(x, names[1], cross)
            x = self.residual(x, names[1 if memory is None else 2], partial(self.feed_forward, path=path))
        return self.norm(x, side) if self.hparams.norm_before else x

    def feed_forward(self, x: np.ndarray, path: str) -> np.ndarray:
        values = [self.values[f"{path}/feed_forward/{name}"] for name in ("kernel1", "bias1", "kernel2", "bias2")]
        return np.maximum(x @ values[0] + values[1], 0) @ values[2] + values[3]

    def embedded(self, ids: np.ndarray) -> np.ndarray:
        return self.values["embedding/table"][ids] * np.sqrt(self.hparams.hidden_size)

    def positions(self, count: int) -> np.ndarray:
        half = self.hparams.hidden_size // 2
        angles = np.arange(count)[:, None] * 1e4 ** (-np.arange(half) / (half - 1))
        return np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def weights(self, source: np.ndarray, target: np.ndarray) -> dict[str, np.ndarray]:
        memory = self.stack(self.embedded(source) + self.positions(len(source)), "encoder")
        read = np.concatenate([np.zeros((1, self.hparams.hidden_size)), self.embedded(target)[:-1]])
        self.stack(read + self.positions(len(target)), "decoder", memory)
        return {kind: np.stack(layers) for kind, layers in self.saved.items()}


def new_model(**changes: Any) -> Transformer:
    """Returns a model with random weights, also in norms and biases, large enough for uneven attention."""
    keras.utils.set_random_seed(3)
    model = Transformer(replace(HPARAMS, **changes), vocab_size=12)
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(1.5 * np.asarray(variable.value) + 0.3 * random.normal(size=variable.shape))
    return model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm_before": True},
        {"self_attention_type": "dot_product_relative", "max_relative_position": 2},
        {"self_attention_neighborhood": 4},
    ],
    ids=["paper", "norm_before", "relative", "restricted"],
)
def test_weights_are_those_of_a_plain_computation(changes: dict[str, Any]) -> None:
    model = new_model(**changes)
    weights = attention_weights(model, SOURCE, TARGET)
    expected = Reference(model).weights(SOURCE, TARGET)
    assert {kind: array.shape for kind, array in weights.items()} == {
        "encoder": (3, 3, 7, 7),
        "decoder": (3, 3, 5, 5),
        "cross": (3, 3, 5, 7),
    }
    for kind, array in weights.items():
        assert array.dtype == np.float32 and array.std() > 0.1
        np.testing.assert_allclose(array, expected[kind], rtol=0, atol=1e-5)
        np.testing.assert_allclose(array.sum(axis=3), 1, rtol=0, atol=1e-6)


def test_restricted_weights_of_several_blocks() -> None:
    model, source = new_model(self_attention_neighborhood=6), np.arange(40) % 9 + 2
    weights = attention_weights(model, source, source[:35])
    expected = Reference(model).weights(source, source[:35])
    for kind, array in weights.items():
        np.testing.assert_allclose(array, expected[kind], rtol=0, atol=1e-5)


def test_padding_gets_no_weight() -> None:
    model = new_model()
    with save_weights() as saved:
        model.encode(np.array([[5, 9, 1, 0, 0], [5, 9, 3, 4, 1]]))
    unpadded = attention_weights(model, np.array([5, 9, 1]), TARGET)["encoder"]
    for layer, weights in enumerate(saved):
        assert (np.asarray(weights)[0, :, :, 3:] == 0).all()
        np.testing.assert_allclose(np.asarray(weights)[0, :, :3, :3], unpadded[layer], rtol=0, atol=1e-6)


def test_only_the_layers_of_the_same_context_and_thread_are_saved() -> None:
    model, ids = new_model(), SOURCE[None]
    with save_weights() as outer:
        with save_weights() as inner:
            model.encode(ids)
        thread = threading.Thread(target=model.encode, args=[ids])
        thread.start()
        thread.join()
    model.encode(ids)
    assert (len(outer), len(inner)) == (0, 3)


def test_a_model_of_another_kind_has_only_encoder_decoder_attention() -> None:
    transformer = new_model()

    class Other:
        name, has_attention = "other", True

        @staticmethod
        def encode(inputs: Any) -> Any:
            assert inputs.dtype == "int64"  # as in training
            return transformer.encode(inputs)

        @staticmethod
        def decode(targets: Any, memory: Any, save_weights_to: list[Any]) -> Any:
            assert targets.dtype == "int64"
            return transformer.decode(targets, memory, save_weights_to=save_weights_to)

    pair = SOURCE.astype(np.int32), TARGET.astype(np.int32)
    weights = attention_weights(Other(), *pair)  # type: ignore[arg-type]
    assert list(weights) == ["cross"]
    np.testing.assert_array_equal(weights["cross"], attention_weights(transformer, SOURCE, TARGET)["cross"])


def test_a_model_without_attention_is_refused() -> None:
    class Other:
        name, has_attention = "other", False

    with pytest.raises(
        UserError, match=r"^model 'other' has no attention; use another model \(docs/models.md says which"
    ):
        require_attention(Other())  # type: ignore[arg-type]


def test_words_have_the_sum_over_keys_and_the_mean_over_queries() -> None:
    weights = np.random.default_rng(2).dirichlet(np.ones(4), size=(2, 3, 5)).astype(np.float32)
    queries, keys = Tokens(("a", "b"), (0, 2)), Tokens(("c", "d", "e"), (0, 1, 3))
    words = merged(weights, queries, keys)
    assert words.shape == (2, 3, 2, 3)
    np.testing.assert_allclose(words[1, 2, 1, 1], weights[1, 2, 2:, 1:3].sum() / 3, rtol=1e-6)
    np.testing.assert_allclose(words[0, 1, 0, 2], weights[0, 1, :2, 3].mean(), rtol=1e-6)
    np.testing.assert_allclose(words.sum(axis=3), 1, rtol=1e-6)


def test_words_are_between_spaces(tiny_vocabulary: Vocabulary) -> None:
    ids = tiny_vocabulary.encode(["the dög  sat, a"])[0]
    words = Tokens.words(tiny_vocabulary, ids)
    assert words.labels == ("the", "dög", "sat,", "a", "</s>")
    pieces = Tokens.pieces(tiny_vocabulary, ids)
    assert [pieces.labels[start] for start in words.starts][-2:] == ["▁a", "</s>"]
    assert "<0xC3>" in pieces.labels
    # The space before a letter that is no piece is a piece of its own, and belongs to that letter.
    words = Tokens.words(tiny_vocabulary, tiny_vocabulary.encode(["dog Ω"])[0])
    assert words.labels == ("dog", "Ω", "</s>")
    pieces = Tokens.pieces(tiny_vocabulary, tiny_vocabulary.encode(["dog Ω"])[0])
    assert [pieces.labels[start] for start in words.starts][1] == "▁"
    characters = ByteVocabulary()
    words = Tokens.words(characters, characters.encode(["é ab"])[0])
    assert words.labels[:2] == ("é", "ab") and words.starts == (0, 3, 5)  # a space belongs to the word before it


def test_the_decoder_reads_the_start_and_all_tokens_but_the_last() -> None:
    words = Tokens(("a", "b", "</s>"), (0, 2, 5))
    assert words.shifted(6) == Tokens((START, "a", "b"), (0, 1, 3))
    # Without an end token, the last word is read up to its last token but one.
    assert Tokens(("a", "b"), (0, 2)).shifted(4) == Tokens((START, "a", "b"), (0, 1, 3))
    assert Tokens(("</s>",), (0,)).shifted(1) == Tokens((START,), (0,))


def test_labels_of_queries_and_keys(tiny_vocabulary: Vocabulary) -> None:
    model = Transformer(replace(HPARAMS, num_hidden_layers=1), tiny_vocabulary.size)
    inputs, targets = (np.array([*ids, 0, 0]) for ids in tiny_vocabulary.encode(["the dog", "a cat"]))
    kinds = attention_of(model, tiny_vocabulary, inputs, targets, merge_subwords=True)
    source, target = ("the", "dog", "</s>"), ("a", "cat", "</s>")
    assert {kind: (attention.queries, attention.keys) for kind, attention in kinds.items()} == {
        "encoder": (source, source),
        "decoder": (target, (START, "a", "cat")),
        "cross": (target, source),
    }
    for attention in kinds.values():
        assert attention.weights.shape == (1, 3, 3, 3)
        np.testing.assert_allclose(attention.weights.sum(axis=3), 1, rtol=0, atol=1e-6)


def test_layers_heads_and_queries_are_selected_by_number_and_name() -> None:
    weights = np.arange(2 * 3 * 2 * 2).reshape(2, 3, 2, 2)
    attention = Attention("cross", ("▁dog", "</s>"), ("x", "y"), weights, (1, 2), (1, 2, 3))
    chosen = attention.select([2], [3, 1])
    np.testing.assert_array_equal(chosen.weights, weights[1:, [2, 0]])
    assert (chosen.layers, chosen.heads) == ((2,), (3, 1))
    assert attention.query("dog") == 0 and not attention.has_query("do")
    for call, message in (
        (lambda: attention.select([3]), "--layers=3: encoder-decoder attention has no layer 3; choose one of 1, 2"),
        (
            lambda: attention.select(heads=[0]),
            "--heads=0: encoder-decoder attention has no head 0; choose one of 1",
        ),
        (lambda: attention.query("do"), "--word=do: no query of encoder-decoder attention"),
    ):
        with pytest.raises(UserError, match=message):
            call()  # type: ignore[no-untyped-call]
