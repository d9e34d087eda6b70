"""Translation of texts with a trained model."""

from t2t_repro.console.quiet import quiet_tensorflow

with quiet_tensorflow():
    import keras  # noqa: F401
    import tensorflow  # noqa: F401

from t2t_repro.decoding.translation import Hypothesis, PairScore, Translation
from t2t_repro.decoding.translator import Translator

__all__ = ["Hypothesis", "PairScore", "Translation", "Translator"]
