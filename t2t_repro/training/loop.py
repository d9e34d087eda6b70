"""The training loop: takes steps, saves checkpoints, evaluates, logs and stops."""

import contextlib
import math
import shlex
import time
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.checkpoints.reader import step_of
from t2t_repro.console.progress import Progress
from t2t_repro.data.pipeline import Batch
from t2t_repro.errors import Stopped, UserError, counted, memory_shortage
from t2t_repro.files.output_files import write_file
from t2t_repro.hparam import HParams
from t2t_repro.training import distribution
from t2t_repro.training.config import RunConfig
from t2t_repro.training.evaluation import MIN_SOURCE_USE
from t2t_repro.training.logs import Speed
from t2t_repro.training.preparation import Prepared, Run, prepare
from t2t_repro.training.step import Result, TrainStep
from t2t_repro.training.stop import StopSignals


def train(run: Run) -> Prepared | None:
    """Trains a model until it has taken `hparams.train_steps` steps; resumes from the folder's
    latest checkpoint.

    Returns the parts of the run in the chief, such as its folder and its model; None in other
    workers.

    Raises:
        UserError: if the run cannot begin or resume in this folder, the disk is full, a loss is not
            finite, memory runs out, or the connection to a worker is lost.
        Stopped: if SIGTERM or SIGINT asked the run to stop.
    """
    try:
        with contextlib.ExitStack() as at_end:
            prepared = prepare(run, at_end)
            Loop(prepared).run()
    except tf.errors.OpError as error:
        if shortage := memory_shortage(error):
            positions = min(
                run.config.max_tokens_per_replica, run.hparams.batch_size
            )  # of the largest micro-batch
            raise UserError(
                f"the device has too little memory ({shortage}); give "
                f"--max_tokens_per_replica={max(positions // 2, 1)} with the same command, which "
                "resumes from the last checkpoint; if that does not help, the model is too large "
                "for the device"
            ) from None
        if distribution.workers() == 1 or not isinstance(error, distribution.LOST):
            raise
        raise distribution.lost(error) from None
    return prepared if run.is_chief else None


class Due(NamedTuple):
    """The tasks that the training loop performs after a step."""

    logs: bool = False
    saves: bool = False
    saves_by_request: bool = False
    """True if a signal that stops the run is the only reason to save. The next save deletes this
    checkpoint.
    """
    evaluates: bool = False
    stops: bool = False
    """True if the run stops after this step, as a signal requested."""


def due_after(step: int, hparams: HParams, config: RunConfig, seconds: float, stops: bool) -> Due:
    """Returns the tasks that are due after `step` steps.

    `seconds` have passed since this process saved a checkpoint, or since its first step if it has
    saved none. `stops` says whether a signal asked the run to stop.
    """
    is_last = step == hparams.train_steps
    saves = evaluates = is_last or step % hparams.local_eval_frequency == 0
    if config.save_checkpoints_secs:
        saves = is_last or seconds >= config.save_checkpoints_secs
    return Due(
        logs=evaluates or step % config.log_step_count_steps == 0,
        saves=saves or stops,
        # With save_checkpoints_secs, a checkpoint saved at a stop is kept like a regular one. If
        # signals stop every process of a run before a regular checkpoint is due, the run has no
        # other checkpoints.
        saves_by_request=stops and not saves and not config.save_checkpoints_secs,
        evaluates=evaluates
        and not stops,  # the process that resumes the run does this evaluation first
        stops=stops,
    )


