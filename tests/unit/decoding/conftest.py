"""A Transformer whose outputs are words, without training."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import keras
import numpy as np
import pytest

from t2t_repro.data.vocabulary import EOS_ID, Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer

WORDS = ("▁the", "▁dog", "▁a", "▁cat", "▁sat", "▁on")


def speaking(seed: int, hparams: HParams, words: Vocabulary) -> Transformer:
    """A random model with a taste for whole words, and for an end after some."""
    keras.utils.set_random_seed(seed)
    model = Transformer(dataclasses.replace(hparams, shared_embedding_and_softmax_weights=False), words.size)
    norm = model.decoder[-1].residuals[-1].norm
    constant = np.eye(hparams.hidden_size, dtype=np.float32)[0]
    norm.scale.assign(1 - constant)  # the decoder's first dimension is always 1: what it is multiplied by is a bias
    norm.bias.assign(constant)
    table = 3 * model.softmax.table.numpy()
    table[:, 0] = [12.0 if words.pieces([i])[0] in WORDS else 9.0 if i == EOS_ID else 0.0 for i in range(words.size)]
    model.softmax.table.assign(table)
    return model


@pytest.fixture(scope="session")
def new_speaker(tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Callable[..., Transformer]:
    """Makes such a model from a seed and hparams that differ from the tiny ones."""

    def make(seed: int, **changes: int) -> Transformer:
        return speaking(seed, dataclasses.replace(tiny_hparams, **changes), tiny_vocabulary)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def speaker(new_speaker: Callable[..., Transformer]) -> Transformer:
    """One of two layers."""
    return new_speaker(1, num_hidden_layers=2)
