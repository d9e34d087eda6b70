"""Tests the attention weights of a model's layers, and their tokens and words."""

import functools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest

from sentencepieces import trained
from t2t_repro.data.vocabularies.sentencepiece import SentencePieceVocabulary
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.models import variants
from t2t_repro.visualization.attention import (
    START,
    Attention,
    Tokens,
    attention_of,
    attention_weights,
    merged,
)

HPARAMS = HParams(
    num_hidden_layers=2, hidden_size=12, filter_size=20, num_heads=3, attention_value_channels=6
)
SOURCE = np.array([5, 9, 3, 7, 7, 2, 1])
TARGET = np.array([4, 8, 8, 6, 1])


VARIANTS: dict[str, dict[str, Any]] = {
    "paper": {},
    "relative": {"self_attention_type": "dot_product_relative", "max_relative_position": 2},
    "restricted": {"self_attention_neighborhood": 4},
}


@functools.cache
def new_model(variant: str) -> Any:
    """Returns a model with random weights, also in norms and biases, large enough for uneven
    attention.
    """
    keras.utils.set_random_seed(3)
    model = variants.transformer(replace(HPARAMS, **VARIANTS[variant]), vocab_size=12)
    random = np.random.default_rng(1)
    for variable in model.trainable_variables:
        variable.assign(1.5 * np.asarray(variable.value) + 0.3 * random.normal(size=variable.shape))
    return model


@pytest.mark.parametrize("variant", VARIANTS)
def test_weights_are_those_of_their_layers(variant: str) -> None:
    model = new_model(variant)
    weights = attention_weights(model, SOURCE, TARGET)
    memory, encoder = model.encode(SOURCE[None], return_attention=True)
    _, decoder = model.decode(TARGET[None], memory, return_attention=True)
    assert list(weights) == ["encoder", "decoder", "cross"]
    for kind, layers in (("encoder", encoder), ("decoder", decoder), ("cross", decoder)):
        expected = np.concatenate([layer[kind] for layer in layers])
        np.testing.assert_array_equal(weights[kind], expected)
    assert [array.shape for array in weights.values()] == [(2, 3, 7, 7), (2, 3, 5, 5), (2, 3, 5, 7)]
    positions = np.arange(7)
    distances = positions - positions[:, None]
    assert not weights["decoder"][:, :, distances[:5, :5] > 0].any()  # no query sees a later key
    reach = VARIANTS[variant].get("self_attention_neighborhood", 14) // 2
    for kind, array in weights.items():
        assert array.dtype == np.float32 and array.std() > 0.1
        np.testing.assert_allclose(array.sum(axis=3), 1, rtol=0, atol=1e-6)
        if kind != "cross":
            size = array.shape[3]
            assert not array[:, :, np.abs(distances[:size, :size]) > reach].any()


def test_a_model_of_another_kind_has_only_encoder_decoder_attention() -> None:
    transformer = new_model("paper")
    dtypes = list[str]()

    def decode(targets: Any, inputs: Any, return_attention: bool) -> Any:
        dtypes.extend((inputs.dtype.name, targets.dtype.name))
        memory = transformer.encode(inputs)
        logits, layers = transformer.decode(targets, memory, return_attention=return_attention)
        return logits, [{"cross": layer["cross"]} for layer in layers]

    other: Any = SimpleNamespace(encode=lambda inputs: inputs, decode=decode)
    weights = attention_weights(other, SOURCE.astype(np.int32), TARGET.astype(np.int32))
    assert list(weights) == ["cross"] and dtypes == ["int64", "int64"]  # as in training
    np.testing.assert_array_equal(
        weights["cross"], attention_weights(transformer, SOURCE, TARGET)["cross"]
    )


def test_words_have_the_sum_over_keys_and_the_mean_over_queries() -> None:
    weights = np.random.default_rng(2).dirichlet(np.ones(4), size=(2, 3, 5)).astype(np.float32)
    queries = Tokens(("a", "b"), (0, 2))
    keys = Tokens(("c", "d", "e"), (0, 1, 3))
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
    [ids] = tiny_vocabulary.encode(["dog Ω"])
    words = Tokens.words(tiny_vocabulary, ids)
    pieces = Tokens.pieces(tiny_vocabulary, ids)
    assert words.labels == ("dog", "Ω", "</s>") and pieces.labels[words.starts[1]] == "▁"
    characters = ByteVocabulary()
    words = Tokens.words(characters, characters.encode(["é ab"])[0])
    # A space belongs to the word before it.
    assert words.labels[:2] == ("é", "ab") and words.starts == (
        0,
        3,
        5,
    )


@pytest.mark.parametrize("at_the_end", [True, False])
def test_pieces_may_have_their_space_at_either_end(at_the_end: bool) -> None:
    vocabulary = SentencePieceVocabulary(
        trained(model_type="bpe", treat_whitespace_as_suffix=at_the_end)
    )
    ids = vocabulary.encode(["The dog runs, fox."])[0]
    assert Tokens.words(vocabulary, ids).labels == ("The", "dog", "runs,", "fox.", "</s>")


def test_the_decoder_reads_the_start_and_all_tokens_but_the_last() -> None:
    assert Tokens(("a", "b", "</s>"), (0, 2, 5)).shifted(6) == Tokens((START, "a", "b"), (0, 1, 3))
    # Without an end token, the last word is read up to its last token but one.
    assert Tokens(("a", "b"), (0, 2)).shifted(4) == Tokens((START, "a", "b"), (0, 1, 3))


def test_labels_of_queries_and_keys(tiny_vocabulary: Vocabulary) -> None:
    model = variants.transformer(replace(HPARAMS, num_hidden_layers=1), tiny_vocabulary.size)
    inputs, targets = (
        np.array([*ids, 0, 0]) for ids in tiny_vocabulary.encode(["the dog", "a cat"])
    )
    kinds = attention_of(model, tiny_vocabulary, inputs, targets, merge_subwords=True)
    source = ("the", "dog", "</s>")
    target = ("a", "cat", "</s>")
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
    assert attention.query("dog") == 0 and attention.names == ["dog", "</s>"]
