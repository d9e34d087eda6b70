"""Tests what the page shows about a model."""

import dataclasses
import json
from typing import Any

import numpy as np
import pytest

from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.insights.answers import ExploredModel, example
from t2t_repro.insights.search_tree import search_tree
from t2t_repro.models import variants
from t2t_repro.problems.numbers import NumbersEnde
from t2t_repro.problems.text_files import TextFiles
from t2t_repro.visualization.attention import pair_attention

pytestmark = pytest.mark.usefixtures("no_graphs")
SETTINGS = {"beam_size": 3, "alpha": 0.6, "num_best": 2}
GERMAN = "Zwei Hunde spielen im Schnee."


def as_json(answer: dict[str, Any]) -> Any:
    """Returns an answer after its way through JSON. Asserts that it has no NaN and no infinity."""
    return json.loads(json.dumps(answer, allow_nan=False))


def test_a_model_is_described(explored: list[ExploredModel]) -> None:
    assert explored[0].describe() == {
        "name": "a",
        "description": "first",
        "kinds": {
            "encoder": "encoder self-attention",
            "decoder": "decoder self-attention",
            "cross": "encoder-decoder attention",
        },
        "layers": 1,
        "heads": 2,
        "beam_size": 3,
        "alpha": 0.6,
        "example": "",
    }
    without = explored[1].describe()
    assert (without["kinds"], without["layers"], without["heads"]) == ({}, 0, 0)


def test_the_example_of_a_problem() -> None:
    assert example(NumbersEnde({}, name="numbers_ende")).startswith("three hundred")
    assert (
        example(TextFiles({"languages": "de,en"}))
        == example(TextFiles({"train": "a/en.de.x.gz,b.fr"}))
        == GERMAN
    )
    assert example(TextFiles({"train": "a.fr,b.de"}, was_reversed=True)) == GERMAN
    assert example(TextFiles({"train": "german.txt,english.txt"})) == ""


def test_layers_are_those_of_the_deeper_stack(
    tiny_hparams: HParams, tiny_vocabulary: Vocabulary
) -> None:
    hparams = dataclasses.replace(tiny_hparams, num_decoder_layers=2)
    transformer = variants.transformer(hparams, tiny_vocabulary.size)
    model = ExploredModel("c", "", Translator(transformer, tiny_vocabulary, DecodeHParams()))
    assert model.describe()["layers"] == 2
    assert [
        len(model.attention("a", [5, 1], kind)["weights"]) for kind in ("encoder", "cross")
    ] == [1, 2]


def test_the_answer_has_the_numbers_of_the_search(explored: list[ExploredModel]) -> None:
    answer = as_json(explored[0].translate("the cät", **SETTINGS))
    translation, tree = search_tree(explored[0].translator, "the cät", beam_size=3, alpha=0.6, n=2)
    assert answer["source_tokens"][-3:] == ["<0xA4>", "t", "</s>"]
    assert [hypothesis["ids"] for hypothesis in answer["hypotheses"]] == [
        list(x.ids) for x in translation.hypotheses
    ]
    for ours, theirs in zip(answer["hypotheses"], translation.hypotheses, strict=True):
        assert (ours["text"], ours["score"]) == (theirs.text, theirs.score)
        assert [token["log_prob"] for token in ours["tokens"]] == list(theirs.token_scores)
        assert sum(theirs.token_scores) == pytest.approx(ours["log_prob"], abs=1e-5)
        assert ours["has_end"] == (theirs.ids[-1] == EOS_ID)
    search = answer["search"]
    assert (search["beam_size"], search["alpha"], search["num_best"]) == (3, 0.6, 2)
    assert search["limit"] == len(translation.source_ids) + 2
    for ours, theirs in zip(search["steps"], tree.steps, strict=True):
        assert [node["id"] for node in ours] == [node.node for node in theirs]
        for name in ("parent", "log_prob", "token_log_prob", "fate", "score"):
            assert [node[name] for node in ours] == [getattr(node, name) for node in theirs]
    places = {node["output"]: node for step in search["steps"] for node in step}
    for index, hypothesis in enumerate(answer["hypotheses"]):
        assert places[index]["score"] == hypothesis["score"]
        assert places[index]["token"] == hypothesis["tokens"][-1]["label"]


def test_why_a_search_ended(explored: list[ExploredModel]) -> None:
    greedy = {"beam_size": 1, "alpha": 0.6, "num_best": 1}
    search, certain = (
        as_json(model.translate("the cat", **greedy))["search"] for model in explored
    )
    assert (certain["end"]["reason"], certain["end"]["best_possible"]) == ("certain", None)
    assert search["end"]["reason"] == "limit" and search["end"]["worst_of_best"] is None
    assert len(search["steps"]) == search["limit"]
    assert search["end"]["best_possible"] == search["steps"][-1][0]["score"]


def test_attention_is_that_of_the_translator(explored: list[ExploredModel]) -> None:
    model = explored[0]
    translator = model.translator
    target_ids = translator.vocabulary.encode(["a dog"])[0]
    expected = pair_attention(translator, "the cat", "a dog").kinds
    for kind, attention in expected.items():
        answer = as_json(model.attention("the cat", target_ids, kind))
        assert answer["queries"] == list(attention.queries)
        assert answer["keys"] == list(attention.keys)
        np.testing.assert_allclose(answer["weights"], attention.weights, atol=5.1e-5)
    # An output at the length limit has no end.
    unfinished = model.attention("the cat", target_ids[:-1], "cross")
    np.testing.assert_allclose(
        unfinished["weights"], expected["cross"].weights[:, :, :-1], atol=5.1e-5
    )


def test_odd_characters_are_translated(explored: list[ExploredModel]) -> None:
    answer = as_json(explored[1].translate("a\n<b>\ud800 cat", **SETTINGS))
    assert answer["hypotheses"][0]["text"] == "a <b>\ufffd cat"


def test_defaults_of_a_problem_hold(explored: list[ExploredModel]) -> None:
    translator = explored[0].translator
    defaults = DecodeHParams(n=4, sampling_method="random", sampling_temp=2.0, extra_length=1)
    model = ExploredModel("c", "", Translator(translator.model, translator.vocabulary, defaults))
    expected = translator.translate(["the cat"], beam_size=3, n=2, extra_length=1)[0].hypotheses
    answer = model.translate("the cat", **SETTINGS)["hypotheses"]
    assert [hypothesis["score"] for hypothesis in answer] == pytest.approx(
        [x.score for x in expected], abs=1e-5
    )
