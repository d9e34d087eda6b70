"""Registered models for Keras users (docs/keras.md). Imports TensorFlow and Keras.

`TranslationModel` is a `keras.Model` around any registered model, and `Transformer` is the paper's
model as a layer.
"""

from t2t_repro.console.quiet import quiet_tensorflow

with quiet_tensorflow():
    from t2t_repro.keras.translation_model import TranslationModel
    from t2t_repro.models.transformer import Transformer

__all__ = ["Transformer", "TranslationModel"]
