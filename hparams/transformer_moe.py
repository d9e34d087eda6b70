"""The hparams sets of the Transformer with mixtures of experts."""

from __future__ import annotations

from t2t_repro import registry
from t2t_repro.hparam import HParams
from t2t_repro.hparams.transformer import transformer_tiny


@registry.register_hparams
def transformer_moe() -> HParams:
    """transformer_base with 16 experts in the middle layer of each stack. Each position uses 2 of them.

    tensor2tensor's transformer_moe_base has these numbers of experts and this weight of the balancing losses. Its
    layer_types, such as "a/a/a-moe/a/a", put experts into the middle layer. The other values are those of
    transformer_base, so that only the experts differ.
    """
    return registry.hparams_class("transformer_moe")(moe_num_experts=16)


@registry.register_hparams
def transformer_moe_tiny() -> HParams:
    """transformer_tiny with 4 experts in the second layer of each stack. Each position uses 2 of them.

    The inner width is 256 instead of 512, so that the model has about as many parameters as transformer_tiny.
    """
    return registry.hparams_class("transformer_moe").of(
        transformer_tiny(), model="transformer_moe", moe_num_experts=4, filter_size=256
    )
