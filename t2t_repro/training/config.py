"""The settings of a training run for saving, evaluation, logs and devices."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunConfig:
    """Settings of a training run besides hparams and random seed."""

    local_eval_frequency: int = 1500
    """Steps between two evaluations on the dev split."""
    save_checkpoints_secs: int = 0
    """Seconds between two checkpoints; 0 saves one with each evaluation."""
    keep_checkpoint_max: int = 20
    """Number of checkpoints to keep."""
    eval_steps: int = 0
    """Number of batches in an evaluation; 0 evaluates the whole dev split."""
    eval_decode_lines: int = 0
    """Lines of the dev split that each evaluation decodes and scores."""
    early_stopping_patience: int = 0
    """Evaluations without a lower dev loss after which training ends; 0 never ends it early."""
    log_step_count_steps: int = 100
    """Steps between two lines in metrics.jsonl."""
    max_tokens_per_replica: int = 4096
    """Positions in a micro-batch, padding included. A replica computes at most two micro-batches at a time."""
    worker_gpu: int = 0
    """GPUs to use on each machine; 0 uses all."""
    precision: str = "float32"
    """Either "float32", or "mixed_bfloat16" or "mixed_float16" for matrix products in 16 bits."""
    warm_start_from: str = ""
    """Model folder or checkpoint with the initial weights; if empty, they are drawn from the random seed."""
