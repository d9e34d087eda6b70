"""From a trained model to text: the search, and the translator around it."""

from t2t_repro.decoding.translator import Hypothesis, PairScore, Translation, Translator

__all__ = ["Hypothesis", "PairScore", "Translation", "Translator"]
