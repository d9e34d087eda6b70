"""The Transformer with a mixture of experts in the middle layer of each stack, like tensor2tensor's transformer_moe."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer
from t2t_repro.rivals.balanced_model import BalancedModel
from t2t_repro.rivals.experts import Experts


class TransformerMoe(BalancedModel, Transformer):
    """A `Transformer` in which `Experts` replace the feed-forward network of the middle layer of each stack."""

    def feed_forward_classes(self, layers: int) -> list[Callable[[HParams, str], Any]]:
        """Returns a stack's classes of feed-forward sub-layers. Of two middle layers, the upper has experts."""
        classes = super().feed_forward_classes(layers)
        classes[layers // 2] = Experts
        return classes
