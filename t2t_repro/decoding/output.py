"""Translations as lines of a file: plain text, columns separated by tabs, or JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.decoding.translator import Hypothesis, PairScore, Translation
from t2t_repro.hparam import DecodeHParams
from t2t_repro.problem import Problem


def finished(
    problem: Problem, texts: Sequence[str], translations: Sequence[Translation]
) -> tuple[list[Translation], Any]:
    """The translations as the problem writes them, each hypothesis on its own, and what is to be said of them."""
    sources = [text for text, each in zip(texts, translations, strict=True) for _ in each.hypotheses]
    outputs, report = problem.finish(sources, [one.text for each in translations for one in each.hypotheses])
    rest = iter(outputs)
    return [
        replace(each, hypotheses=tuple(replace(one, text=next(rest)) for one in each.hypotheses))
        for each in translations
    ], report


def text_line(hypotheses: Sequence[Hypothesis], params: DecodeHParams) -> str:
    """An output; or, of several, or with `write_beam_scores`, columns between tabs: each output, its score, its tokens.

    Tabs inside an output become spaces where there are columns.
    """
    columns = params.num_best > 1 or params.write_beam_scores
    cells = []
    for each in hypotheses:
        cells.append(each.text.replace("\t", " ") if columns else each.text)
        if params.write_beam_scores:
            cells += [f"{each.score:.6f}", str(len(each.ids))]
    return "\t".join(cells)


def json_line(source: str, translation: Translation, vocabulary: Vocabulary, attention: bool) -> str:
    """A JSON object: "source", "hypotheses", "scores", "tokens" and "token_scores" of each hypothesis.

    Args:
        attention: also "source_tokens" and, for each hypothesis, "attention": for each token, which of them the
            decoder's last layer looks at most.
    """
    each = translation.hypotheses
    line = {
        "source": source,
        "hypotheses": [one.text for one in each],
        "scores": [one.score for one in each],
        "tokens": [vocabulary.pieces(one.ids) for one in each],
        "token_scores": [one.token_scores for one in each],
    }
    if attention:
        line |= {
            "source_tokens": vocabulary.pieces(translation.source_ids),
            "attention": [one.attention for one in each],
        }
    return to_json(line)


def pair_line(source: str, target: str, score: PairScore, vocabulary: Vocabulary, output_format: str) -> str:
    """Of a given pair the log-probability, that per token, and the number of tokens, or these and more as JSON."""
    if output_format == "text":
        return f"{score.log_prob:.6f}\t{score.mean:.6f}\t{len(score.token_scores)}"
    return to_json(
        {
            "source": source,
            "target": target,
            "log_prob": score.log_prob,
            "mean": score.mean,
            "tokens": vocabulary.pieces(vocabulary.encode([target])[0]),
            "token_scores": score.token_scores,
        }
    )


def to_json(line: dict) -> str:
    """One line of JSON. Signs that some programs take for the end of a line are escaped."""
    text = json.dumps(line, ensure_ascii=False)
    return text.replace("\u0085", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
