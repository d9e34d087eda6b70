"""The models with which the paper compares the Transformer, each with the layers and hparams that
only it has.
"""

import functools
import importlib
from typing import Any

from t2t_repro import registry
from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.hparam import HParams


class Rival:
    """A registered model whose module, which imports Keras, is imported when the model or its
    hparams are needed.
    """

    def __init__(self, module: str, class_name: str, summary: str) -> None:
        self._module = module
        self._class_name = class_name
        self.__doc__ = summary

    @functools.cached_property
    def _class(self) -> Any:
        with quiet_tensorflow():
            return getattr(importlib.import_module(f"{__name__}.{self._module}"), self._class_name)

    @property
    def hparams_class(self) -> type[HParams]:
        return self._class.hparams_class

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        return self._class(*arguments, **options)


for _module, _class_name, _summary in (
    (
        "transformer_moe",
        "TransformerMoe",
        "The Transformer with mixtures of experts (Shazeer et al. 2017).",
    ),
    ("gnmt", "GNMT", "Google's system: deep LSTM stacks with additive attention (Wu et al. 2016)."),
    (
        "deep_att",
        "DeepAtt",
        "LSTM layers of alternating directions with fast-forward connections (Zhou et al. 2016).",
    ),
    (
        "moe",
        "MoE",
        "LSTM stacks with a mixture of experts in each, and attention (Shazeer et al. 2017).",
    ),
    (
        "convs2s",
        "ConvS2S",
        "Gated convolutions, and attention in each decoder layer (Gehring et al. 2017).",
    ),
    (
        "bytenet",
        "ByteNet",
        "Dilated convolutions, the decoder on top of the encoder (Kalchbrenner et al. 2016).",
    ),
):
    registry.register_model(_module)(Rival(_module, _class_name, _summary))
