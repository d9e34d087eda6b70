import opennmt as onmt
import tensorflow as tf


class Small(onmt.models.Transformer):
    def __init__(self):
        super().__init__(
            num_layers=(2, 1),
            num_units=16,
            num_heads=4,
            ffn_inner_dim=24,
            ffn_activation=tf.nn.gelu,
            position_encoder_class=None,
            maximum_relative_position=3,
            dropout=0.0,
        )


model = Small
