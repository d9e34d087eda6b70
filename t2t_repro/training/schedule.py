"""The learning rate at each step (section 5.3, equation 3)."""

from __future__ import annotations

from typing import Any

import keras
from keras import ops

from t2t_repro.hparam import HParams


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """The product of the factors that `learning_rate_schedule` names, separated by "*", as in tensor2tensor.

    Let s be the number of steps before this one, w the warmup steps, n train_steps, and d the model's width:

    - constant: learning_rate_constant
    - noam: d^-0.5 * min((s+1)^-0.5, (s+1) * w^-1.5), equation 3 with the step number counted from 1
    - linear_warmup: min(1, s / w)
    - rsqrt_decay: max(s, w)^-0.5
    - rsqrt_hidden_size: d^-0.5
    - linear_decay: 1 until w, then a straight line down to 0 at n
    """

    def __init__(self, hparams: HParams) -> None:
        self.hparams = hparams

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate, float32 [], of the step that follows `step` steps."""
        hparams = self.hparams
        s = ops.cast(step, "float32")
        w = float(hparams.learning_rate_warmup_steps)
        n = float(max(hparams.train_steps, hparams.learning_rate_warmup_steps + 1))
        factors = {
            "constant": lambda: hparams.learning_rate_constant,
            "noam": lambda: hparams.hidden_size**-0.5 * ops.minimum((s + 1) * w**-1.5, ops.rsqrt(s + 1)),
            "linear_warmup": lambda: ops.minimum(1.0, s / w),
            "rsqrt_decay": lambda: ops.rsqrt(ops.maximum(s, w)),
            "rsqrt_hidden_size": lambda: hparams.hidden_size**-0.5,
            "linear_decay": lambda: ops.clip((n - s) / (n - w), 0.0, 1.0),
        }
        rate = ops.ones(())
        for name in hparams.learning_rate_schedule.split("*"):
            rate = rate * factors[name]()
        return rate

    def get_config(self) -> dict[str, Any]:
        """Returns the constructor's arguments, which Keras requires."""
        return {"hparams": self.hparams}
