"""The tasks that are due after a training step."""

from __future__ import annotations

from dataclasses import dataclass

from t2t_repro.training.config import RunConfig


@dataclass(frozen=True)
class Due:
    """Tasks of the training loop after a step."""

    logs: bool = False
    """Log the step."""
    saves: bool = False
    """Save a checkpoint."""
    saves_by_request: bool = False
    """The checkpoint is saved only because the run must stop. The next checkpoint replaces it."""
    evaluates: bool = False
    """Evaluate the dev split."""
    stops: bool = False
    """Take no further step."""

    @property
    def is_nothing(self) -> bool:
        """True if the next step can follow at once."""
        return self == Due()


def evaluates_after(step: int, last_step: int, config: RunConfig) -> bool:
    """Returns whether the dev split is evaluated after a step."""
    return step % config.local_eval_frequency == 0 or step == last_step


def due_after(step: int, last_step: int, config: RunConfig, seconds: float, stop_requested: bool) -> Due:
    """Returns the tasks that are due after a step.

    Args:
        step: number of steps taken.
        last_step: number of steps after which training ends.
        config: how often to log, save and evaluate.
        seconds: seconds since the last checkpoint, or since training started.
        stop_requested: whether the run must stop after this step.
    """
    evaluates = evaluates_after(step, last_step, config)
    if config.save_checkpoints_secs:
        saves = seconds >= config.save_checkpoints_secs or step == last_step
    else:
        saves = evaluates
    return Due(
        logs=evaluates or step % config.log_step_count_steps == 0,
        saves=saves or stop_requested,
        # With save_checkpoints_secs the checkpoint is kept: if every process is stopped early, no other is ever due.
        saves_by_request=stop_requested and not saves and not config.save_checkpoints_secs,
        evaluates=evaluates and not stop_requested,  # the resumed run evaluates first
        stops=stop_requested,
    )
