"""Fixtures for unit tests: a tiny model folder, its hparams and its vocabulary."""

from pathlib import Path

import pytest

from t2t_repro.checkpoints.model_folder import ModelFolder, Origin
from t2t_repro.data.vocabularies import sentencepiece
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams


@pytest.fixture(scope="session")
def tiny_hparams() -> HParams:
    """Returns the hparams of a model with a few thousand weights."""
    return HParams(
        num_hidden_layers=1,
        hidden_size=16,
        filter_size=16,
        num_heads=2,
        learning_rate_constant=0.1,
        learning_rate_warmup_steps=4,
        optimizer_adam_epsilon=1e-3,
    )


@pytest.fixture(scope="session")
def tiny_vocabulary() -> Vocabulary:
    """Returns a vocabulary of 290 pieces: single bytes, special tokens, and parts of a few English
    words.
    """
    return sentencepiece.train(["the dog", "a cat", "the cat sat on the dog"], 290)


@pytest.fixture
def folder(tmp_path: Path, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> ModelFolder:
    """Returns a new model folder without checkpoints."""
    origin = Origin("numbers_ende", {}, "vocab.numbers_ende.512.model", "0123456789ab", 1)
    return ModelFolder.create(tmp_path / "model", tiny_hparams, tiny_vocabulary, origin)
