"""Small models of several families, with weights and inputs from numpy, which are the same on each
backend of Keras.
"""

from typing import Any

import numpy as np

from t2t_repro import registry
from t2t_repro.models.model import make_model
from t2t_repro.training.loss import smoothed_cross_entropy

SIZES: dict[str, Any] = {"num_hidden_layers": 1, "hidden_size": 8}
"""Few layers, because JAX takes seconds to compile a model."""
EXAMPLES = {
    "convs2s": registry.hparams_class("convs2s")(
        num_decoder_layers=2,
        convolutions="8x3+12x2",
        max_length=9,
        layer_prepostprocess_dropout=0.0,
        **SIZES,
    ),
    "moe": registry.hparams_class("moe")(
        cell_size=12,
        filter_size=10,
        moe_num_experts=9,
        moe_groups=3,
        attention_mechanism="tanh_product",
        layer_prepostprocess_dropout=0.3,
        **SIZES,
    ),
    "transformer": registry.hparams_class("transformer")(
        filter_size=12,
        num_heads=2,
        activation="gelu",
        use_attention_biases=True,
        use_softmax_bias=True,
        pos="marian",
        multiply_embedding_mode="none",
        **SIZES,
    ),
}
"""hparams by name of the family. Together, these models have most layers of the others."""
VOCAB = 20
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]])
TARGETS = np.array([[4, 5, 6, 1], [7, 1, 0, 0]])
SEED = np.array([1, 2], np.uint32)
"""Seeds of the examples' dropout masks."""


def example_model(family: str) -> Any:
    """Returns the model of a family."""
    model = make_model(EXAMPLES[family], VOCAB)
    random = np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.5, variable.shape))
    return model


def training_loss(logits: Any, losses: list[Any]) -> Any:
    """Returns the training loss of the examples, with the losses that balance experts."""
    return smoothed_cross_entropy(logits, TARGETS, 0.1) + sum(losses)
