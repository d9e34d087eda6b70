"""The inputs of a training run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from t2t_repro.console.progress import say
from t2t_repro.data.dataset import Data
from t2t_repro.hparam import HParams
from t2t_repro.training.config import RunConfig
from t2t_repro.training.metrics_log import OnMetrics

DrawAttention = Callable[[Any, Data], bytes | None]
"""Draws the attention of a model for an example of the dev split, as PNG; None if the model has no
attention.
"""


@dataclass(frozen=True)
class Run:
    """The inputs of a training run: its data, its settings and its devices."""

    output_dir: str
    """Path of the model folder, which may not exist yet."""
    data: Data
    hparams: HParams
    random_seed: int
    """Seed of the initial weights, the order of the data and dropout."""
    config: RunConfig
    strategy: Any
    """The tf.distribute strategy that computes on the run's devices, see
    `distribution.make_strategy`.
    """
    draw_attention: DrawAttention | None = None
    """Draws the picture of an evaluation for TensorBoard; None for no picture."""
    on_metrics: OnMetrics | None = None
    """The chief calls it with each new line of metrics.jsonl, e.g. to draw a curve while the model
    trains.
    """

    @property
    def is_chief(self) -> bool:
        """True if this process is the chief, the only worker that writes files."""
        return bool(self.strategy.extended.should_checkpoint)

    def say(self, text: str) -> None:
        """Prints a message in the chief."""
        if self.is_chief:
            say(text)
