"""Writes model folders like those of tensor2tensor, with the golden model's weights."""

import json
import string
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from golden_model import load

T2T_HPARAMS: dict[str, Any] = {
    "num_hidden_layers": 2,
    "num_encoder_layers": 0,
    "num_decoder_layers": 0,
    "hidden_size": 32,
    "filter_size": 64,
    "num_heads": 4,
    "attention_key_channels": 0,
    "attention_value_channels": 0,
    "max_length": 256,
    "layer_preprocess_sequence": "none",
    "layer_postprocess_sequence": "dan",
    "norm_type": "layer",
    "norm_epsilon": 1e-06,
    "pos": "timing",
    "self_attention_type": "dot_product",
    "max_relative_position": 0,
    "shared_embedding": False,
    "shared_embedding_and_softmax_weights": True,
    "layer_prepostprocess_dropout": 0.1,
    "attention_dropout": 0.0,
    "relu_dropout": 0.0,
    "label_smoothing": 0.1,
    "optimizer": "adam",
    "optimizer_adam_beta1": 0.9,
    "optimizer_adam_beta2": 0.98,
    "optimizer_adam_epsilon": 1e-09,
    "learning_rate": 0.1,
    "learning_rate_schedule": "legacy",
    "learning_rate_decay_scheme": "noam",
    "learning_rate_warmup_steps": 4000,
    "ffn_layer": "dense_relu_dense",
    "proximity_bias": False,
    "train_steps": 250000,
}
"""The part of tensor2tensor's hparams.json that an import reads, for the golden model."""
VOCABULARY = "vocab.translate_toy.100.subwords"
LETTERS = string.ascii_letters.replace("u", "")
SUBWORDS = [
    "<pad>_",
    "<EOS>_",
    *"\\_u;0123456789",
    *(f"{letter}_" for letter in LETTERS),
    *LETTERS[:33],
]
"""The 100 entries of the vocabulary."""


def weights() -> dict[str, np.ndarray]:
    """Returns the golden model's variables, by tensor2tensor's names."""
    return load("model_v1_postnorm_vars")


def write_t2t_checkpoint(path: Path, variables: dict[str, np.ndarray], step: int = 0) -> str:
    """Writes a checkpoint as TensorFlow 1 does, with the variable global_step; returns its path
    with the step.
    """
    prefix = str(path / f"model.ckpt-{step}")
    tensors = {"global_step": np.int64(step)} | variables
    values = [tf.convert_to_tensor(value) for value in tensors.values()]
    tf.raw_ops.SaveV2(
        prefix=prefix, tensor_names=[*tensors], shape_and_slices=[""] * len(tensors), tensors=values
    )
    return prefix


def write_vocabulary(path: Path, size: int) -> None:
    """Writes a file with the first `size` subwords. tensor2tensor puts them in quotation marks but
    escapes nothing.
    """
    path.write_text("".join(f"'{subword}'\n" for subword in SUBWORDS[:size]))


def write_t2t_model(folder: Path, step: int = 20, **hparams: Any) -> Path:
    """Writes a checkpoint, hparams.json with the given changes, flags and a vocabulary to `folder`;
    returns it.
    """
    folder.mkdir(exist_ok=True)
    write_t2t_checkpoint(folder, weights(), step)
    (folder / "hparams.json").write_text(json.dumps(T2T_HPARAMS | hparams))
    (folder / "flags_t2t.txt").write_text(
        "--problem=translate_toy\n--data_dir=data\n--hparams_set=transformer_mine\n"
    )
    write_vocabulary(folder / VOCABULARY, 100)
    return folder
