"""CTranslate2, a fast C++ library for CPUs: an engine of the translator, and exports for it."""

from typing import Any

from t2t_repro.console.quiet import quiet_tensorflow
from t2t_repro.decoding.engine import register_engine
from t2t_repro.errors import require_extra


@register_engine
def ctranslate2(*arguments: Any) -> Any:
    """CTranslate2, which runs only the Transformer; docs/ctranslate2.md says what differs."""
    require_extra("ctranslate2", "ctranslate2")
    with quiet_tensorflow():
        from t2t_repro.ctranslate2 import engine

    return engine.load(*arguments)
