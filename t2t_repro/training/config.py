"""The settings of a training run for saving, evaluation, logs and devices."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class RunConfig:
    """Settings of a training run other than the hparams and the random seed."""

    local_eval_frequency: int = 1500
    """Number of steps between two evaluations on the dev split."""
    save_checkpoints_secs: int = 0
    """Seconds between two checkpoints. If 0, the run saves a checkpoint before each evaluation."""
    keep_checkpoint_max: int = 20
    """Number of checkpoints to keep; older checkpoints are deleted."""
    eval_steps: int = 0
    """Number of batches that each evaluation uses; 0 evaluates the whole dev split."""
    eval_decode_lines: int = 0
    """Number of lines of the dev split that each evaluation decodes and scores; 0 decodes none."""
    limits_decoding: bool = False
    """True to decode fewer lines if they take too long; see `training.evaluation.decode_seconds`."""
    early_stopping_patience: int = 0
    """Number of consecutive evaluations without a new lowest dev loss after which training ends; 0 means never."""
    log_step_count_steps: int = 100
    """Number of steps from one logged step to the next."""
    max_tokens_per_replica: int = 4096
    """Maximum number of positions, counting padding, on each side (source or target) of a micro-batch. A replica
    computes at most two micro-batches at the same time."""
    worker_gpu: int = 0
    """Number of GPUs to use on each machine; 0 uses all."""
    precision: str = "float32"
    """Precision of matrix products: "float32", "tf32", "mixed_bfloat16" or "mixed_float16"."""
    warm_start_from: str = ""
    """Model folder or checkpoint from which to take the initial weights; if empty, the weights are random."""

    @property
    def model_precision(self) -> str:
        """The precision with which to make the model. In TF32, a GPU multiplies the float32 tensors of a model."""
        return "float32" if self.precision == "tf32" else self.precision
