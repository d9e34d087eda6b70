"""Decides which tasks are due after a training step: logging, saving, evaluating and stopping."""

from __future__ import annotations

from dataclasses import dataclass

from t2t_repro.training.config import RunConfig


@dataclass(frozen=True)
class Due:
    """The tasks that the training loop performs after a step."""

    logs: bool = False
    """True to log the step."""
    saves: bool = False
    """True to save a checkpoint."""
    saves_by_request: bool = False
    """True if a signal that stops the run is the only reason to save. The next save deletes this checkpoint."""
    evaluates: bool = False
    """True to evaluate the model on the dev split."""
    stops: bool = False
    """True if the run stops after this step, as a signal requested."""


def evaluates_after(step: int, last_step: int, config: RunConfig) -> bool:
    """Returns whether the dev split is evaluated after step number `step`."""
    return step % config.local_eval_frequency == 0 or step == last_step


def due_after(step: int, last_step: int, config: RunConfig, seconds: float, stop_requested: bool) -> Due:
    """Returns the tasks that are due after a step.

    Args:
        step: number of steps taken.
        last_step: number of steps after which training ends.
        config: how often to log, save and evaluate.
        seconds: seconds since this process saved a checkpoint, or since its first step if it has saved none.
        stop_requested: whether a signal asked the run to stop.
    """
    evaluates = evaluates_after(step, last_step, config)
    if config.save_checkpoints_secs:
        saves = seconds >= config.save_checkpoints_secs or step == last_step
    else:
        saves = evaluates
    return Due(
        logs=evaluates or step % config.log_step_count_steps == 0,
        saves=saves or stop_requested,
        # With save_checkpoints_secs, a checkpoint saved at a stop is kept like a regular one. If signals stop every
        # process of a run before a regular checkpoint is due, the run has no other checkpoints.
        saves_by_request=stop_requested and not saves and not config.save_checkpoints_secs,
        evaluates=evaluates and not stop_requested,  # the process that resumes the run does this evaluation first
        stops=stop_requested,
    )
