"""Every hparams set at its full size: it builds, takes three steps on real text, and decodes a line.

Batches are of a few sentences and the vocabularies small; the sizes of the layers are the sets' own. Functions run as
they are written, not as graphs, whose making would take longer than all else; the losses are the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from t2t_repro import registry
from t2t_repro.data.datagen import generate_data
from t2t_repro.data.description import load_problem
from t2t_repro.data.pipeline import Pipeline
from t2t_repro.data.records import Records, find_shards
from t2t_repro.decoding.translator import Translator
from t2t_repro.models import size
from t2t_repro.textfile import read_lines
from t2t_repro.training.schedule import Schedule
from t2t_repro.training.step import TrainStep, adam

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data"
STEPS = 3
LINES = {"text_files": "Two dogs run .", "wsj_parsing": "The dog barks ."}

pytestmark = pytest.mark.skipif(not SHARED.exists(), reason="../shared/data is not there")


@pytest.fixture(scope="module", autouse=True)
def _no_graphs() -> Iterator[None]:
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Some hundred captions and their translations, and some hundred parsed sentences."""
    folder = tmp_path_factory.mktemp("data")
    settings: dict[str, object] = {"vocab_size": 1000}
    for split, name, count in (("train", "train", 400), ("dev", "val", 20)):
        for language in ("en", "de"):
            lines = list(read_lines(str(SHARED / "multi30k" / f"{name}.{language}.gz")))[:count]
            (folder / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
        settings[split] = f"{folder / split}.en,{folder / split}.de"
    generate_data(registry.problem("text_files", settings), folder, "", processes=1)
    sections = {"train_sections": "0001-0029", "dev_sections": "0030-0031", "test_sections": "0032"}
    parsing = registry.problem("wsj_parsing", sections | {"vocab_size": 1000})
    generate_data(parsing, folder, str(SHARED / "ptb_sample"), processes=1)
    return str(folder)


@pytest.mark.parametrize("name", registry._hparams.names())
def test_a_set_builds_trains_and_decodes(name: str, data_dir: str) -> None:
    problem, vocabulary, _ = load_problem(data_dir, "wsj_parsing" if "parsing" in name else "text_files")
    hparams = replace(registry.hparams(name), batch_size=120, max_length=60)
    records = Records(find_shards(data_dir, problem.name, "train"), False)
    pipeline = Pipeline(records, hparams, 1, 4096, 1)
    keras.utils.set_random_seed(1)
    strategy = tf.distribute.OneDeviceStrategy("/cpu:0")
    with strategy.scope():
        model = registry.model(hparams.model)(hparams, vocabulary.size, problem.target_space_id)
        optimizer = adam(hparams)
    step = TrainStep(model, optimizer, hparams.label_smoothing, strategy)
    assert sum(math.prod(each.shape) for each in model.trainable_variables) == size.parameters(hparams, vocabulary.size)

    losses = []
    for batch in pipeline.batches(0, STEPS):
        micro_batch = batch.micro_batches[0]  # the other one would take as long and show nothing else
        losses.append(TrainStep.read(step([micro_batch], np.count_nonzero(micro_batch[1]), (1, batch.step))).loss)
    # To a model that has learned nothing all tokens are about as likely; the entropy of smoothing is not counted.
    assert len(losses) == STEPS
    assert losses == pytest.approx(STEPS * [losses[0]], rel=0.2)
    assert 0.6 * math.log(vocabulary.size) < losses[0] < 1.4 * math.log(vocabulary.size)
    assert int(optimizer.iterations.numpy()) == STEPS
    assert float(optimizer.learning_rate) == pytest.approx(float(Schedule(hparams)(STEPS)))
    moments = [each for each in optimizer.variables if "momentum" in each.path]
    assert len(moments) == len(model.trainable_variables)
    assert [each.path for each in moments if not np.any(each.numpy())] == []  # each weight has had a gradient

    # The problem's search, but for the length: nothing has taught the model yet to come to an end.
    search = replace(problem.decode_hparams, extra_length=3)
    line = LINES[problem.name]
    (translation,) = Translator(model, vocabulary, search).translate([line])
    assert math.isfinite(translation.score) and translation.score < 0
    (ids,) = vocabulary.encode([line])
    assert "\n" not in translation.text and len(translation.text.split()) <= len(ids) + 3
    ((output,), _) = problem.finish([line], [translation.text])
    if problem.name == "wsj_parsing":
        assert output.startswith("(TOP (") and [word for word in line.split() if f" {word})" in output] == line.split()
