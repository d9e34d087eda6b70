"""What a training run tells the user: its size, its settings that may be wrong, how it goes on and
why it ends.
"""

import math
import shlex
from collections.abc import Iterator
from typing import Any

from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import step_of
from t2t_repro.data.pipeline import Batch, Pipeline
from t2t_repro.errors import UserError, counted
from t2t_repro.files.output_files import write_file
from t2t_repro.hparam import HParams
from t2t_repro.models.model import parameter_count
from t2t_repro.training.config import RunConfig
from t2t_repro.training.distribution import workers
from t2t_repro.training.evaluation import MIN_SOURCE_USE
from t2t_repro.training.run import Run
from t2t_repro.training.step import Result, trained_weights


def summary(run: Run, pipeline: Pipeline, model: Any) -> str:
    """Returns the first line that a run prints: its data, model and devices."""
    max_length = run.hparams.max_length
    dev_lengths = run.data.records["dev"].lengths.max(axis=0)
    dev_skipped = int((dev_lengths > max_length).sum())
    skipped = ""
    if pipeline.too_long or dev_skipped:
        skipped = (
            f", longer than {max_length} tokens and skipped: {pipeline.too_long:,}, in the dev "
            f"split {dev_skipped:,}"
        )
    in_workers = f", in {workers()} workers" if workers() > 1 else ""
    return (
        f"{run.data.problem.name}: {counted(len(run.data.records['train']), 'pair')}{skipped}, "
        f"{counted(pipeline.steps_per_epoch, 'step')} an epoch; {run.hparams.model}: "
        f"{size_text(model, run.hparams.frozen)}; {run.strategy.num_replicas_in_sync} x "
        f"{devices.names()[0]}{in_workers}, {run.config.precision}"
    )


def size_text(model: Any, frozen: str) -> str:
    """Returns the number of a model's parameters, and how many the hparam `frozen` freezes."""
    count = parameter_count(model)
    text = f"{count:,} parameters"
    if frozen:
        trained = sum(math.prod(weight.shape) for weight in trained_weights(model, frozen))
        text += f", {count - trained:,} of them frozen"
    return text


def warnings(hparams: HParams, config: RunConfig) -> Iterator[str]:
    """Yields warnings about a run's settings."""
    kind = config.precision.removeprefix("mixed_")
    if kind in ("tf32", "bfloat16") and not devices.multiplies(kind):
        # No error, because a run that began on another machine must be able to resume here.
        result = "trains faster" if kind == "bfloat16" else "gives the same"
        yield (
            f"{devices.names()[0]} has no {kind} instructions, so --precision=float32 {result} here"
        )
    steps = hparams.train_steps
    warmup = hparams.learning_rate_warmup_steps
    factors = hparams.learning_rate_schedule.split("*")
    if steps <= warmup and ("noam" in factors or "linear_warmup" in factors):
        yield (
            f"the learning rate only rises, because train_steps={steps} is not more than "
            f"learning_rate_warmup_steps={warmup}; give a lower number with --hparams"
        )
    if config.keep_checkpoint_max < hparams.num_last_checkpoints:
        yield (
            f"--keep_checkpoint_max={config.keep_checkpoint_max} keeps fewer checkpoints than the "
            f"{hparams.num_last_checkpoints} that averaging uses (num_last_checkpoints)"
        )


def has_ended(folder: ModelFolder, step: int) -> str:
    """Returns the message of a run that has taken all its steps already."""
    return (
        f"{folder.path}: has taken step {step:,} already; give a higher --train_steps to continue"
    )


def has_converged(folder: ModelFolder, step: int, config: RunConfig) -> str:
    """Returns the message of a run that early stopping ends."""
    return (
        f"{folder.path}: no new best dev {config.best_by}, so "
        f"--early_stopping_patience={config.early_stopping_patience} ended the run after step "
        f"{step:,}; omit this flag, or give a higher value, to continue"
    )


def source_use_warning(source_use: float | None) -> str:
    """Returns a warning if a model that is past its warm-up hardly uses its source, else ""."""
    if source_use is None or not source_use < MIN_SOURCE_USE:  # it may be NaN
        return ""
    return (
        "warning: the model hardly uses its source: the source of another example raises "
        f"the dev loss by only {source_use:z.3f} nats a token; check that the source and "
        "target files match line by line, train longer, or start again with fewer layers "
        "or lower dropout; docs/training.md has more advice"
    )


def too_little_memory(run: Run, shortage: str) -> UserError:
    """Returns the error for a device without enough memory, which advises smaller micro-batches."""
    largest = min(run.config.max_tokens_per_replica, run.hparams.batch_size)
    return UserError(
        f"the device has too little memory ({shortage}); give "
        f"--max_tokens_per_replica={max(largest // 2, 1)} with the same command, which "
        "resumes from the last checkpoint; if that does not help, the model is too large "
        "for the device"
    )


def not_finite(run: Run, folder: ModelFolder, batch: Batch, result: Result) -> UserError:
    """Returns the error for a step whose loss or gradient is not finite. The chief lists the step's
    examples in a file.
    """
    records = run.data.records["train"]
    places = [records.locate(number) for number in sorted(batch.examples.tolist())]
    path = folder.path / f"not_finite-{batch.step + 1}.tsv"
    if run.is_chief:
        write_file(path, "".join(f"{shard}\t{record}\n" for shard, record in places))
    # Omits a checkpoint that was saved just before this step. The previous step may have damaged
    # the weights, even if the previous step's loss and gradient were finite.
    earlier = [path for path in folder.checkpoints() if step_of(path) < batch.step]
    good_checkpoint = earlier[-1] if earlier else ""
    warm_start = f" with --warm_start_from={shlex.quote(good_checkpoint)}" if earlier else ""
    precision = ", --precision=float32" if run.config.precision != "float32" else ""
    return UserError(
        f"step {batch.step + 1:,}: loss {result.loss}, gradient norm {result.gradient_norm}, "
        f"which is not finite; {path} lists its {counted(len(places), 'example')}; the last "
        f"good checkpoint is {good_checkpoint or 'none'}; try another "
        f"--output_dir{warm_start}, and a lower learning rate{precision} or longer warmup"
    )
