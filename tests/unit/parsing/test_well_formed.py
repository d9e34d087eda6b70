"""Compares the search with well_formed=true with a list of all trees, and checks that its outputs
need no repairs.
"""

import functools
import math
import re
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from models import ModelWithoutCache
from t2t_repro import registry
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.batches import padded, unpadded
from t2t_repro.decoding.output import finish_translations
from t2t_repro.decoding.search import Sources, generate_outputs
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, override
from t2t_repro.insights.search_tree import search_tree
from t2t_repro.parsing.linearization import TreeSymbols
from t2t_repro.parsing.well_formed import MAX_OPENINGS, tree_rules
from t2t_repro.serving.export import Served

TOY = TreeSymbols(("S", "NP"), ("N", "NS", ","))
TOY_WORDS = TreeSymbols(TOY.labels, ())
FITTING = {"dog": ("N",), ",": (",",), "'": ("N", ",")}
"""The symbols in `TOY` that fit each word of the toy sentences. The vocabulary splits NS, which
therefore fits none.
"""
SPELLED = {word: (word,) for word in FITTING}
"""The symbols that fit each word if words are their own symbols."""
LINES = [
    "the dog barks , loudly .",
    "dog",
    "'",
    ",",
    "( it 's )",
    "`` No , '' \u2014 he said ; \u4e00\u3002 [ a ] $ 5 # 3 ...",
    "a\tb  c \x0b.",
]


