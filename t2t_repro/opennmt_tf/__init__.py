"""Models of OpenNMT-tf: `Transformer`, such as TransformerBase."""

from typing import Any

from t2t_repro import registry


@registry.register_model
def opennmt_transformer(*arguments: Any, **options: Any) -> Any:
    """OpenNMT-tf's Transformer: it has a start token, and sources have no end."""
    from t2t_repro.opennmt_tf.transformer import OpenNMTTransformer

    return OpenNMTTransformer(*arguments, **options)
