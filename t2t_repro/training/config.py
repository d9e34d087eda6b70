"""The settings of a training run for saving, evaluation, logs and devices."""

from dataclasses import dataclass, field
from typing import Literal

from t2t_repro.data.batching import MAX_TOKENS
from t2t_repro.errors import UserError

LOSS = "loss"
"""Value of --best_by that stands for the dev loss. Other values are names of scores."""
Precision = Literal["float32", "tf32", "mixed_bfloat16", "mixed_float16"]


@dataclass(frozen=True)
class RunConfig:
    """Settings of a training run other than the hparams and the random seed. t2t-trainer has a flag
    for each.
    """

    eval_steps: int = 0
    """Number of batches in an evaluation; 0: the whole dev split."""
    eval_decode_lines: int = 100
    """Number of dev lines that each evaluation decodes and scores; 0: none."""
    early_stopping_patience: int = 0
    """Number of consecutive evaluations without a new best one (--best_by) after which training
    ends; 0: never.
    """
    best_by: str = LOSS
    """Measure by which an evaluation is the best, for the best checkpoint and
    --early_stopping_patience: loss, or a score of the decoded dev lines, e.g. bleu or chrf.
    """
    save_checkpoints_secs: int = 0
    """Seconds between two checkpoints (the paper: 600); 0: save before each evaluation."""
    keep_checkpoint_max: int = field(default=20, metadata={"lower_bound": 1})
    """Number of latest checkpoints to keep."""
    max_checkpoints_by_score: int = 0
    """Number of checkpoints with the best evaluations (--best_by) to keep besides the latest ones,
    to average them with t2t-avg-checkpoints --num_best_checkpoints; each needs 12 bytes of disk
    space per parameter; 0: none.
    """
    log_step_count_steps: int = field(default=100, metadata={"lower_bound": 1})
    """Steps between two lines in metrics.jsonl and two points in TensorBoard."""
    worker_gpu: int = 0
    """Number of GPUs to use on each machine; 0: all."""
    max_tokens_per_replica: int = field(default=MAX_TOKENS, metadata={"lower_bound": 1})
    """Maximum number of positions on each side (source or target) of a micro-batch, including
    padding; affects only speed and memory, and the balancing losses of experts.
    """
    precision: Precision = "float32"
    """Precision of matrix products. tf32: float32 with rounded factors, faster on NVIDIA GPUs since
    Ampere; mixed_bfloat16: bfloat16, faster if the processor supports it; mixed_float16: float16
    with loss scaling, for GPUs without bfloat16.
    """
    warm_start_from: str = ""
    """Model folder or checkpoint with the initial weights, for the same sizes; with another
    vocabulary, pieces keep their embeddings.
    """

    def __post_init__(self) -> None:
        if self.best_by != LOSS and not self.eval_decode_lines:
            raise UserError(
                f"--best_by={self.best_by} is a score of decoded lines; give "
                "--eval_decode_lines=100"
            )
        if self.max_checkpoints_by_score and self.save_checkpoints_secs:
            raise UserError(
                "--max_checkpoints_by_score keeps checkpoints of evaluated steps, but "
                "--save_checkpoints_secs saves others; omit one of them"
            )

    @property
    def model_precision(self) -> str:
        """The precision with which to make the model. In TF32, a GPU multiplies the float32 tensors
        of a model.
        """
        return "float32" if self.precision == "tf32" else self.precision
