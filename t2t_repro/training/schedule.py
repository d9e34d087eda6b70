"""The learning rate at each step (section 5.3 of the paper, equation 3)."""

from types import SimpleNamespace
from typing import Any, Self

import keras
from keras import ops

from t2t_repro.hparam import HParams


@keras.saving.register_keras_serializable("t2t_repro")
class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that is the product of the factors in `hparams.learning_rate_schedule`, as in
    tensor2tensor.

    The schedule is a list of names, separated by "*". In the formulas, s is the number of steps
    already taken, w is learning_rate_warmup_steps, n is train_steps, and d is hidden_size:

    - constant: learning_rate_constant
    - noam: d^-0.5 * min((s+1)^-0.5, (s+1) * w^-1.5), which is equation 3 at step_num = s+1
    - linear_warmup: min(1, s / w)
    - rsqrt_decay: max(s, w)^-0.5
    - rsqrt_hidden_size: d^-0.5
    - linear_decay: 1 until step w, then decreasing linearly to 0 at step n
    - exp_decay: r ** max(0, (s - w) / k) for r, learning_rate_decay_rate, and k,
      learning_rate_decay_steps; the exponent is rounded down if learning_rate_decay_staircase is
      true
    """

    def __init__(self, hparams: HParams) -> None:
        self.hparams = hparams

    def get_config(self) -> dict[str, Any]:
        """Returns the hparams, with which Keras saves an optimizer."""
        return dict(vars(self.hparams))

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> Self:
        return cls(SimpleNamespace(**config))  # type: ignore[arg-type]  # it has all fields that a schedule reads

    def __call__(self, step: Any) -> Any:
        """Returns the learning rate, float32 [], of the next step after `step` steps have been
        taken.
        """
        hparams = self.hparams
        s = ops.cast(step, "float32")
        w = float(hparams.learning_rate_warmup_steps)
        n = float(max(hparams.train_steps, hparams.learning_rate_warmup_steps + 1))
        d = hparams.hidden_size
        decays = ops.maximum(0.0, (s - w) / hparams.learning_rate_decay_steps)
        if hparams.learning_rate_decay_staircase:
            decays = ops.floor(decays)
        factors = {
            "constant": lambda: hparams.learning_rate_constant,
            "noam": lambda: d**-0.5 * ops.minimum((s + 1) * w**-1.5, ops.rsqrt(s + 1)),
            "linear_warmup": lambda: ops.minimum(1.0, s / w),
            "rsqrt_decay": lambda: ops.rsqrt(ops.maximum(s, w)),
            "rsqrt_hidden_size": lambda: d**-0.5,
            "exp_decay": lambda: hparams.learning_rate_decay_rate**decays,
            "linear_decay": lambda: ops.clip((n - s) / (n - w), 0.0, 1.0),
        }
        # Only the factors in the list are computed, so the others add no operations to the graph.
        rate = ops.ones(())
        for name in hparams.learning_rate_schedule.split("*"):
            rate = rate * factors[name]()
        return rate


def learning_rates(hparams: HParams) -> str:
    """Returns the highest learning rate with the first step that has it, and the learning rate of
    the last step.
    """
    last_step = hparams.train_steps
    warmup = hparams.learning_rate_warmup_steps
    # No factor of the schedule falls before the end of the warm-up or rises after it, so one of
    # these steps has the highest rate.
    steps = [step for step in (1, warmup, warmup + 1, last_step) if step <= last_step]
    rates = {step: float(Schedule(hparams)(step - 1)) for step in steps}
    peak = max(rates, key=lambda step: rates[step])
    return (
        f"at most {rates[peak]:.3g} (step {peak:,}); {rates[last_step]:.3g} at the last step "
        f"({last_step:,})"
    )
