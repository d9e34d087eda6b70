"""What is written for a translation, read back."""

from __future__ import annotations

import json

import pytest

from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.decoding.output import json_line, pair_line, text_line
from t2t_repro.decoding.translator import EMPTY, Hypothesis, PairScore, Translation
from t2t_repro.hparam import DecodeHParams

NASTY = 'a\t"b" \\ \u0085c\u2028d\u2029\x0b\x0c\x1c\x1e\r e\x00 \x7f Ω 漢 \U0001f600 \\u2028'
"""Tabs, quotes and all that some program takes for the end of a line, but for the one that is."""
PLAIN = Hypothesis("eins", -0.25, (262, 1))


def of_ids(text: str, words: Vocabulary, score: float) -> Hypothesis:
    [ids] = words.encode([text])
    return Hypothesis(text, score, tuple(ids), tuple(-0.1 * i for i in range(len(ids))), tuple(range(len(ids))))


def test_a_text_alone_is_written_as_it_is() -> None:
    assert text_line([Hypothesis(NASTY, -1.5)], DecodeHParams()) == NASTY
    assert text_line(EMPTY.hypotheses, DecodeHParams()) == ""


def test_columns_of_texts_have_no_tabs_inside() -> None:
    line = text_line([Hypothesis(NASTY, -1.5), PLAIN], DecodeHParams(n=2))
    assert line.split("\t") == [NASTY.replace("\t", " "), "eins"]


def test_columns_of_texts_scores_and_tokens() -> None:
    hypotheses = [PLAIN, Hypothesis("zwei\tdrei", -12.3456789, (5, 6, 7, 1)), Hypothesis("", 0.0)]
    line = text_line(hypotheses, DecodeHParams(n=2, write_beam_scores=True))
    cells = line.split("\t")
    assert cells[0::3] == ["eins", "zwei drei", ""]
    assert cells[1::3] == ["-0.250000", "-12.345679", "0.000000"]
    assert cells[2::3] == ["2", "4", "0"]


@pytest.mark.parametrize("attention", [False, True])
def test_json_gives_back_everything_from_one_line(tiny_vocabulary: Vocabulary, attention: bool) -> None:
    hypotheses = (of_ids(NASTY, tiny_vocabulary, -1 / 3), of_ids("the dog", tiny_vocabulary, -2.5))
    source_ids = tuple(tiny_vocabulary.encode(["a Ω"])[0])
    line = json_line(NASTY, Translation(hypotheses, source_ids), tiny_vocabulary, attention)
    assert len(line.splitlines()) == 1 and "\n" not in line
    expected = {
        "source": NASTY,
        "hypotheses": [NASTY, "the dog"],
        "scores": [-1 / 3, -2.5],
        "tokens": [tiny_vocabulary.pieces(each.ids) for each in hypotheses],
        "token_scores": [list(each.token_scores) for each in hypotheses],
    }
    assert expected["tokens"][1] == ["▁the", "▁dog", "</s>"]
    if attention:
        expected |= {
            "source_tokens": ["▁a", "▁", "<0xCE>", "<0xA9>", "</s>"],
            "attention": [list(each.attention) for each in hypotheses],
        }
    found = json.loads(line)
    assert found == expected and list(found) == list(expected)
    assert "漢" in line and "\U0001f600" in line  # readable, not escaped


@pytest.mark.parametrize("attention", [False, True])
def test_json_of_an_empty_text(tiny_vocabulary: Vocabulary, attention: bool) -> None:
    found = json.loads(json_line("", EMPTY, tiny_vocabulary, attention))
    expected = {"source": "", "hypotheses": [""], "scores": [0.0], "tokens": [[]], "token_scores": [[]]}
    assert found == (expected | {"source_tokens": [], "attention": [[]]} if attention else expected)


def test_a_pair_has_its_log_probability_that_per_token_and_its_tokens(tiny_vocabulary: Vocabulary) -> None:
    score = PairScore((-1.0, -2.0, -0.5), (0, 1, 1))
    assert pair_line("a", "the dog", score, tiny_vocabulary, "text") == "-3.500000\t-1.166667\t3"
    line = pair_line(NASTY, "the dog", score, tiny_vocabulary, "jsonl")
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {
        "source": NASTY,
        "target": "the dog",
        "log_prob": -3.5,
        "mean": pytest.approx(-3.5 / 3),
        "tokens": ["▁the", "▁dog", "</s>"],
        "token_scores": [-1.0, -2.0, -0.5],
    }
