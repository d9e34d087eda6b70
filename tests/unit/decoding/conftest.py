"""Fixtures for decoding tests: untrained Transformers whose outputs are whole words."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import pytest

from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer

WORDS = ("▁the", "▁dog", "▁a", "▁cat", "▁sat", "▁on")


def word_model(seed: int, hparams: HParams, vocabulary: Vocabulary) -> Transformer:
    """Returns an untrained model that mostly outputs a few whole words and then the end token."""
    keras.utils.set_random_seed(seed)
    model = Transformer(dataclasses.replace(hparams, shared_embedding_and_softmax_weights=False), vocabulary.size)
    norm = model.decoder[-1].residuals[-1].norm
    # The norm's new weights make the first dimension of the decoder's output always 1. So the first column of the
    # softmax table acts as a bias of the logits.
    constant = np.eye(hparams.hidden_size, dtype=np.float32)[0]
    norm.scale.assign(1 - constant)
    norm.bias.assign(constant)
    table = 3 * model.softmax.table.numpy()
    table[:, 0] = [
        12.0 if vocabulary.pieces([i])[0] in WORDS else 9.0 if i == EOS_ID else 0.0 for i in range(vocabulary.size)
    ]
    model.softmax.table.assign(table)
    return model


@pytest.fixture(scope="session")
def new_word_model(tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Callable[..., Transformer]:
    """Returns a function that makes a model whose outputs are words, from a seed and changes to the tiny hparams."""

    def make(seed: int, **changes: int) -> Transformer:
        return word_model(seed, dataclasses.replace(tiny_hparams, **changes), tiny_vocabulary)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def two_layers(new_word_model: Callable[..., Transformer]) -> Transformer:
    """Returns an untrained model with two layers whose outputs are words."""
    return new_word_model(1, num_hidden_layers=2)
