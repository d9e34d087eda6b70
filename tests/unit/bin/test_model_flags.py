"""Tests that flags that repeat the content of a model folder must agree with it."""

import pytest
from absl import flags

from t2t_repro import registry
from t2t_repro.bin.model_flags import check_model_flags, define_model_flags
from t2t_repro.checkpoints.model_folder import ModelFolder
from user_errors import user_error


def check(folder: ModelFolder, *arguments: str) -> None:
    """Checks a folder, whose problem is numbers_ende, with the flags in `arguments`."""
    values = flags.FlagValues()
    define_model_flags(values)
    values(["t2t-decoder", *arguments])
    check_model_flags(values, folder)


def test_flags_that_agree_pass(folder: ModelFolder) -> None:
    check(folder)
    agreeing = [
        "--problem=numbers_ende",
        "--model=transformer",
        "--hparams=num_heads=2,",
        "--data_dir=/nowhere",
    ]
    check(folder, *agreeing)
    sizes = "num_hidden_layers=1,hidden_size=16,filter_size=16,num_heads=2"
    check(folder, "--hparams_set=transformer_base", f"--hparams={sizes}")
    folder.problem = registry.problem(
        "t2t_text"
    )  # of an imported model, whose names may not be registered here
    check(folder, "--problem=translate_tatoeba1k", "--hparams_set=small_v3", *agreeing[1:])


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        (
            "--problem=wmt_ende",
            ("--problem=wmt_ende, but ", "model has the problem numbers_ende; omit the flag"),
        ),
        ("--model=lstm", ("--model=lstm, but ", "the model transformer;")),
        ("--hparams=num_heads=4", ("--hparams=num_heads=4, but ", " has num_heads=2;")),
        (
            "--hparams_set=transformer_big",
            ("transformer_big has num_hidden_layers=6, but", "num_hidden_layers=1"),
        ),
        (
            "--hparams_set=transformer_base --hparams="
            "num_hidden_layers=1,hidden_size=16,filter_size=16",
            ("transformer_base has num_heads=8, but", "num_heads=2"),
        ),
        ("--hparams_set=my_set", ("my_set",)),
    ],
)
def test_a_contradiction_names_both_values(
    folder: ModelFolder, flag: str, words: tuple[str, ...]
) -> None:
    message = user_error(check, folder, *flag.split())
    assert all(word in message for word in words)
