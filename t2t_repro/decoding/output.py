"""Translations as lines of a file: plain text, columns separated by tabs, or JSON."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.translation import Hypothesis, PairScore, Translation
from t2t_repro.errors import UserError, counted
from t2t_repro.files.json_file import to_json_line
from t2t_repro.hparam import DecodeHParams
from t2t_repro.problem import Problem


def finish_translations(
    problem: Problem, texts: Sequence[str], translations: Sequence[Translation]
) -> tuple[list[Translation], Any]:
    """Replaces each hypothesis's text by the line that `Problem.finish` makes of it. Also returns
    its report.
    """
    sources = []
    outputs = []
    for text, translation in zip(texts, translations, strict=True):
        for hypothesis in translation.hypotheses:
            sources.append(text)
            outputs.append(hypothesis.text)
    lines, report = problem.finish(sources, outputs)
    remaining = iter(lines)
    finished = []
    for translation in translations:
        hypotheses = [
            replace(hypothesis, text=next(remaining)) for hypothesis in translation.hypotheses
        ]
        finished.append(replace(translation, hypotheses=tuple(hypotheses)))
    return finished, report


def refuse_diverged(scores: Iterable[float]) -> None:
    """Raises UserError if a score is not finite: the model gives all outputs of this line the
    probability 0.
    """
    if lost := sum(not math.isfinite(score) for score in scores):
        raise UserError(
            f"the model gives all outputs of {counted(lost, 'line')} the probability 0: its "
            "training has diverged; use an earlier checkpoint"
        )


def text_line(hypotheses: Sequence[Hypothesis], decode_hparams: DecodeHParams) -> str:
    """Returns one line with the outputs of one source; docs/decoding.md describes its columns."""
    if decode_hparams.n == 1 and not decode_hparams.write_beam_scores:
        return hypotheses[0].text
    cells = []
    for hypothesis in hypotheses:
        cells.append(hypothesis.text.replace("\t", " "))
        if decode_hparams.write_beam_scores:
            cells += [f"{hypothesis.score:.6f}", str(len(hypothesis.ids))]
    return "\t".join(cells)


def json_line(
    source: str, translation: Translation, vocabulary: Vocabulary, has_attention: bool
) -> str:
    """Returns a translation as a JSON object in one line; docs/decoding.md lists the fields."""
    hypotheses = translation.hypotheses
    fields: dict[str, Any] = {
        "source": source,
        "hypotheses": [hypothesis.text for hypothesis in hypotheses],
        "scores": [hypothesis.score for hypothesis in hypotheses],
        "tokens": [vocabulary.pieces(hypothesis.ids) for hypothesis in hypotheses],
        "token_scores": [hypothesis.token_scores for hypothesis in hypotheses],
    }
    if has_attention:
        fields["source_tokens"] = vocabulary.sources.pieces(translation.source_ids)
        fields["attention"] = [hypothesis.attention for hypothesis in hypotheses]
    return to_json_line(fields)


def pair_line(
    source: str, target: str, score: PairScore, vocabulary: Vocabulary, output_format: str
) -> str:
    """Returns a line with the log-probability of `target` as the translation of `source`, in total
    and per token.
    """
    if output_format == "text":
        return f"{score.log_prob:.6f}\t{score.mean:.6f}\t{len(score.token_scores)}"
    return to_json_line(
        {
            "source": source,
            "target": target,
            "log_prob": score.log_prob,
            "mean": score.mean,
            "tokens": vocabulary.pieces(vocabulary.encode_targets([target])[0]),
            "token_scores": score.token_scores,
        }
    )
