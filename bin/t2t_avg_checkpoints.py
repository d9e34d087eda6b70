"""Averages the weights of the last checkpoints: t2t-avg-checkpoints --output_dir=M
--num_last_checkpoints=5

The program writes the average to M/averaged, which t2t-decoder and t2t-exporter use until a newer
checkpoint exists.

--num_best_checkpoints=5 averages the best checkpoints instead, which t2t-trainer
--max_checkpoints_by_score=5 keeps.

An average can be worse than the last or the best checkpoint, for example if the checkpoints are far
apart. So the program then compares both on the dev split: the loss of --eval_steps batches, and the
score of --eval_decode_lines decoded lines. It reads the data directory of the training, or
--data_dir. It works on the CPU. --nocompare omits the comparison.
"""

from dataclasses import dataclass

from absl import flags

from t2t_repro.bin import program
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import step_of
from t2t_repro.console.progress import say
from t2t_repro.data.records import Records
from t2t_repro.errors import UserError, counted
from t2t_repro.tensor2tensor.data import open_data
from t2t_repro.training.metrics_log import Evaluations, read_metrics


@dataclass(frozen=True)
class Flags:
    num_last_checkpoints: int = 0
    """Number of checkpoints to average; 0: the number in the hparams set (base: 5, big: 20), or all
    if fewer exist.
    """
    num_best_checkpoints: int = 0
    """Number of checkpoints to average that are the best by the measure of the training (--best_by
    of t2t-trainer), instead of the last ones; 0: the last ones.
    """
    compare: bool = True
    """Compare the average with the last checkpoint, or with the best one if the best are averaged.
    """
    data_dir: str = ""
    """Data for the comparison; default: the data of the training."""
    eval_steps: int = 10
    """Number of batches for the dev loss; 0: the whole dev split."""
    eval_decode_lines: int = 100
    """Number of dev lines to decode and score; 0: none."""


FLAGS = program.make_flags(Flags, "output_dir")


def main(values: flags.FlagValues) -> None:
    program.require(values, "output_dir")
    program.refuse_useless(values, {"with --num_best_checkpoints": ("num_last_checkpoints",)})
    for name in ("data_dir", "eval_steps", "eval_decode_lines"):
        if values[name].present and not values.compare:
            raise UserError(
                f"--{name} is for the comparison, so it has no effect with --nocompare; omit one "
                "of them"
            )
    folder = ModelFolder(values.output_dir)
    best = best_steps(folder, values.num_best_checkpoints)
    records = dev_records(folder, values.data_dir) if values.compare else None
    program.load_tensorflow(has_gpus=False)  # a training run may be using all their memory
    from t2t_repro.checkpoints.averaging import average_checkpoints

    average, paths = average_checkpoints(folder, values.num_last_checkpoints, best)
    say(f"{average}: the mean of {', '.join(paths)}")
    kind = "last"
    rival = paths[-1]
    if best:
        kind = "best"
        [rival] = [path for path in paths if step_of(path) == best[0]]
    if len(paths) == 1:
        say(
            "the mean of one checkpoint is this checkpoint; to average more, give "
            f"--num_{kind}_checkpoints"
        )
    elif records is not None:
        say(f"comparing it with {rival} on dev data; --nocompare omits this")
        from t2t_repro.training.comparison import evaluate, verdict

        both = [average, rival]
        results = evaluate(folder, both, records, values.eval_steps, values.eval_decode_lines)
        for path, result in zip(both, results, strict=True):
            say(f"{path}: dev loss {result.loss:.4f}{result.score_text}")
        say(verdict(results[0], results[1], values.output_dir, rival, kind))


def best_steps(folder: ModelFolder, number: int) -> list[int]:
    """Returns the steps of the `number` best checkpoints, the best one first. Raises UserError if
    there are fewer.
    """
    evaluations = Evaluations(read_metrics(folder.path))
    steps = evaluations.best_steps(number)
    if len(steps) < number:
        raise UserError(
            f"{folder.path}: its metrics.jsonl has {counted(len(steps), 'evaluation')} by "
            f"{evaluations.best_by}, not --num_best_checkpoints={number}; give a lower number, or "
            "--num_last_checkpoints"
        )
    return steps


def dev_records(folder: ModelFolder, data_dir: str) -> Records | None:
    """Returns the dev split for the comparison; None, after a message, if the data of the training
    is not available.
    """
    try:
        directory = data_dir or folder.origin.data_dir
        data = open_data(directory, folder.problem.name)
        if data.vocabulary.fingerprint != folder.vocabulary.fingerprint:
            raise UserError(
                f"{directory}: its data has another vocabulary than {folder.path}; use the "
                "training's data"
            )
        return data.records["dev"]
    except (UserError, OSError) as error:
        if data_dir:
            raise
        say(
            f"the average will not be compared with a checkpoint: {error}; to compare them, give "
            "--data_dir"
        )
        return None


run = program.entry_point(main, FLAGS, __doc__)
