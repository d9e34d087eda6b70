"""Tests that flags that repeat the content of a model folder must agree with it."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from absl import flags

from t2t_repro import registry
from t2t_repro.bin.model_flags import check_model_flags, define_model_flags
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.data.vocabularies.tensor2tensor import ByteVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams


def check(folder: ModelFolder, *arguments: str) -> None:
    """Checks a folder, whose problem is numbers_ende, with the flags in `arguments`."""
    values = flags.FlagValues()
    define_model_flags(values)
    values(["t2t-decoder", *arguments])
    check_model_flags(values, folder)


def test_flags_that_agree_pass(folder: ModelFolder, tiny_vocabulary: Vocabulary, tmp_path: Path) -> None:
    data = tmp_path / "data"
    data.mkdir()
    (data / "vocab.other.model").write_bytes(b"x")
    tiny_vocabulary.save(data / "vocab.numbers_ende.290.model")
    check(folder)
    check(folder, "--problem=numbers_ende", "--model=transformer", f"--data_dir={data}", "--hparams=num_heads=2,")
    folder.vocabulary = ByteVocabulary()  # has no file in tensor2tensor's folder
    check(folder, f"--data_dir={tmp_path}")


def test_an_imported_model_may_have_a_problem_and_a_set_that_are_not_registered(
    folder: ModelFolder, capsys: pytest.CaptureFixture[str]
) -> None:
    folder.problem = registry.problem("t2t_text")
    check(folder, "--problem=translate_tatoeba1k", "--hparams_set=small_v3")
    assert "--hparams_set=small_v3 is not registered here, so it was not compared" in capsys.readouterr().err
    check(folder, "--problem=t2t_text")
    check(folder, "--problem=translate_ende_wmt32k")
    with pytest.raises(UserError, match=r"--problem=wmt_ende, but .* has the problem t2t_text"):
        check(folder, "--problem=wmt_ende")


@pytest.mark.parametrize("is_pre_norm", [False, True])
def test_a_set_of_tensor2tensor_agrees_with_a_model_of_tensor2tensor(folder: ModelFolder, is_pre_norm: bool) -> None:
    """tensor2tensor's transformer_base is transformer_base_v3 here."""
    folder.hparams = dataclasses.replace(
        HParams(), norm_before=is_pre_norm, use_target_space_embedding=is_pre_norm, num_hidden_layers=3
    )
    check(folder, "--hparams_set=transformer_base", "--hparams=num_hidden_layers=3")
    if not is_pre_norm:
        with pytest.raises(UserError, match=r"transformer_base_v3 has norm_before=True, but .* has norm_before=False"):
            check(folder, "--hparams_set=transformer_base_v3", "--hparams=num_hidden_layers=3")


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--problem=wmt_ende", ("--problem=wmt_ende, but ", "model has the problem numbers_ende; omit the flag")),
        ("--model=lstm", ("--model=lstm, but ", "the model transformer;")),
        ("--hparams=num_heads=4", ("--hparams=num_heads=4, but ", " has num_heads=2;")),
        ("--hparams_set=transformer_big", ("transformer_big has num_hidden_layers=6, but", "num_hidden_layers=1")),
        ("--hparams_set=my_set", ("my_set",)),
        ("--data_dir=/no/such/folder", ("/no/such/folder holds no vocabulary", "vocab.numbers_ende.512.model")),
        ("--data_dir=FOLDER", ("FOLDER holds vocab.x.model, but ", "another vocabulary, vocab.numbers_ende.512.model")),
    ],
)
def test_a_contradiction_names_both_values(
    folder: ModelFolder, tmp_path: Path, flag: str, words: tuple[str, ...]
) -> None:
    (tmp_path / "vocab.x.model").write_bytes(folder.vocabulary.model[:-1] + b"x")
    with pytest.raises(UserError) as error:
        check(folder, flag.replace("FOLDER", str(tmp_path)))
    assert all(word.replace("FOLDER", str(tmp_path)) in str(error.value) for word in words), error.value
