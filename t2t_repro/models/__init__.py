"""The paper's model. Its modules import Keras, so they are imported only when a model is made."""

from typing import Any

from t2t_repro import registry


@registry.register_model("transformer")
def make_transformer(*arguments: Any, **options: Any) -> Any:
    """The Transformer: stacks of attention layers (Vaswani et al. 2017)."""
    from t2t_repro.models import variants

    return variants.transformer(*arguments, **options)
