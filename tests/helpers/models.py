"""Models without weights, and functions to write checkpoints of untrained models."""

import dataclasses
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from t2t_repro.data.vocabularies.text_rules import EOS_ID
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import HParams
from t2t_repro.models import variants

WORDS = ("▁the", "▁dog", "▁a", "▁cat", "▁sat", "▁on")


class ModelWithoutCache:
    """Base class of models that decode without a cache and whose memory is the input."""

    def encode(self, inputs: tf.Tensor) -> tf.Tensor:
        return inputs

    def start(self, hypotheses: tf.Tensor) -> tf.Tensor:
        return tf.zeros([hypotheses, 0])


class Copier(ModelWithoutCache):
    """A model whose output equals its input. With ends=False, token 40 replaces the end token, so
    outputs never end.
    """

    name = "copier"
    has_attention = False
    is_normalized = False
    missing_methods = ()

    def __init__(self, vocab_size: int, ends: bool = True) -> None:
        self.vocab_size = vocab_size
        self.last = EOS_ID if ends else 40
        self.trainable_variables: list[Any] = []

    def __call__(
        self, inputs: tf.Tensor, targets: tf.Tensor, seed: tf.Tensor | None = None
    ) -> tf.Tensor:
        length = tf.shape(targets)[1]
        return 30.0 * tf.one_hot(tf.pad(inputs, [[0, 0], [0, length]])[:, :length], self.vocab_size)

    def decode_step(
        self, ids: tf.Tensor, t: tf.Tensor, cache: tf.Tensor, memory: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        memory = tf.pad(memory, [[0, 0], [0, 100]])[:, t, None]
        ids_to_write = tf.where(
            memory <= EOS_ID, tf.constant(self.last, memory.dtype), memory
        ) + tf.zeros_like(ids)
        return 30.0 * tf.one_hot(ids_to_write, self.vocab_size), cache


def write_checkpoint(
    folder: Path, step: int, weights: dict[str, Any], vocabulary_fingerprint: str
) -> str:
    """Writes a checkpoint model.ckpt-STEP like t2t-trainer's, but without the optimizer's state;
    returns its path.
    """
    path: str = tf.train.Checkpoint(
        weights=weights,
        step=tf.Variable(step, dtype=tf.int64),
        vocabulary_fingerprint=tf.Variable(vocabulary_fingerprint),
    ).write(str(folder / f"model.ckpt-{step}"))
    return path


def weights_of(model: Any) -> dict[str, Any]:
    """Returns the values of a model's trainable weights as {path of the variable: value}."""
    return {variable.path: variable.value for variable in model.trainable_variables}


def word_model(seed: int, hparams: HParams, vocabulary: Vocabulary) -> Any:
    """Returns an untrained model that mostly outputs a few whole words and then the end token."""
    keras.utils.set_random_seed(seed)
    model = variants.transformer(
        dataclasses.replace(hparams, shared_embedding_and_softmax_weights=False), vocabulary.size
    )
    norm = model.decoder[-1].residuals[-1].norm
    # The norm's new weights make the first dimension of the decoder's output always 1. So the first
    # column of the softmax table acts as a bias of the logits.
    constant = np.eye(hparams.hidden_size, dtype=np.float32)[0]
    norm.scale.assign(1 - constant)
    norm.bias.assign(constant)
    table = 3 * model.softmax.table.numpy()
    table[:, 0] = [
        12.0 if vocabulary.pieces([i])[0] in WORDS else 9.0 if i == EOS_ID else 0.0
        for i in range(vocabulary.size)
    ]
    model.softmax.table.assign(table)
    return model
