"""Prepares a training run for its first step: opens the folder, builds the model and restores the
checkpoint.
"""

import contextlib
import functools
import math
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras

from t2t_repro import devices
from t2t_repro.checkpoints.checkpoint import Checkpoints, other_hparams, warm_start
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.console.progress import say
from t2t_repro.data.dataset import Data
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.errors import UserError, counted
from t2t_repro.hparam import HParams
from t2t_repro.models.model import Model, as_decoding_model, make_model, parameter_count
from t2t_repro.training.config import RunConfig
from t2t_repro.training.disk import refuse_full_disk
from t2t_repro.training.distribution import from_chief, refuse_differences, workers
from t2t_repro.training.evaluation import EVAL_TOKENS, DevDecoder, Evaluator, refuse_missing_score
from t2t_repro.training.logs import Logs
from t2t_repro.training.loss_scale import LossScale
from t2t_repro.training.metrics_log import OnMetrics
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.schedule import learning_rates
from t2t_repro.training.step import TrainStep, trained_weights

DrawAttention = Callable[[Any, Data], bytes | None]
"""Draws the attention of a model for an example of the dev split, as PNG; None if the model has no
attention.
"""


@dataclass(frozen=True)
class Run:
    """The inputs of a training run: its data, its settings and its devices."""

    output_dir: str
    """Path of the model folder, which may not exist yet."""
    data: Data
    hparams: HParams
    random_seed: int
    """Seed of the initial weights, the order of the data and dropout."""
    config: RunConfig
    strategy: Any
    """The tf.distribute strategy that computes on the run's devices, see
    `distribution.make_strategy`.
    """
    draw_attention: DrawAttention | None = None
    """Draws the picture of an evaluation for TensorBoard; None for no picture."""
    on_metrics: OnMetrics | None = None
    """The chief calls it with each new line of metrics.jsonl, e.g. to draw a curve while the model
    trains.
    """

    @property
    def is_chief(self) -> bool:
        """True if this process is the chief, the only worker that writes files."""
        return bool(self.strategy.extended.should_checkpoint)

    def say(self, text: str) -> None:
        if self.is_chief:
            say(text)


@dataclass(frozen=True)
class Prepared:
    """The parts of a training run that is ready for its first step."""

    run: Run
    pipeline: Pipeline
    folder: ModelFolder
    model: Any
    """The model, a `Model`. A model with attention is also a `DecodingModel`."""
    step: TrainStep
    checkpoints: Checkpoints
    start: int
    """Number of steps that earlier processes of this run have taken."""
    evaluator: Evaluator
    logs: Logs | None
    """The run's logs in the chief; None in other workers."""


def prepare(run: Run, at_end: contextlib.ExitStack) -> Prepared:
    """Returns a training run that is ready for its first step. Every worker must call this
    function.

    Writes the description of the model folder last, so that a run that cannot begin leaves no
    files. `at_end` receives the lock on the model folder; closing it releases the lock.
    """
    hparams, config, data, seed = run.hparams, run.config, run.data, run.random_seed
    replicas, max_tokens = run.strategy.num_replicas_in_sync, config.max_tokens_per_replica
    pipeline = Pipeline(data.records["train"], hparams, seed, max_tokens, replicas, data.vocabulary)
    refuse_missing_score(data, config.best_by)
    _refuse_other_settings(run)
    if run.is_chief:
        at_end.enter_context(ModelFolder.locked(run.output_dir))
    folder = ModelFolder.for_run(
        run.output_dir, hparams, data.vocabulary, _origin(run), data.problem
    )
    model, step = _build(run)
    checkpoints = Checkpoints(folder, model, step.state, config.keep_checkpoint_max)
    run.say(_summary(run, pipeline, model))
    for warning in warnings(hparams, config):
        run.say(f"warning: {warning}")
    start = _restore(run, checkpoints, model)
    _refuse_other_weights(run, [*model.trainable_variables, *step.state])
    evaluator = _evaluator(run, folder, model)
    if start < hparams.train_steps:
        _save_description(run, folder, model)
    logs = (
        Logs(folder.path, start, workers(), run.on_metrics, config.best_by)
        if run.is_chief
        else None
    )
    return Prepared(run, pipeline, folder, model, step, checkpoints, start, evaluator, logs)


def _refuse_other_settings(run: Run) -> None:
    settings = (
        run.hparams,
        replace(run.config, worker_gpu=0),
        run.random_seed,
        run.data.description.fingerprint,
    )
    message = "the workers have different flags or data; start all with the same command"
    refuse_differences(run.strategy, zlib.crc32(repr(settings).encode()), message)


def _origin(run: Run) -> Origin:
    data, config = run.data, run.config
    return Origin(
        problem=data.problem.name,
        settings=data.description.settings,
        vocabulary=data.description.vocabulary,
        data_fingerprint=data.description.fingerprint,
        random_seed=run.random_seed,
        precision=config.precision,
        warm_start_from=config.warm_start_from,
        data_dir=str(Path(data.data_dir).absolute()),
        source_vocabulary=data.description.source_vocabulary,
    )


