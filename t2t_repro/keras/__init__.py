"""Registered models for Keras users (docs/keras.md). Imports TensorFlow and Keras.

`TranslationModel` is a `keras.Model` around any registered model, and `Transformer` is the paper's
model as a layer.
"""

from typing import TYPE_CHECKING, Any

from t2t_repro.console.quiet import quiet_tensorflow

if TYPE_CHECKING:
    from t2t_repro.keras.translation_model import TranslationModel

with quiet_tensorflow():
    from t2t_repro.keras.transformer import Transformer

__all__ = ["Transformer", "TranslationModel"]


def __getattr__(name: str) -> Any:
    # Only TranslationModel needs TensorFlow; the layers also run on JAX.
    if name != "TranslationModel":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with quiet_tensorflow():
        from t2t_repro.keras.translation_model import TranslationModel
    return TranslationModel
