"""Decides which tasks the training loop performs after a step."""

from typing import NamedTuple

from t2t_repro.hparam import HParams
from t2t_repro.training.config import RunConfig


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
    """Returns the tasks that are due after `step` steps of `hparams.train_steps`.

    `seconds` have passed since this process saved a checkpoint, or since its first step if it has
    saved none. `stops` says whether a signal asked the run to stop.
    """
    is_last = step == hparams.train_steps
    evaluates = is_last or step % hparams.local_eval_frequency == 0
    saves = evaluates
    if config.save_checkpoints_secs:
        saves = is_last or seconds >= config.save_checkpoints_secs
    return Due(
        logs=evaluates or step % config.log_step_count_steps == 0,
        saves=saves or stops,
        # With save_checkpoints_secs, a checkpoint saved at a stop is kept like a regular one. If
        # signals stop every process of a run before a regular checkpoint is due, the run has no
        # other checkpoints.
        saves_by_request=stops and not saves and not config.save_checkpoints_secs,
        # The process that resumes a stopped run does its evaluation first.
        evaluates=evaluates and not stops,
        stops=stops,
    )
