"""Decoding with packed kernels gives the outputs of decoding without them. See layers/base.py."""

from __future__ import annotations

import dataclasses
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from models import Copier, weights_of, write_checkpoint
from t2t_repro import devices
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.models.transformer import Transformer

SCRIPT = Path(__file__).parents[2] / "helpers" / "packed_process.py"


def test_packed_kernels_give_the_same_outputs(
    folder: ModelFolder, tiny_hparams: HParams, new_word_model: Callable[..., Transformer], tmp_path: Path
) -> None:
    widths: dict[str, Any] = {"hidden_size": 512, "filter_size": 1024}
    hparams = dataclasses.replace(tiny_hparams, shared_embedding_and_softmax_weights=False, **widths)
    wide = ModelFolder.create(tmp_path / "wide", hparams, folder.vocabulary, folder.origin)
    write_checkpoint(wide.path, 1, weights_of(new_word_model(1, **widths)), folder.vocabulary.fingerprint)
    environment = {name: value for name, value in os.environ.items() if name != "TF_ONEDNN_ASSUME_FROZEN_WEIGHTS"}
    environment["TF_ENABLE_ONEDNN_OPTS"] = "1"  # the default only on newer processors
    precisions = ["float32", *(["bfloat16"] if devices.multiplies_bfloat16() else [])]
    arguments = [sys.executable, SCRIPT, wide.path, *precisions]
    result = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=False)
    assert result.stdout == "".join(f"{precision} kept\n" for precision in precisions), result.stderr


class OwnTransformer(Transformer):
    """A user's model."""


@pytest.mark.parametrize("kind", [Copier, OwnTransformer])
def test_kernels_of_other_models_are_not_packed(
    folder: ModelFolder, monkeypatch: pytest.MonkeyPatch, kind: type
) -> None:
    model = Copier(folder.vocabulary.size) if kind is Copier else kind(folder.hparams, folder.vocabulary.size)
    monkeypatch.setattr(ModelFolder, "model", lambda *arguments: model)
    monkeypatch.setattr(devices, "keep_packed_kernels", lambda: pytest.fail("TensorFlow would keep all kernels"))
    Translator.from_folders([folder], ["checkpoint"], DecodeHParams(), packs_kernels=True)
