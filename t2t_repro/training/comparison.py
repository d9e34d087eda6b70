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
from t2t_repro.checkpoints.reader import assign_weights, read_checkpoint
from t2t_repro.data.records import Records
from t2t_repro.training.evaluation import EVAL_TOKENS, Decoded, Evaluation, Evaluator, dev_decoder


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


def measure(
    folder: ModelFolder, checkpoints: Sequence[str], records: Records, batches: int, lines: int
) -> list[Measured]:
    """Returns the dev loss and the score of each checkpoint, all on the same batches and lines.

    No lines are decoded if the model cannot decode.

    Args:
        folder: the model folder.
        checkpoints: paths of checkpoints.
        records: the dev split.
        batches: number of batches from which the dev loss is computed; 0 uses all batches.
        lines: number of lines to decode; 0 for none.

    Raises:
        UserError: if a checkpoint or a record is damaged.
    """
    model = folder.model(checkpoints[0])
    evaluator, decoder = Evaluator(model, records, EVAL_TOKENS, batches), None
    if lines and not model.missing_methods:
        decoder = dev_decoder(model, folder, records, lines)
    results = []
    for checkpoint in checkpoints:
        # All checkpoints share one model object, because tracing the graphs of another would take seconds.
        assign_weights(model, read_checkpoint(checkpoint), checkpoint)
        results.append(Measured(checkpoint, evaluator(), decoder() if decoder else None))
    return results


def verdict(average: Measured, last: Measured, output_dir: str) -> str:
    """Returns a line that says whether the average or the last checkpoint is better, and what to do."""
    label = average.decoded.scores[0].label if average.decoded else ""
    gains = {"dev loss": last.evaluation.loss - average.evaluation.loss, label: average.score - last.score}
    of_average = [name for name, gain in gains.items() if gain > 0]
    of_last = [name for name, gain in gains.items() if gain < 0]
    command = f"--output_dir={shlex.quote(output_dir)} --checkpoint_path={shlex.quote(last.checkpoint)}"
    if of_average and of_last:
        return (
            f"the average has the better {of_average[0]}, the last checkpoint the better {of_last[0]}; to decide, "
            "decode and score more lines with both; t2t-decoder uses the average, or the last checkpoint with "
            f"{command}"
        )
    if of_average:
        return f"the average is better ({' and '.join(of_average)}); t2t-decoder and t2t-exporter use it"
    if of_last:
        return (
            f"the last checkpoint is better ({' and '.join(of_last)}), but t2t-decoder and t2t-exporter use the "
            f"average; give them {command}, or average other checkpoints"
        )
    return "the average and the last checkpoint are equally good"
