"""Tests that flags and hparams that tensor2tensor wrote into its model folders exist here or have an answer."""

from __future__ import annotations

import dataclasses
import json
import re

import pytest

from t2t_models import MODELS, NEED_MODELS
from t2t_repro.bin import t2t_decoder, t2t_trainer
from t2t_repro.hparam import HParams
from t2t_repro.tensor2tensor.names import answer, explained_flag

pytestmark = NEED_MODELS


@pytest.mark.parametrize(("name", "program"), [("trainer", t2t_trainer), ("decoder", t2t_decoder)])
def test_the_flags_of_a_model_folder_exist_or_have_an_answer(name: str, program: object) -> None:
    flags = re.findall(r"^--(\w+)", (MODELS / "v1" / "model" / "flags_t2t.txt").read_text(), re.MULTILINE)
    assert len(flags) >= 40
    ours = {*program.FLAGS, "registry_help"}  # type: ignore[attr-defined]
    assert [flag for flag in flags if flag not in ours and not explained_flag(f"t2t-{name}", flag)] == []


def test_the_hparams_of_a_model_folder_exist_or_have_an_answer() -> None:
    ours = {field.name for field in dataclasses.fields(HParams)}
    paths = sorted(MODELS.glob("*/model/hparams.json"))
    assert paths
    for path in paths:
        unknown = [name for name in json.loads(path.read_text()) if name not in ours and not answer("hparam", name)]
        assert unknown == []
