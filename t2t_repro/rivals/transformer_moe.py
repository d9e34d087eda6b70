"""The Transformer with a mixture of experts in the middle layer of each stack, like tensor2tensor's
transformer_moe.
"""

from dataclasses import dataclass
from typing import Any

from t2t_repro.models.transformer import Transformer
from t2t_repro.rivals.experts import Experts, ExpertsHParams


@dataclass(frozen=True)
class TransformerMoeHParams(ExpertsHParams):
    """The model's hparams. `filter_size` is also the inner width of each expert."""

    model: str = "transformer_moe"


class TransformerMoe(Transformer):
    """A `Transformer` in which `Experts` replace the feed-forward network of the middle layer of
    each stack.
    """

    hparams_class = TransformerMoeHParams

    def feed_forward_classes(self, layers: int) -> list[type[Any]]:
        """Returns a stack's classes of feed-forward sub-layers. Of two middle layers, the upper has
        experts.
        """
        classes = super().feed_forward_classes(layers)
        classes[layers // 2] = Experts
        return classes
