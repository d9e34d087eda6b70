"""A Transformer with tensor2tensor's weights, and the numbers that tensor2tensor computed with
them.

tests/golden/data/README.md describes the numbers. This module does not import TensorFlow, so tests
of JAX can use it.
"""

from pathlib import Path
from typing import Any

import numpy as np

from t2t_repro.hparam import HParams
from t2t_repro.models import variants
from t2t_repro.models.transformer import Transformer
from t2t_repro.tensor2tensor.variables import by_our_names

GOLDEN = Path(__file__).parents[1] / "golden" / "data" / "tensor2tensor"
HPARAMS = HParams(
    num_hidden_layers=2,
    hidden_size=32,
    num_heads=4,
    filter_size=64,
    layer_prepostprocess_dropout=0.0,
    use_target_space_embedding=True,
)
TARGET_SPACE_ID = 1


def load(name: str) -> dict[str, np.ndarray]:
    """Returns the arrays of a file of golden numbers."""
    return dict(np.load(GOLDEN / f"{name}.npz"))


def golden_model(make: Any = variants.transformer) -> Transformer:
    """Returns our Transformer with tensor2tensor's weights, made by this function."""
    model = make(HPARAMS, 100, TARGET_SPACE_ID)
    weights = by_our_names(load("model_v1_postnorm_vars"), "model_v1_postnorm_vars")
    assert weights.keys() == {variable.path for variable in model.trainable_variables}
    for variable in model.trainable_variables:
        variable.assign(weights[variable.path])
    return model
