"""The settings of a training run for saving, evaluation, logs and devices."""

from dataclasses import dataclass, field
from typing import Literal

from t2t_repro.data.batching import MAX_TOKENS

LOSS = "loss"
"""Value of --best_by that stands for the dev loss. Other values are names of scores."""
Precision = Literal["float32", "tf32", "mixed_bfloat16", "mixed_float16"]


@dataclass(frozen=True)
class RunConfig:
    """Settings of a training run other than the hparams and the random seed. t2t-trainer has a flag for each."""

    local_eval_frequency: int = 1500
    """Number of steps between two evaluations on the dev split."""
    eval_steps: int = 0
    """Number of batches in an evaluation; 0: the whole dev split."""
    eval_decode_lines: int = 100
    """Number of dev lines that each evaluation decodes and scores; 0: none."""
    early_stopping_patience: int = 0
    """Number of consecutive evaluations without a new best one (--best_by) after which training ends; 0: never."""
    best_by: str = LOSS
    """What the best checkpoint and --early_stopping_patience follow: loss, the dev loss, or a score of the decoded dev
    lines, e.g. bleu or chrf."""
    save_checkpoints_secs: int = 0
    """Seconds between two checkpoints (the paper: 600); 0: save before each evaluation."""
    keep_checkpoint_max: int = field(default=20, metadata={"lower_bound": 1})
    """Number of latest checkpoints to keep."""
    log_step_count_steps: int = field(default=100, metadata={"lower_bound": 1})
    """Steps between two lines in metrics.jsonl and two points in TensorBoard."""
    worker_gpu: int = 0
    """Number of GPUs to use on each machine; 0: all."""
    max_tokens_per_replica: int = field(default=MAX_TOKENS, metadata={"lower_bound": 1})
    """Maximum number of positions on each side (source or target) of a micro-batch, including padding; a replica
    computes at most two micro-batches at the same time; affects only speed and memory, and the balancing losses of
    experts."""
    precision: Precision = "float32"
    """Precision of matrix products. tf32: float32 with rounded factors, faster on NVIDIA GPUs since Ampere;
    mixed_bfloat16: bfloat16, faster if the processor supports it; mixed_float16: float16 with loss scaling, for GPUs
    without bfloat16."""
    warm_start_from: str = ""
    """Model folder or checkpoint with the initial weights, for the same sizes; with another vocabulary, pieces keep
    their embeddings."""

    @property
    def model_precision(self) -> str:
        """The precision with which to make the model. In TF32, a GPU multiplies the float32 tensors of a model."""
        return "float32" if self.precision == "tf32" else self.precision
