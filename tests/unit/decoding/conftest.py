"""Fixtures for decoding tests: untrained Transformers whose outputs are whole words."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from models import word_model
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams


@pytest.fixture(scope="session")
def new_word_model(tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Callable[..., Any]:
    """Returns a function that makes a model whose outputs are words, from a seed and changes to the
    tiny hparams.
    """

    def make(seed: int, **changes: int) -> Any:
        return word_model(seed, dataclasses.replace(tiny_hparams, **changes), tiny_vocabulary)  # type: ignore[arg-type]

    return make


@pytest.fixture(scope="session")
def two_layers(new_word_model: Callable[..., Any]) -> Any:
    """Returns an untrained model with two layers whose outputs are words."""
    return new_word_model(1, num_hidden_layers=2)