def _build(run: Run) -> tuple[Model, TrainStep]:
    """Returns a new model, and the object that trains it."""
    keras.utils.set_random_seed(run.random_seed)
    data, precision = run.data, run.config.model_precision
    devices.use_tf32(run.config.precision == "tf32")
    with run.strategy.scope():
        vocabulary = data.vocabulary
        model = make_model(
            run.hparams,
            vocabulary.size,
            data.problem.target_space_id,
            precision,
            vocabulary.separate_source_size,
        )
        optimizer = make_optimizer(run.hparams)
        loss_scale = LossScale() if precision == "mixed_float16" else None
    return model, TrainStep(model, optimizer, run.hparams, run.strategy, loss_scale)


def _restore(run: Run, checkpoints: Checkpoints, model: Model) -> int:
    """Restores the checkpoint that the chief chooses, or a warm start; returns the number of steps
    already taken.
    """
    start = from_chief(run.strategy, checkpoints.restore() if run.is_chief else 0)
    if start and not run.is_chief:
        checkpoints.restore_step(start)
    if not start and run.config.warm_start_from:
        source = warm_start(model, run.data.vocabulary, run.config.warm_start_from)
        run.say(
            f"{source}: training starts from its weights; learning rate "
            f"{learning_rates(run.hparams)}; to keep more of what the model has learned, give a "
            "lower --hparams=learning_rate_constant"
        )
        if other := other_hparams(source, run.hparams):
            values = ",".join(f"{name}={value}" for name, value in other.items())
            run.say(
                f"warning: {source} was trained with other hparams; for the same model, give "
                f"--hparams={values}"
            )
    return start


def _refuse_other_weights(run: Run, variables: list[Any]) -> None:
    if workers() > 1:
        checksum = functools.reduce(
            lambda crc, each: zlib.crc32(each.numpy().tobytes(), crc), variables, 0
        )
        message = (
            "the workers start with different weights; put --output_dir and --warm_start_from on "
            "a disk that all "
        )
        refuse_differences(run.strategy, checksum, f"{message}share")


def _evaluator(run: Run, folder: ModelFolder, model: Model) -> Evaluator:
    dev, decoder, config = run.data.records["dev"], None, run.config
    if config.eval_decode_lines:
        decoding_model = as_decoding_model(model, "give --eval_decode_lines=0")
        decoder = DevDecoder(decoding_model, folder, dev, config.eval_decode_lines)
    max_tokens = min(
        EVAL_TOKENS, config.max_tokens_per_replica
    )  # larger batches may not fit in memory
    return Evaluator(model, dev, max_tokens, config.eval_steps, decoder, run.hparams.max_length)


def _save_description(run: Run, folder: ModelFolder, model: Model) -> None:
    """In the chief, writes the folder's description, unless the disk is full. Other workers wait
    for it.
    """
    if run.is_chief:
        if warning := refuse_full_disk(
            folder.path, parameter_count(model), run.hparams, run.config
        ):
            run.say(warning)
        folder.save()
    from_chief(run.strategy, 0)  # returns when the chief has saved
    if not (folder.path / "problem.json").exists():
        raise UserError(
            f"{folder.path}: the chief created it, but this worker does not see it; put "
            "--output_dir on a disk that all workers share; if it is on one, start all workers "
            "again"
        )


def warnings(hparams: HParams, config: RunConfig) -> Iterator[str]:
    """Yields warnings about a run's settings."""
    kind = config.precision.removeprefix("mixed_")
    if kind in ("tf32", "bfloat16") and not devices.multiplies(kind):
        # No error, because a run that began on another machine must be able to resume here.
        result = "trains faster" if kind == "bfloat16" else "gives the same"
        yield f"{devices.names()[0]} has no {kind} instructions, so --precision=float32 {result} here"  # noqa: E501
    steps, warmup = hparams.train_steps, hparams.learning_rate_warmup_steps
    if steps <= warmup and {"noam", "linear_warmup"} & set(
        hparams.learning_rate_schedule.split("*")
    ):
        yield (
            f"the learning rate only rises, because train_steps={steps} is not more than "
            f"learning_rate_warmup_steps={warmup}; give a lower number with --hparams"
        )
    if config.keep_checkpoint_max < hparams.num_last_checkpoints:
        yield (
            f"--keep_checkpoint_max={config.keep_checkpoint_max} keeps fewer checkpoints than the "
            f"{hparams.num_last_checkpoints} that averaging uses (num_last_checkpoints)"
        )


def size_text(model: Model, frozen: str) -> str:
    """Returns the number of a model's parameters, and of those that the hparam `frozen` names."""
    trained = sum(math.prod(weight.shape) for weight in trained_weights(model, frozen))
    count = parameter_count(model)
    return f"{count:,} parameters{f', {count - trained:,} of them frozen' if frozen else ''}"


def _summary(run: Run, pipeline: Pipeline, model: Model) -> str:
    """Returns the first line that a run prints: its data, model and devices."""
    limit = run.hparams.max_length
    skipped = pipeline.too_long, int((run.data.records["dev"].lengths.max(axis=0) > limit).sum())
    long_pairs = (
        f", longer than {limit} tokens and skipped: {skipped[0]:,}, in the dev split {skipped[1]:,}"
    )
    return (
        f"{run.data.problem.name}: "
        f"{counted(len(run.data.records['train']), 'pair')}{long_pairs if any(skipped) else ''}, "
        f"{counted(pipeline.steps_per_epoch, 'step')} an epoch; {run.hparams.model}: "
        f"{size_text(model, run.hparams.frozen)}; {run.strategy.num_replicas_in_sync} x "
        f"{devices.names()[0]}{f', in {workers()} workers' if workers() > 1 else ''}, "
        f"{run.config.precision}"
    )
