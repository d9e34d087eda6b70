"""The training loop: takes steps, saves checkpoints, evaluates, logs and stops."""

import contextlib
import time
from typing import Any, NamedTuple

import tensorflow as tf

from t2t_repro.console.progress import Progress
from t2t_repro.data.pipeline import Batch
from t2t_repro.errors import Stopped, memory_shortage
from t2t_repro.training import distribution, messages
from t2t_repro.training.due import Due, due_after
from t2t_repro.training.logs import Speed
from t2t_repro.training.preparation import Prepared, prepare
from t2t_repro.training.run import Run
from t2t_repro.training.step import Result, TrainStep
from t2t_repro.training.stop import StopSignals
from t2t_repro.training.validation import Validation


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
            raise messages.too_little_memory(run, shortage) from None
        if distribution.workers() > 1 and isinstance(error, distribution.LOST):
            raise distribution.lost(error) from None
        raise
    return prepared if run.is_chief else None


class RunningStep(NamedTuple):
    """A step that has started. On a GPU, it may still be running."""

    batch: Batch
    output: tf.Tensor
    """For `TrainStep.read`, which waits for the step."""


class Loop:
    """The training loop of one worker process. Every worker runs its own loop."""

    def __init__(self, prepared: Prepared) -> None:
        self._run = prepared.run
        self._folder = prepared.folder
        self._pipeline = prepared.pipeline
        self._train_step = prepared.step
        self._checkpoints = prepared.checkpoints
        self._logs = prepared.logs
        self._signals = StopSignals()
        self._validation = Validation(prepared, lambda: self._stop_requested)
        self._step = prepared.start
        """Number of steps that this process and earlier ones have taken."""
        self._start_time = 0.0
        """Time at which this process started to take steps."""
        self._save_time = 0.0
        """Time at which this process last saved a checkpoint; before that, `_start_time`."""
        self._speed = Speed()

    def run(self) -> None:
        """Trains until the last step, until early stopping, or until a signal asks the run to stop.

        Raises Stopped if a signal asked the run to stop.
        """
        with self._signals:
            self._validation.catch_up(self._step)
            if self._step >= self._run.hparams.train_steps:
                self._run.say(messages.has_ended(self._folder, self._step))
            elif self._step and not self._validation.has_converged:
                self._run.say(f"{self._folder.path}: resuming after step {self._step:,}")
            if not self._has_ended and not self._stop_requested:
                self._take_steps()
        distribution.leave_together(self._run.strategy)  # the chief has saved
        if self._signals.requested or not self._has_ended:
            raise Stopped(
                f"{self._folder.path}: saved after step {self._step:,}, as requested; "
                "run the same command to resume"
            )

    @property
    def _has_ended(self) -> bool:
        return self._validation.has_converged or self._step >= self._run.hparams.train_steps

    @property
    def _stop_requested(self) -> bool:
        """True if a signal asked a run with one worker to stop. Several workers vote instead, see
        `Result`.
        """
        return distribution.workers() == 1 and self._signals.requested

    def _take_steps(self) -> None:
        """Takes steps until the last one, or until early stopping or a signal ends the run."""
        last_step = self._run.hparams.train_steps
        replicas = distribution.local_replicas(self._run.strategy)
        self._start_time = time.monotonic()
        self._save_time = self._start_time
        running: RunningStep | None = None
        with self._progress() as progress:
            for batch in self._pipeline.batches(self._step, last_step, replicas):
                earlier = running
                running = self._start_step(batch)
                # Reads the earlier step's result while this step runs. Waiting for this step would
                # leave a GPU idle while Python prepares the next one.
                previous = self._result(earlier) if earlier else None
                self._speed.count(batch)
                if progress:
                    note = f"loss {previous.loss:.3f}, {self._speed}" if previous else ""
                    progress.advance(note=note)
                due = self._due(previous)
                if any(due) and self._ends_after(due, self._result(running)):
                    break

    def _progress(self) -> Any:
        if not self._run.is_chief:
            return contextlib.nullcontext()
        last_step = self._run.hparams.train_steps
        return contextlib.closing(Progress("training", last_step, "steps", done=self._step))

    def _start_step(self, batch: Batch) -> RunningStep:
        seed = (self._run.random_seed, batch.step)
        vote = self._signals.requested
        output = self._train_step(batch.micro_batches, batch.target_tokens, seed, vote)
        self._step = batch.step + 1
        return RunningStep(batch, output)

    def _result(self, running: RunningStep) -> Result:
        """Waits for a step, and returns its result. Raises UserError if it is not finite."""
        result = TrainStep.read(running.output)
        if not result.is_sound:
            raise messages.not_finite(self._run, self._folder, running.batch, result)
        return result

    def _due(self, previous: Result | None) -> Due:
        """Returns the tasks after this step, given the result of the step before it."""
        # All workers read the same votes, so they stop after the same step.
        has_votes = previous is not None and previous.votes > 0
        seconds = time.monotonic() - self._save_time
        return due_after(
            self._step,
            self._run.hparams,
            self._run.config,
            seconds,
            stops=self._stop_requested or has_votes,
        )

    def _ends_after(self, due: Due, result: Result) -> bool:
        """Performs the tasks that are due after a step with this result; returns whether training
        ends.
        """
        if due.logs and self._logs:
            seconds = time.monotonic() - self._start_time
            self._logs.step(self._step, seconds, result, self._speed)
        ends = due.stops
        with self._speed.paused():
            if due.saves:
                self._save(due.saves_by_request)
            if due.evaluates:
                self._validation.evaluate(self._step)
                ends = ends or self._validation.has_converged or self._stop_requested
        if due.logs:
            self._speed = Speed(time.monotonic())
        if ends and not due.saves:
            self._save()
        return ends

    def _save(self, by_request: bool = False) -> None:
        if self._run.is_chief:
            self._checkpoints.save(self._step, by_request)
        self._save_time = time.monotonic()
