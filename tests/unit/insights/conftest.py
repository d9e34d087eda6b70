"""Models that the tests of the page explore."""

import keras
import pytest

from models import Copier
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.insights.answers import ExploredModel
from t2t_repro.models import variants


@pytest.fixture(scope="session")
def explored(tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> list[ExploredModel]:
    """Returns an untrained Transformer of one layer with two heads, and a model without attention."""  # noqa: E501
    keras.utils.set_random_seed(1)
    transformer = variants.transformer(tiny_hparams, tiny_vocabulary.size)
    copier = Copier(tiny_vocabulary.size)
    translators = (
        Translator(transformer, tiny_vocabulary, DecodeHParams(3, extra_length=2), max_length=256),
        Translator(copier, tiny_vocabulary, DecodeHParams(2, 1.0), max_length=30),
    )
    return [
        ExploredModel(*values)
        for values in zip(("a", "b"), ("first", "second"), translators, strict=True)
    ]
