"""The paper's model. Its module imports Keras, so it is imported only when a model is made."""

from __future__ import annotations

import importlib
from typing import Any

from t2t_repro import registry
from t2t_repro.hparam import HParams


def register_lazily(package: str, name: str, class_name: str, summary: str) -> None:
    """Registers the class `class_name` of the module `package`.`name` as the model `name`."""

    def make(
        hparams: HParams,
        vocab_size: int,
        target_space_id: int = 0,
        precision: str = "float32",
        source_vocab_size: int = 0,
    ) -> Any:
        model_class = getattr(importlib.import_module(f"{package}.{name}"), class_name)
        return model_class(hparams, vocab_size, target_space_id, precision, source_vocab_size)

    make.__doc__ = summary
    registry.register_model(name)(make)


register_lazily(
    __name__,
    "transformer",
    "Transformer",
    "The Transformer: stacks of attention layers (Vaswani et al. 2017).",
)
