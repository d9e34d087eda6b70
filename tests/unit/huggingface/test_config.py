"""Tests which models can be imported from a folder of transformers."""

import json
from pathlib import Path
from typing import Any

import pytest

from t2t_repro.huggingface.config import read_config
from user_errors import user_error

USUAL: dict[str, Any] = {"architectures": ["MarianMTModel"], "model_type": "marian", "d_model": 64}


def write(folder: Path, **files: Any) -> Path:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def test_features_that_config_json_does_not_name_are_those_of_transformers(tmp_path: Path) -> None:
    config = read_config(
        write(
            tmp_path,
            config={
                **USUAL,
                "vocab_size": 7,
                "decoder_vocab_size": None,
                "decoder_start_token_id": 6,
                "num_beams": 6,
            },
        )
    )
    assert (config.d_model, config.encoder_layers, config.activation_function) == (64, 12, "gelu")
    assert config.vocab_size == config.decoder_vocab_size == 7 and not config.scale_embedding
    assert config.num_beams == 6 and not config.bad_words_ids
    config = read_config(
        write(tmp_path, generation_config={"num_beams": 4, "bad_words_ids": [[6]]})
    )
    assert config.num_beams == 4 and config.bad_words_ids == [[6]] and not config.unused
    rules = {"no_repeat_ngram_size": 3, "length_penalty": 1.0, "repetition_penalty": 1.2}
    config = read_config(write(tmp_path, generation_config=rules))
    assert config.unused.keys() == {"no_repeat_ngram_size", "repetition_penalty"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"model_type": "t5", "architectures": ["T5ForConditionalGeneration"]},
            ["T5ForConditionalGeneration"],
        ),
        ({"architectures": ["MarianForCausalLM"]}, ["MarianForCausalLM"]),
        ({"model_type": "bart"}, ["bart"]),
        (
            {"normalize_before": True, "activation_function": "tanh"},
            ["normalize_before=True", "activation_function"],
        ),
        ({"static_position_embeddings": False}, ["static_position_embeddings=False"]),
        ({"quantization_config": {"bits": 4}}, ["quantization_config"]),
        ({"bad_words_ids": [[1, 2]]}, ["bad_words_ids=[[1, 2]]"]),
        ({"decoder_attention_heads": 5}, ["decoder_attention_heads=5"]),
        ({"encoder_attention_heads": 0}, ["encoder_attention_heads=0"]),
        ({"vocab_size": 10**18}, ["vocab_size"]),
        ({"max_position_embeddings": 10**6, "d_model": 512}, ["max_position_embeddings=1000000"]),
        ({"eos_token_id": [0, 1]}, ["eos_token_id"]),
    ],
)
def test_other_models_are_refused_by_name(
    changes: dict[str, Any], words: list[str], tmp_path: Path
) -> None:
    message = user_error(read_config, write(tmp_path, config={**USUAL, **changes}))
    assert message.startswith(str(tmp_path / "config.json")) and all(
        word in message for word in words
    )


def test_a_missing_or_damaged_file_is_named(tmp_path: Path) -> None:
    assert "config.json" in user_error(read_config, tmp_path)
    assert "config.json" in user_error(read_config, write(tmp_path, config=[]))
    assert "generation_config.json" in user_error(
        read_config, write(tmp_path, config=USUAL, generation_config=1)
    )
