"""Tests where the Transformer with experts has them, and its steps. test_rivals.py and
test_experts.py test more.
"""

from dataclasses import replace
from typing import Any

import pytest

from decoding_models import FAMILIES, INPUTS, SEED, TARGETS, check_steps, small_model
from t2t_repro.models import transformer
from t2t_repro.rivals import transformer_moe
from t2t_repro.rivals.experts import Experts


@pytest.mark.parametrize("norm_before", [False, True])
def test_the_middle_layer_of_each_stack_has_experts(norm_before: bool) -> None:
    changes = {"num_encoder_layers": 3, "norm_before": norm_before}
    model = small_model(replace(FAMILIES["transformer_moe"], **changes))
    check_steps(model)
    assert [isinstance(layer.feed_forward, Experts) for layer in model.encoder] == [
        False,
        True,
        False,
    ]
    assert [isinstance(layer.feed_forward, Experts) for layer in model.decoder] == [False, True]


def test_dropout_is_where_the_transformer_has_it_but_not_in_experts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    calls: list[tuple[float, tuple[int, ...]]] = []

    def record(x: Any, rate: float, seeds: Any) -> Any:
        if seeds is not None:
            calls.append((rate, tuple(x.shape)))
        return x

    for module in (transformer, transformer_moe):
        monkeypatch.setattr(module, "dropout", record)
    rates = {"layer_prepostprocess_dropout": 0.1, "attention_dropout": 0.2, "relu_dropout": 0.3}
    hparams = replace(FAMILIES["transformer_moe"], num_hidden_layers=1, **rates)
    small_model(hparams)(INPUTS, TARGETS, SEED)
    source = (0.1, (2, 5, 16))
    target = (0.1, (2, 4, 16))
    encoder = [(0.2, (2, 2, 5, 5)), source, source]
    decoder = [(0.2, (2, 2, 4, 4)), target, (0.2, (2, 2, 4, 5)), target, target]
    assert calls == [source, *encoder, target, *decoder]
