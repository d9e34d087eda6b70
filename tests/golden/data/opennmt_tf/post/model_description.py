import tensorflow as tf
from opennmt.models import EmbeddingsSharingLevel, Transformer


def model():
    return Transformer(
        num_layers=1,
        num_units=16,
        num_heads=2,
        ffn_inner_dim=32,
        pre_norm=False,
        ffn_activation=tf.nn.silu,
        dropout=0,
        share_embeddings=EmbeddingsSharingLevel.SOURCE_TARGET_INPUT,
    )
