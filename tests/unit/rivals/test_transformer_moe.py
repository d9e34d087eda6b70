"""Tests where the Transformer with experts has them, and its steps. test_rivals.py and
test_experts.py test more.
"""

from dataclasses import replace

from decoding_models import FAMILIES, check_steps, small_model
from t2t_repro.rivals.experts import Experts


def test_the_middle_layer_of_each_stack_has_experts() -> None:
    model = small_model(replace(FAMILIES["transformer_moe"], num_encoder_layers=3))
    check_steps(model)
    assert [isinstance(layer.feed_forward, Experts) for layer in model.encoder] == [
        False,
        True,
        False,
    ]
    assert [isinstance(layer.feed_forward, Experts) for layer in model.decoder] == [False, True]
