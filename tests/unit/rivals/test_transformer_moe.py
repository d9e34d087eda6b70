"""Tests where the Transformer with experts has them. Its other tests are those of all models and of the experts."""

from __future__ import annotations

from dataclasses import replace

from decoding_models import FAMILIES, VOCAB
from t2t_repro.rivals.experts import Experts
from t2t_repro.rivals.transformer_moe import TransformerMoe


def test_the_middle_layer_of_each_stack_has_experts() -> None:
    model = TransformerMoe(replace(FAMILIES["transformer_moe"], num_decoder_layers=2), VOCAB)
    assert [isinstance(layer.feed_forward, Experts) for layer in model.encoder] == [False, True, False]
    assert [isinstance(layer.feed_forward, Experts) for layer in model.decoder] == [False, True]
