"""Prepares a training run for its first step: opens the folder, builds the model and restores the
checkpoint.
"""

import contextlib
import zlib
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import keras

from t2t_repro import devices
from t2t_repro.checkpoints.checkpoint import Checkpoints, other_hparams, warm_start
from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.errors import UserError
from t2t_repro.models.model import Model, as_decoding_model, make_model, parameter_count
from t2t_repro.training import messages
from t2t_repro.training.disk import refuse_full_disk
from t2t_repro.training.distribution import from_chief, refuse_differences, workers
from t2t_repro.training.evaluation import EVAL_TOKENS, DevDecoder, Evaluator, refuse_missing_score
from t2t_repro.training.logs import Logs
from t2t_repro.training.loss_scale import LossScale
from t2t_repro.training.optimizer import make_optimizer
from t2t_repro.training.run import Run
from t2t_repro.training.schedule import learning_rates
from t2t_repro.training.step import TrainStep


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
    data = run.data
    config = run.config
    pipeline = Pipeline(
        data.records["train"],
        run.hparams,
        run.random_seed,
        config.max_tokens_per_replica,
        run.strategy.num_replicas_in_sync,
        data.vocabulary,
    )
    refuse_missing_score(data, config.best_by)
    _refuse_other_settings(run)
    if run.is_chief:
        at_end.enter_context(ModelFolder.locked(run.output_dir))
    folder = ModelFolder.for_run(
        run.output_dir, run.hparams, data.vocabulary, _origin(run), data.problem
    )
    model, step = _build(run)
    checkpoints = Checkpoints(folder, model, step.state, config.keep_checkpoint_max)
    run.say(messages.summary(run, pipeline, model))
    for warning in messages.warnings(run.hparams, config):
        run.say(f"warning: {warning}")
    start = _restore(run, checkpoints, model)
    _refuse_other_weights(run, [*model.trainable_variables, *step.state])
    evaluator = _evaluator(run, folder, model)
    if start < run.hparams.train_steps:
        _save_description(run, folder, model)
    logs = None
    if run.is_chief:
        logs = Logs(folder.path, start, workers(), run.on_metrics, config.best_by)
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
    data = run.data
    return Origin(
        problem=data.problem.name,
        settings=data.description.settings,
        vocabulary=data.description.vocabulary,
        data_fingerprint=data.description.fingerprint,
        random_seed=run.random_seed,
        precision=run.config.precision,
        warm_start_from=run.config.warm_start_from,
        data_dir=str(Path(data.data_dir).absolute()),
        source_vocabulary=data.description.source_vocabulary,
    )


def _build(run: Run) -> tuple[Model, TrainStep]:
    """Returns a new model, and the object that trains it."""
    keras.utils.set_random_seed(run.random_seed)
    devices.use_tf32(run.config.precision == "tf32")
    vocabulary = run.data.vocabulary
    precision = run.config.model_precision
    with run.strategy.scope():
        model = make_model(
            run.hparams,
            vocabulary.size,
            run.data.problem.target_space_id,
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
        _start_warm(run, model)
    return start


def _start_warm(run: Run, model: Model) -> None:
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


def _refuse_other_weights(run: Run, variables: list[Any]) -> None:
    if workers() == 1:
        return
    checksum = 0
    for variable in variables:
        checksum = zlib.crc32(variable.numpy().tobytes(), checksum)
    message = (
        "the workers start with different weights; put --output_dir and --warm_start_from on a "
        "disk that all share"
    )
    refuse_differences(run.strategy, checksum, message)


def _evaluator(run: Run, folder: ModelFolder, model: Model) -> Evaluator:
    dev = run.data.records["dev"]
    config = run.config
    decoder = None
    if config.eval_decode_lines:
        decoding_model = as_decoding_model(model, "give --eval_decode_lines=0")
        decoder = DevDecoder(decoding_model, folder, dev, config.eval_decode_lines)
    # Batches that are larger than in training may not fit in memory.
    max_tokens = min(EVAL_TOKENS, config.max_tokens_per_replica)
    return Evaluator(model, dev, max_tokens, config.eval_steps, decoder, run.hparams.max_length)


def _save_description(run: Run, folder: ModelFolder, model: Model) -> None:
    """In the chief, writes the folder's description, unless the disk is full. Other workers wait
    for it.
    """
    if run.is_chief:
        parameters = parameter_count(model)
        if warning := refuse_full_disk(folder.path, parameters, run.hparams, run.config):
            run.say(warning)
        folder.save()
    from_chief(run.strategy, 0)  # returns when the chief has saved
    if not (folder.path / "problem.json").exists():
        raise UserError(
            f"{folder.path}: the chief created it, but this worker does not see it; put "
            "--output_dir on a disk that all workers share; if it is on one, start all workers "
            "again"
        )