class RandomModel(ModelWithoutCache):
    """A model whose logits are random numbers that depend only on the last token and the position.

    Args:
        size: number of tokens in the vocabulary.
        favored: tokens whose logits are higher by 5.
    """

    name = "random"
    has_attention = False
    is_normalized = False
    missing_methods: tuple[str, ...] = ()

    def __init__(self, size: int, seed: int, favored: tuple[int, ...] = ()) -> None:
        self.table = np.random.default_rng(seed).normal(0, 2, (7, size, size)).astype("float32")
        self.table[:, :, list(favored)] += 5
        self.trainable_variables: list[Any] = []

    def decode_step(
        self, ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        return tf.gather(tf.convert_to_tensor(self.table)[t % 7], ids), cache


@pytest.fixture(scope="module")
def words() -> Vocabulary:
    """Returns a vocabulary with a piece for each bracket and some tags. It splits other tags, such
    as NS and XX.
    """
    problem = registry.problem("wsj_parsing", {})
    return sentencepiece.train(
        ["(S (NP DT NN )NP (VP VBZ , )VP . )S N , N ,"] * 9, 380, problem.symbols
    )


Sizes = dict[str, int]
"""The number of tokens of each bracket and each symbol that fits a word."""


def trees(
    sentence: tuple[str, ...], budget: int, size: Sizes, fitting: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    """Yields every constituent of at most `budget` tokens over the words of a sentence."""
    for label in TOY.labels:
        for children in forests(sentence, budget - 2, size, fitting):
            yield f"({label} {children} ){label}"


def forests(
    sentence: tuple[str, ...], budget: int, size: Sizes, fitting: dict[str, tuple[str, ...]]
) -> Iterator[str]:
    """Yields every sequence of symbols and constituents of at most `budget` tokens over the words
    of a sentence.
    """
    if budget < len(sentence):
        return
    for end in range(1, len(sentence) + 1):
        parts = list(trees(sentence[:end], budget, size, fitting))
        if end == 1:
            parts += fitting[sentence[0]]
        for part in parts:
            rest_budget = budget - length(part, size)
            if end < len(sentence):
                for rest in forests(sentence[end:], rest_budget, size, fitting):
                    yield f"{part} {rest}"
            elif rest_budget >= 0:
                yield part


def length(text: str, size: Sizes) -> int:
    return sum(size[symbol] for symbol in text.split())


@functools.cache
def log_softmax(model: RandomModel) -> np.ndarray:
    logits = model.table.astype(np.float64)
    return np.asarray(logits - np.log(np.exp(logits).sum(axis=2, keepdims=True)))


def score(model: RandomModel, ids: list[int], alpha: float, other: list[int]) -> float:
    """Returns the score of an output. A token that is not in `other` counts with the probability of
    all such tokens.
    """
    total = 0.0
    for t, (last, token) in enumerate(zip([0, *ids], ids, strict=False)):
        row = log_softmax(model)[t % 7, last]
        is_single = token in other or not other
        total += row[token] if is_single else math.log1p(-np.exp(row[other]).sum())
    return float(total) / ((5 + len(ids)) / 6) ** alpha


@pytest.mark.parametrize(
    ("symbols", "extra_length", "alpha", "most_trees"),
    [(TOY, 0, 0.0, 4), (TOY, 4, 1.0, 52), (TOY_WORDS, 8, 1.0, 14)],
    ids=["tags, short", "tags", "words"],
)
def test_a_beam_that_holds_all_trees_finds_the_best_and_nothing_else(
    words: Vocabulary, symbols: TreeSymbols, extra_length: int, alpha: float, most_trees: int
) -> None:
    sentences = [("dog",), (",", "dog"), ("dog", "'", "dog"), ("'",)]
    model = RandomModel(words.size, 1)
    params = DecodeHParams(250, alpha, extra_length, n=80, well_formed=True)
    rules = tree_rules(words, symbols)
    of_words = rules.facts([" ".join(sentence) for sentence in sentences])
    # Sources of equally many tokens and words, to have small limits.
    inputs = padded([[9] * len(sentence) + [EOS_ID] for sentence in sentences])
    best = generate_outputs(model, params, Sources(inputs=inputs, facts=of_words), rules)
    brackets = [bracket + label for bracket in "()" for label in TOY.labels]
    texts = [*TOY.words, *SPELLED, *brackets]
    size = dict(zip(texts, (len(ids) - 1 for ids in words.encode(texts)), strict=True))
    assert size["NS"] == 2 and size["N"] == size["(NP"] == 1
    fitting = FITTING if symbols is TOY else SPELLED
    other = [] if symbols is TOY else [0, EOS_ID, *(ids[0] for ids in words.encode(brackets))]
    counts = []
    for sentence, outputs, scores in zip(
        sentences, best.ids.numpy().tolist(), best.scores.numpy(), strict=True
    ):
        tokens = len(sentence) if symbols is TOY else sum(size[word] for word in sentence)
        limit = max(len(sentence) + 1 + extra_length, tokens + 3)
        texts = sorted(trees(sentence, limit - 1, size, fitting))
        expected = {tuple(ids): score(model, ids, alpha, other) for ids in words.encode(texts)}
        ranked = sorted(expected, key=lambda ids: -expected[ids])
        assert [tuple(unpadded(ids)) for ids in outputs[: len(ranked)]] == ranked
        assert (scores[len(ranked) :] == -math.inf).all()
        assert scores[: len(ranked)] == pytest.approx([expected[ids] for ids in ranked], rel=1e-4)
        counts.append(len(expected))
    assert max(counts) == most_trees


@pytest.mark.parametrize(
    ("word_symbol", "options"),
    [
        ("tag", "beam_size=4,n=4,extra_length=9,repeat_ngram_size=1,repeat_ngram_penalty=9"),
        ("XX", "beam_size=1,extra_length=0"),
        ("word", "sampling_method=random,n=3,extra_length=0,sampling_keep_top_k=2"),
    ],
    ids=["beam", "greedy", "random"],
)
def test_no_output_needs_repairs(words: Vocabulary, options: str, word_symbol: str) -> None:
    problem: Any = registry.problem("wsj_parsing", {"word_symbol": word_symbol})
    symbols = problem.tree_symbols
    opening = tuple(ids[0] for ids in words.encode([f"({label}" for label in symbols.labels[:3]]))
    model: Any = RandomModel(words.size, 2, opening)
    params = override(DecodeHParams(well_formed=True), options)
    translator = Translator(model, words, params, output_rules=problem.output_rules)
    translations = translator.translate(LINES)
    _, repairs = finish_translations(problem, LINES, translations)
    assert not repairs
    hypotheses = [h for translation in translations for h in translation.hypotheses]
    # A short sentence may have fewer than n trees.
    assert len(hypotheses) >= len(LINES) * params.n - 4
    for hypothesis in hypotheses:
        assert hypothesis.ids[-1] == EOS_ID and hypothesis.score > -math.inf
        runs = re.findall(r"(?:\(\S+ )+", hypothesis.text)
        assert max(run.count("(") for run in runs) <= MAX_OPENINGS
    if not params.is_random:
        assert search_tree(translator, LINES[0])[0].hypotheses[0].ids == hypotheses[0].ids
    each_alone = translator.translate(LINES, batch_size=1)
    alone = [h for translation in each_alone for h in translation.hypotheses]
    assert [h.ids for h in alone] == [h.ids for h in hypotheses]
    assert [h.score for h in alone] == pytest.approx([h.score for h in hypotheses], rel=1e-6)
    truncated = translator.translate(LINES, max_input_size=3, long_lines="truncate")
    assert not problem.finish(LINES, [translation.text for translation in truncated])[1]


def test_the_graph_and_the_translator_know_the_same_words(words: Vocabulary) -> None:
    rules = tree_rules(words, TOY_WORDS)
    tokenizer = tensorflow_text.SentencepieceTokenizer(model=words.model, out_type=tf.int32)
    np.testing.assert_array_equal(
        rules.graph_facts(tf.constant(LINES), tokenizer), rules.facts(LINES)
    )


@pytest.mark.usefixtures("no_graphs")
def test_a_served_model_gives_the_translators_trees(words: Vocabulary) -> None:
    problem: Any = registry.problem("wsj_parsing", {})
    params = DecodeHParams(beam_size=2, extra_length=2, n=2, batch_size=30, well_formed=True)
    model: Any = RandomModel(words.size, 3)
    translator = Translator(model, words, params, 12, problem.output_rules)
    lines = [*LINES[:3], ""]
    expected = translator.translate(lines, long_lines="truncate")
    answers = Served(translator).translate_nbest(tf.constant(lines))
    for texts, translation in zip(answers["outputs"].numpy().tolist(), expected, strict=True):
        assert [text.decode() for text in texts if text] == [
            h.text for h in translation.hypotheses if h.text
        ]


@pytest.mark.parametrize(
    ("symbols", "kind", "message"),
    [
        (TOY, "tiny", r"^well_formed=true needs a vocabulary with a piece for each bracket"),
        (
            TreeSymbols(("S",), ("N", "''")),
            "words",
            r"^well_formed=true needs a vocabulary with a piece for each",
        ),
        (TOY, "bytes", r"^well_formed=true needs a SentencePiece vocabulary, not one of character"),
        (
            TreeSymbols(("S",), ("N", "$,", "$.")),
            "words",
            r"for one that it ignores \(, : `` '' \.\)",
        ),
    ],
)
def test_a_search_that_cannot_obey_the_rules_is_refused(
    words: Vocabulary,
    tiny_vocabulary: Vocabulary,
    symbols: TreeSymbols,
    kind: str,
    message: str,
) -> None:
    vocabulary = {"words": words, "tiny": tiny_vocabulary, "bytes": ByteVocabulary()}[kind]
    with pytest.raises(UserError, match=message):
        tree_rules(vocabulary, symbols)


@pytest.mark.parametrize(
    ("name", "prefixes", "message"),
    [
        ("wsj_parsing", ["(S"], "prefixes cannot be combined with well_formed=true"),
        ("wsj_parsing_rev", [], "well_formed=true is only for parsers"),
    ],
)
def test_the_translator_refuses_rules_that_cannot_be_obeyed(
    words: Vocabulary, name: str, prefixes: list[str], message: str
) -> None:
    parser: Any = RandomModel(words.size, 2)
    rules = registry.problem(name).output_rules
    translator = Translator(parser, words, DecodeHParams(), output_rules=rules)
    with pytest.raises(UserError, match=message):
        translator.translate(["dog"], prefixes, well_formed=True)
