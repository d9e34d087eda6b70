"""With registered hparams sets, a model can be built, takes one training step and decodes a line.

One set of each structure is tested. Models are cut to at most two layers in each stack and eight experts, and widths
of 256 or more are divided by 8. The batch and the vocabulary are small.
TensorFlow runs functions eagerly, because tracing would take most of the time. Eager functions compute the same losses.
"""

from __future__ import annotations

import gc
import math
import re
from collections.abc import Iterator
from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf

from programs import write_pairs
from t2t_repro import registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.description import load_problem
from t2t_repro.data.job import Options
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.data.records import Records, find_shards
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import HParams
from t2t_repro.training.optimizer import adam
from t2t_repro.training.step import TrainStep

pytestmark = pytest.mark.usefixtures("no_graphs")


@pytest.fixture(autouse=True)
def _memory_is_freed() -> Iterator[None]:
    """Collects garbage after each test. Keras models refer to themselves, so nothing else would free their weights."""
    yield
    gc.collect()


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Returns a folder with generated data: numbers in English and German."""
    folder = tmp_path_factory.mktemp("data")
    texts = {
        "train": write_pairs(folder, "train", range(1000, 41000, 100)), "dev": write_pairs(folder, "dev", range(20))
    }  # fmt: skip
    generate_data(registry.problem("text_files", {"vocab_size": 400, **texts}), folder, "", Options(1))
    return str(folder)


WIDTHS = ("hidden_size", "filter_size", "cell_size", "attention_key_channels", "attention_value_channels")


def cut(hparams: HParams) -> HParams:
    """Returns smaller hparams; see the top of this file. ConvS2S keeps a layer of each of two groups."""
    values = {name: value for name, value in vars(hparams).items() if name not in hparams.unused}
    changes = {name: value // 8 for name, value in values.items() if name in WIDTHS and value >= 256}
    changes["num_hidden_layers"] = min(2, hparams.num_hidden_layers)
    if values.get("convolutions"):
        groups = dict.fromkeys(hparams.layers)  # type: ignore[attr-defined]
        changes["convolutions"] = "+".join([f"{layer.width // 8}x{layer.kernel}" for layer in groups][:2])
    if "moe_num_experts" in values:
        changes["moe_num_experts"] = min(8, values["moe_num_experts"])
    return replace(hparams, **changes)


def structure(hparams: HParams) -> tuple:
    """Returns the kinds of layers of a model: strings, booleans, and for each number whether it is not 0."""
    values = {**vars(hparams), "convolutions": bool(getattr(hparams, "convolutions", ""))}
    numbers_of_training = re.compile(".*dropout|label_smoothing|learning_rate_.*|optimizer_.*|train_steps")
    values = {name: value for name, value in values.items() if not numbers_of_training.fullmatch(name)}
    return tuple(value if isinstance(value, bool | str) else bool(value) for value in values.values())


NAMES = list({structure(registry.hparams(name)): name for name in reversed(registry._hparams.names())}.values())
"""One set of each structure."""


@pytest.mark.parametrize("name", NAMES)
def test_a_set_builds_takes_a_step_and_decodes(name: str, data_dir: str) -> None:
    problem, vocabulary, _ = load_problem(data_dir, "text_files")
    hparams = cut(replace(registry.hparams(name), batch_size=120, max_length=60))
    keras.utils.set_random_seed(1)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = registry.model(hparams.model)(hparams, vocabulary.size, problem.target_space_id)
        optimizer = adam(hparams)

    records = Records(find_shards(data_dir, problem.name, "train"), False)
    (batch,) = Pipeline(records, hparams, 1, 4096, 1).batches(0, 1)
    tokens = np.count_nonzero(batch.micro_batches[0][1])
    step = TrainStep(model, optimizer, hparams.label_smoothing, strategy)
    loss = TrainStep.read(step(batch.micro_batches[:1], tokens, (1, 0))).loss
    # An untrained model gives all tokens about the same probability, so its loss is about log(vocabulary size). With
    # pre-norm, the embedding of the token just read reaches the logits, so that this token is too probable.
    highest = 1.7 if hparams.norm_before else 1.4
    assert 0.6 * math.log(vocabulary.size) < loss < highest * math.log(vocabulary.size)
    moments = [variable for variable in optimizer.variables if "momentum" in variable.path]
    assert len(moments) == len(model.trainable_variables)
    assert all(np.any(moment.numpy()) for moment in moments)  # every weight got a gradient

    # The untrained model may never predict the end token, so the output is limited to 3 tokens more than the input.
    search = replace(problem.decode_hparams, beam_size=2, extra_length=3)
    (translation,) = Translator(model, vocabulary, search).translate(["seven"])
    assert math.isfinite(translation.score) and translation.score < 0 and "\n" not in translation.text
