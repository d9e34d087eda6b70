"""`TranslationModel`: any registered model as a `keras.Model` (docs/keras.md). Imports TensorFlow and Keras."""

from t2t_repro.console.quiet import quiet_tensorflow

with quiet_tensorflow():
    from t2t_repro.keras.translation_model import TranslationModel

__all__ = ["TranslationModel"]
