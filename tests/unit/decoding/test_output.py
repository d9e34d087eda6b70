"""Tests the lines that represent a translation: plain text, columns and JSON."""

import json
import math

import pytest

from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.output import json_line, pair_line, text_line
from t2t_repro.decoding.translation import Hypothesis, PairScore, Translation
from t2t_repro.hparam import DecodeHParams

SPECIAL = 'a\t"b" \\ \u0085c\u2028d\u2029\x0b\x0c\x1c\x1e\r e\x00 \x7f Ω 漢 \U0001f600 \\u2028'
"""A text with tabs, quotes, and all characters except "\\n" that some programs treat as the end of
a line.
"""


def encoded(text: str, vocabulary: Vocabulary, score: float) -> Hypothesis:
    [ids] = vocabulary.encode([text])
    return Hypothesis(
        text, score, tuple(ids), tuple(-i / 8 for i in range(len(ids))), tuple(range(len(ids)))
    )


def test_columns_are_text_score_and_token_count() -> None:
    assert text_line([Hypothesis(SPECIAL, -1.5)], DecodeHParams()) == SPECIAL
    plain = Hypothesis("eins", -0.25, (262, 1))
    line = text_line([Hypothesis(SPECIAL, -1.5), plain], DecodeHParams(n=2))
    assert line.split("\t") == [SPECIAL.replace("\t", " "), "eins"]
    hypotheses = [plain, Hypothesis("zwei\tdrei", -12.3456789, (5, 6, 7, 1)), Hypothesis("", 0.0)]
    line = text_line(hypotheses, DecodeHParams(n=2, write_beam_scores=True))
    assert line == "eins\t-0.250000\t2\tzwei drei\t-12.345679\t4\t\t0.000000\t0"


def test_json_gives_back_every_field_from_one_line(tiny_vocabulary: Vocabulary) -> None:
    hypotheses = (
        encoded(SPECIAL, tiny_vocabulary, -0.33333333),
        encoded("the dog", tiny_vocabulary, -2.5),
    )
    source_ids = tuple(tiny_vocabulary.encode(["a Ω"])[0])
    lines = [
        json_line(SPECIAL, Translation(hypotheses, source_ids), tiny_vocabulary, has)
        for has in (False, True)
    ]
    assert all(len(line.splitlines()) == 1 and "\n" not in line for line in lines)
    expected = {
        "source": SPECIAL,
        "hypotheses": [SPECIAL, "the dog"],
        "scores": [-0.33333333, -2.5],
        "tokens": [tiny_vocabulary.pieces(hypothesis.ids) for hypothesis in hypotheses],
        "token_scores": [list(hypothesis.token_scores) for hypothesis in hypotheses],
    }
    assert expected["tokens"][1] == ["▁the", "▁dog", "</s>"]
    attention = {
        "source_tokens": ["▁a", "▁", "<0xCE>", "<0xA9>", "</s>"],
        "attention": [list(hypothesis.attention) for hypothesis in hypotheses],
    }
    assert [json.loads(line) for line in lines] == [expected, expected | attention]
    assert "漢" in lines[0] and "\U0001f600" in lines[0]  # these characters are not escaped


def test_a_pair_has_log_probability_mean_and_tokens(tiny_vocabulary: Vocabulary) -> None:
    score = PairScore((-1.0, -2.0, -0.5), (0, 1, 1))
    lost = Translation((Hypothesis("", -math.inf, (), (-math.inf,)),))
    lost_pair = PairScore((-math.inf,), ())
    # JSON has no infinity.
    json.loads(json_line("a", lost, tiny_vocabulary, False), parse_constant=pytest.fail)
    json.loads(pair_line("a", "", lost_pair, tiny_vocabulary, "jsonl"), parse_constant=pytest.fail)
    assert pair_line("a", "the dog", score, tiny_vocabulary, "text") == "-3.500000\t-1.166667\t3"
    line = pair_line(SPECIAL, "the dog", score, tiny_vocabulary, "jsonl")
    assert len(line.splitlines()) == 1
    assert json.loads(line) == {
        "source": SPECIAL,
        "target": "the dog",
        "log_prob": -3.5,
        "mean": pytest.approx(-3.5 / 3),
        "tokens": ["▁the", "▁dog", "</s>"],
        "token_scores": [-1.0, -2.0, -0.5],
    }
