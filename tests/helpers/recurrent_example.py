"""A small GNMT with weights and inputs from numpy, which are the same on each backend of Keras."""

from __future__ import annotations

from typing import Any

import numpy as np

from t2t_repro.hparam import HParams
from t2t_repro.models.model import make_model

HPARAMS = HParams(model="gnmt", num_hidden_layers=2, hidden_size=8, layer_prepostprocess_dropout=0.3)
VOCAB = 20
INPUTS = np.array([[5, 6, 7, 8, 1], [9, 3, 1, 0, 0]])
TARGETS = np.array([[4, 5, 6, 1], [7, 1, 0, 0]])
SEED = np.array([1, 2], np.uint32)
"""Seeds of the examples' dropout masks."""


def recurrent_model() -> Any:
    """Returns the model."""
    model, random = make_model(HPARAMS, VOCAB), np.random.default_rng(0)
    for variable in model.trainable_variables:
        variable.assign(random.normal(0, 0.5, variable.shape))
    return model
