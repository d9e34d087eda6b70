"""Tests that hparams that tensor2tensor wrote into its model folders exist here or have an answer."""  # noqa: E501

import dataclasses
import json

from t2t_models import MODELS, NEED_MODELS
from t2t_repro.hparam import HParams
from t2t_repro.tensor2tensor.names import answer

pytestmark = NEED_MODELS


def test_the_hparams_of_a_model_folder_exist_or_have_an_answer() -> None:
    ours = {field.name for field in dataclasses.fields(HParams)}
    paths = sorted(MODELS.glob("*/model/hparams.json"))
    assert paths
    for path in paths:
        unknown = [
            name
            for name in json.loads(path.read_text())
            if name not in ours and not answer("hparam", name)
        ]
        assert unknown == []
