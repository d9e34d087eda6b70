"""Translation of texts with a trained model."""

from t2t_repro.decoding.translation import Hypothesis, PairScore, Translation
from t2t_repro.decoding.translator import Translator

__all__ = ["Hypothesis", "PairScore", "Translation", "Translator"]
