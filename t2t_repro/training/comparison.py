"""Compares an averaged checkpoint with the last or the best one on the dev split, because an
average can be worse.

An average helps if its checkpoints come from the end of a training run, where the weights change
little. Checkpoints that are far apart, or from the beginning of the run, can have an average that
is much worse than each of them.
"""

import shlex

from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import assign_weights, read_checkpoint
from t2t_repro.data.records import Records
from t2t_repro.training.evaluation import EVAL_TOKENS, DevDecoder, Evaluation, Evaluator


def evaluate(
    folder: ModelFolder, checkpoints: list[str], records: Records, batches: int, lines: int
) -> list[Evaluation]:
    """Returns the evaluation of each checkpoint, all on the same batches and lines of the dev split
    `records`.

    `batches` is the number of batches from which the dev loss is computed; 0 uses all batches.
    `lines` is the number of lines to decode if the model can decode; 0 for none.
    """
    model = folder.model(checkpoints[0])
    decoder = (
        DevDecoder(model, folder, records, lines) if lines and not model.missing_methods else None
    )
    evaluator = Evaluator(model, records, EVAL_TOKENS, batches, decoder, folder.hparams.max_length)
    results = []
    for checkpoint in checkpoints:
        # All checkpoints share one model object, because tracing the graphs of another would take
        # seconds.
        assign_weights(model, read_checkpoint(checkpoint), checkpoint)
        results.append(evaluator())
    return results


def verdict(
    average: Evaluation, other: Evaluation, output_dir: str, checkpoint: str, kind: str = "last"
) -> str:
    """Returns a line that says what the checkpoint `other`, the "last" or "best" one, does better
    than the average.
    """
    label = average.decoded.scores[0].label if average.decoded else ""
    gains = {"dev loss": average.loss - other.loss, label: other.score - average.score}
    better = [name for name, gain in gains.items() if gain > 0]
    if not better:
        return (
            f"the average is as good as the {kind} checkpoint or better; t2t-decoder and "
            "t2t-exporter use it"
        )
    return (
        f"the {kind} checkpoint has the better {' and '.join(better)}, but t2t-decoder and "
        f"t2t-exporter use the average; give them --output_dir={shlex.quote(output_dir)} "
        f"--checkpoint_path={shlex.quote(checkpoint)}, or average other checkpoints"
    )
