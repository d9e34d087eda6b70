"""Translation of texts with a trained model."""

from typing import TYPE_CHECKING, Any

from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.decoding.translation import Hypothesis, PairScore, Translation

if TYPE_CHECKING:
    from t2t_repro.decoding.translator import Translator

__all__ = ["Hypothesis", "PairScore", "Translation", "Translator"]


def __getattr__(name: str) -> Any:
    """Imports `Translator` when it is first used, because TensorFlow takes seconds."""
    if name != "Translator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with quiet_tensorflow():
        from t2t_repro.decoding.translator import Translator
    return Translator