class Loop:
    """The training loop of one worker process. Every worker runs its own loop."""

    def __init__(self, prepared: Prepared) -> None:
        self._prepared, self._run, self._config = prepared, prepared.run, prepared.run.config
        self._step, self._last_step = prepared.start, prepared.run.hparams.train_steps
        self._signals = StopSignals()
        self._start_time = self._save_time = time.monotonic()
        """Times at which this process started to take steps, and at which it last saved a
        checkpoint.
        """
        self._speed = Speed()
        self._has_converged = False
        """True if early stopping ends the run."""

    def run(self) -> None:
        """Trains until the last step, until early stopping, or until a signal asks the run to stop.

        Raises Stopped if a signal asked the run to stop.
        """
        with self._signals:
            self._evaluate_if_missing()
            self._follow_evaluations()
            self._say_how_it_starts()
            if not self._has_ended and not self._stop_requested:
                self._take_steps()
        distribution.leave_together(self._run.strategy)  # the chief has saved
        if self._signals.requested or not self._has_ended:
            raise Stopped(
                f"{self._prepared.folder.path}: saved after step {self._step:,}, as requested; "
                "run the same command to resume"
            )

    @property
    def _has_ended(self) -> bool:
        return self._has_converged or self._step >= self._last_step

    @property
    def _stop_requested(self) -> bool:
        """True if a signal asked a run with one worker to stop. Several workers vote instead, see
        `Result`.
        """
        return distribution.workers() == 1 and self._signals.requested

    def _say_how_it_starts(self) -> None:
        start = f"{self._prepared.folder.path}:"
        if self._step >= self._last_step:
            self._run.say(
                f"{start} has taken step {self._step:,} already; give a higher --train_steps to "
                "continue"
            )
        elif self._step and not self._has_converged:
            self._run.say(f"{start} resuming after step {self._step:,}")

    def _take_steps(self) -> None:
        """Takes steps until the last one, or until early stopping or a signal ends the run."""
        self._start_time = self._save_time = time.monotonic()
        replicas = distribution.local_replicas(self._run.strategy)
        running: tuple[Batch, tf.Tensor] | None = None
        with self._progress() as progress:
            for batch in self._prepared.pipeline.batches(self._step, self._last_step, replicas):
                earlier, running = running, (batch, self._take_step(batch))
                # Reads the earlier step's result while this step runs. Waiting for this step would
                # leave a GPU idle while Python prepares the next one.
                previous = self._read(*earlier) if earlier else None
                self._speed.count(batch)
                if progress:
                    progress.advance(
                        note=f"loss {previous.loss:.3f}, {self._speed}" if previous else ""
                    )
                # All workers read the same votes, so they stop after the same step.
                stops = self._stop_requested or (previous is not None and previous.votes > 0)
                seconds = time.monotonic() - self._save_time
                due = due_after(self._step, self._run.hparams, self._config, seconds, stops)
                if any(due) and self._ends_after(due, self._read(*running)):
                    break

    def _progress(self) -> Any:
        if not self._run.is_chief:
            return contextlib.nullcontext()
        return contextlib.closing(Progress("training", self._last_step, "steps", done=self._step))

    def _take_step(self, batch: Batch) -> tf.Tensor:
        """Takes a training step, and returns its output for `_read`. On a GPU, the step may still
        be running.
        """
        seed = self._run.random_seed, batch.step
        returned = self._prepared.step(
            batch.micro_batches, batch.target_tokens, seed, self._signals.requested
        )
        self._step = batch.step + 1
        return returned

    def _ends_after(self, due: Due, result: Result) -> bool:
        """Performs the tasks that are due after a step with this result; returns whether training
        ends.
        """
        if due.logs and self._prepared.logs:
            self._prepared.logs.step(
                self._step, time.monotonic() - self._start_time, result, self._speed
            )
        with self._speed.paused():
            if due.saves:
                self._save(due.saves_by_request)
            if due.evaluates:
                self._evaluate()
                self._follow_evaluations()
        if due.logs:
            self._speed = Speed(time.monotonic())
        ends = due.stops or (due.evaluates and (self._has_converged or self._stop_requested))
        if ends and not due.saves:
            self._save()
        return ends

    def _save(self, by_request: bool = False) -> None:
        if self._run.is_chief:
            self._prepared.checkpoints.save(self._step, by_request)
        self._save_time = time.monotonic()

    def _read(self, batch: Batch, returned: tf.Tensor) -> Result:
        """Waits for a step, and returns its result. Raises UserError if the loss or the gradient is
        not finite.
        """
        result = TrainStep.read(returned)
        # With mixed_float16 (loss scale above 1), gradients sometimes overflow. This is not an
        # error: `TrainStep` has then skipped the step and lowered the scale.
        if math.isfinite(result.loss) and (
            math.isfinite(result.gradient_norm) or result.loss_scale > 1.0
        ):
            return result
        raise self._not_finite(batch, result)

    def _not_finite(self, batch: Batch, result: Result) -> UserError:
        """Returns the error for a result that is not finite. The chief lists the step's examples in
        a file.
        """
        folder, records = self._prepared.folder, self._run.data.records["train"]
        path = folder.path / f"not_finite-{batch.step + 1}.tsv"
        places = [records.locate(number) for number in sorted(batch.examples.tolist())]
        if self._run.is_chief:
            write_file(path, "".join(f"{shard}\t{record}\n" for shard, record in places))
        # Omits a checkpoint that was saved just before this step. The previous step may have
        # damaged the weights, even if the previous step's loss and gradient were finite.
        good_checkpoint = next(
            (path for path in reversed(folder.checkpoints()) if step_of(path) < batch.step), ""
        )
        warm_start = (
            f" with --warm_start_from={shlex.quote(good_checkpoint)}" if good_checkpoint else ""
        )
        precision = ", --precision=float32" if self._config.precision != "float32" else ""
        return UserError(
            f"step {batch.step + 1:,}: loss {result.loss}, gradient norm {result.gradient_norm}, "
            f"which is not finite; {path} lists its {counted(len(places), 'example')}; the last "
            f"good checkpoint is {good_checkpoint or 'none'}; try another "
            f"--output_dir{warm_start}, and a lower learning rate{precision} or longer warmup"
        )

    def _evaluate_if_missing(self) -> None:
        """Evaluates the weights of a warm start, or a checkpoint that an earlier process saved but
        did not evaluate.
        """
        logs, step = self._prepared.logs, self._step
        due = due_after(step, self._run.hparams, self._config, seconds=0.0, stops=False)
        if (
            logs
            and (due.evaluates if step else self._config.warm_start_from)
            and not logs.metrics.has_evaluation(step)
        ):
            self._evaluate()

    def _evaluate(self) -> None:
        """In the chief, evaluates the dev split, logs the result, and saves the best checkpoint if
        it is the best.
        """
        prepared, step, logs = self._prepared, self._step, self._prepared.logs
        if not logs:
            return
        try:
            evaluation = prepared.evaluator(lambda: self._stop_requested)
        except Stopped:
            self._run.say(
                f"step {step:,}: evaluation interrupted, as requested; the same command evaluates "
                "first"
            )
            return
        is_best = logs.is_best(evaluation)
        if is_best and step:  # a warm start's own checkpoint exists
            prepared.checkpoints.save_best(step)
        if self._run.draw_attention and (
            picture := self._run.draw_attention(prepared.model, self._run.data)
        ):
            logs.tensorboard.image(step, "dev/attention", picture)
        # This log line is written last. If the process is killed before, the next process evaluates
        # this step again.
        logs.evaluation(step, evaluation)
        self._run.say(f"step {step:,}: {evaluation.describe(is_best, self._config.best_by)}")
        source_use = evaluation.source_use
        is_warm = step >= min(self._run.hparams.learning_rate_warmup_steps, self._last_step)
        if is_warm and source_use is not None and source_use < MIN_SOURCE_USE:
            self._run.say(
                "warning: the model hardly uses its source: the source of another example raises "
                f"the dev loss by only {source_use:z.3f} nats a token; check that the source and "
                "target files match line by line, train longer, or start again with fewer layers "
                "or lower dropout; docs/training.md has more advice"
            )

    def _follow_evaluations(self) -> None:
        """Deletes checkpoints that are no longer among the best. Ends the run, and says so, if it
        has converged.

        It has converged if the last `early_stopping_patience` evaluations brought no new best one.
        Every worker must call this method. It depends only on the log, so a run that was killed and
        resumed does the same.
        """
        patience, logs = self._config.early_stopping_patience, self._prepared.logs
        if logs and (number := self._config.max_checkpoints_by_score):
            self._prepared.checkpoints.keep_also(logs.metrics.best_steps(number))
        has_converged = logs is not None and 0 < patience <= logs.metrics.evaluations_since_best()
        self._has_converged = bool(distribution.from_chief(self._run.strategy, has_converged))
        if self._has_converged:
            self._run.say(
                f"{self._prepared.folder.path}: no new best dev {self._config.best_by}, so "
                f"--early_stopping_patience={patience} ended the run after step {self._step:,}; "
                "omit this flag, or give a higher value, to continue"
            )
