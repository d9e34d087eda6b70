"""The built-in models. Their modules import Keras, so they are imported only when a model is made."""

from __future__ import annotations

import importlib
from typing import Any

from t2t_repro import registry
from t2t_repro.hparam import HParams


def _register(name: str, class_name: str, summary: str) -> None:
    """Registers the class `class_name` of the module models.`name` as the model `name`."""

    def make(
        hparams: HParams,
        vocab_size: int,
        target_space_id: int = 0,
        precision: str = "float32",
        source_vocab_size: int = 0,
    ) -> Any:
        model_class = getattr(importlib.import_module(f"{__name__}.{name}"), class_name)
        return model_class(hparams, vocab_size, target_space_id, precision, source_vocab_size)

    make.__doc__ = summary
    registry.register_model(name)(make)


for _model in (
    ("transformer", "Transformer", "The Transformer: encoder and decoder made of attention (Vaswani et al. 2017)."),
    ("transformer_moe", "TransformerMoe", "The Transformer with mixtures of experts (Shazeer et al. 2017)."),
    ("gnmt", "GNMT", "Google's system: deep LSTM stacks with additive attention (Wu et al. 2016)."),
    ("deep_att", "DeepAtt", "LSTM layers of alternating directions with fast-forward connections (Zhou et al. 2016)."),
    ("moe", "MoE", "LSTM stacks with a mixture of experts in each, and attention (Shazeer et al. 2017)."),
    ("convs2s", "ConvS2S", "Gated convolutions, and attention in each decoder layer (Gehring et al. 2017)."),
    ("bytenet", "ByteNet", "Dilated convolutions, the decoder on top of the encoder (Kalchbrenner et al. 2016)."),
):
    _register(*_model)
