"""Compares an averaged checkpoint with the last checkpoint on the dev split, because an average can be worse.

An average helps if its checkpoints come from the end of a training run, where the weights change little. Checkpoints
that are far apart, or from the beginning of the run, can have an average that is much worse than each of them.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import WRONG_CHECKPOINT, assign_weights, read_checkpoint
from t2t_repro.data.records import Records
from t2t_repro.training.evaluation import (
    DECODE_SECONDS,
    EVAL_TOKENS,
    Decoded,
    Evaluation,
    Evaluator,
    dev_decoder,
)


@dataclass(frozen=True)
class Limits:
    """The numbers of batches and lines of the dev split that `measure` uses."""

    batches: int
    """Number of batches from which the dev loss is computed; 0 uses all batches."""
    lines: int
    """Number of lines to decode; 0 for none."""
    seconds: float = DECODE_SECONDS
    """Approximate time limit for decoding with the first checkpoint. If it is too short, fewer lines are decoded; the
    other checkpoints decode the same lines without a limit."""


@dataclass(frozen=True)
class Measured:
    """The dev loss of a checkpoint, and the scores of the dev lines that were decoded with it."""

    checkpoint: str
    evaluation: Evaluation
    decoded: Decoded | None
    """Result of decoding; None if no lines were decoded."""

    @property
    def score(self) -> float:
        """The problem's main score; NaN if no lines were decoded or the score is undefined."""
        return self.decoded.scores[0].score if self.decoded else math.nan

    def __str__(self) -> str:
        text = f"{self.checkpoint}: dev loss {self.evaluation.loss:.4f}"
        if self.decoded:
            text += f", {self.decoded.scores[0].label} {self.score:.2f} of {self.decoded.lines:,} lines"
        return text


def measure(folder: ModelFolder, checkpoints: Sequence[str], records: Records, limits: Limits) -> list[Measured]:
    """Returns the dev loss and the score of each checkpoint, all on the same batches and lines.

    No lines are decoded if the model cannot decode.

    Args:
        folder: the model folder.
        checkpoints: paths of checkpoints.
        records: the dev split.
        limits: how many batches and lines of the dev split to use.

    Raises:
        UserError: if a checkpoint or a record is damaged.
    """
    model = folder.model(checkpoints[0])
    evaluator, decoder = Evaluator(model, records, EVAL_TOKENS, limits.batches), None
    if limits.lines and not model.missing_methods:
        decoder = dev_decoder(model, folder, records, limits.lines)
    results: list[Measured] = []
    for checkpoint in checkpoints:
        # All checkpoints share one model object, because tracing the graphs of another would take seconds.
        assign_weights(model, read_checkpoint(checkpoint), checkpoint, "hparams.json", WRONG_CHECKPOINT)
        decoded = None
        if decoder:
            decoded = decoder(seconds=math.inf if results else limits.seconds)
            decoder.keep(decoded.lines)
        results.append(Measured(checkpoint, evaluator(), decoded))
    return results


def verdict(average: Measured, last: Measured, output_dir: str) -> str:
    """Returns a line that says whether the average or the last checkpoint is better, and what to do."""
    losses, scores = (average.evaluation.loss, last.evaluation.loss), (average.score, last.score)
    label = average.decoded.scores[0].label if average.decoded else ""
    votes = {"dev loss": (losses[0] > losses[1]) - (losses[0] < losses[1])}
    if not any(math.isnan(score) for score in scores):
        votes[label] = (scores[0] < scores[1]) - (scores[0] > scores[1])
    reasons = " and ".join(name for name, vote in votes.items() if vote)
    command = f"--output_dir={shlex.quote(output_dir)} --checkpoint_path={shlex.quote(last.checkpoint)}"
    if not reasons:
        return "the average and the last checkpoint are equally good"
    if all(vote <= 0 for vote in votes.values()):
        return f"the average is better ({reasons}); t2t-decoder and t2t-exporter use it"
    if all(vote >= 0 for vote in votes.values()):
        return (
            f"the last checkpoint is better ({reasons}), but t2t-decoder and t2t-exporter use the average; give them "
            f"{command}, or average other checkpoints"
        )
    better, worse = ("average", "last checkpoint") if votes["dev loss"] < 0 else ("last checkpoint", "average")
    return (
        f"the {better} has the better dev loss, the {worse} the better {label}; to decide, decode and score more lines "
        f"with both; t2t-decoder uses the average, or the last checkpoint with {command}"
    )
