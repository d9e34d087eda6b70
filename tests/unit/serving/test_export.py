"""A SavedModel gives what the translator gives, without our code."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from pathlib import Path

import keras
import pytest

from disks import largest_file
from models import Copier
from t2t_repro.data.vocabulary import Vocabulary
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams, HParams
from t2t_repro.models.transformer import Transformer
from t2t_repro.serving.export import export

BATCHES = [["the dog", "", "a cat sat on the dog", " \t", "Ω 漢", "\n"], ["cat"], ["", " "], []]
ECHOED = ["a\ncat", "the dog", "", "a\r\u2028b"]

SERVER = """
import json, sys, tensorflow as tf, tensorflow_text
replies = []
for path, batches in json.load(sys.stdin):
    signature = tf.saved_model.load(path).signatures["serving_default"]
    for batch in batches:
        reply = signature(inputs=tf.constant(batch, tf.string, shape=[len(batch)]))
        replies.append([[text.decode() for text in reply["outputs"].numpy()], reply["scores"].numpy().tolist()])
assert not [name for name in sys.modules if name.startswith("t2t_repro")]
json.dump(replies, sys.stdout)
"""


@pytest.fixture(scope="module", params=[0, 2], ids=["all positions", "neighborhood"])
def translator(request: pytest.FixtureRequest, tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> Translator:
    keras.utils.set_random_seed(1)
    hparams = dataclasses.replace(tiny_hparams, self_attention_neighborhood=request.param)
    model = Transformer(hparams, tiny_vocabulary.size)
    return Translator(model, tiny_vocabulary, DecodeHParams(beam_size=2, extra_length=3))


@pytest.fixture(scope="module")
def echo(tiny_vocabulary: Vocabulary) -> Translator:
    """Quick to export."""
    return Translator(Copier(tiny_vocabulary.size), tiny_vocabulary, DecodeHParams(beam_size=1))


def test_served_texts_and_scores_are_the_translators(translator: Translator, echo: Translator, tmp_path: Path) -> None:
    paths = [str(export(each, tmp_path / name)) for each, name in ((translator, "model"), (echo, "echo"))]
    request = json.dumps([[paths[0], BATCHES], [paths[1], [ECHOED]]])
    done = subprocess.run([sys.executable, "-P", "-c", SERVER], input=request, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    *replies, [echoed, _] = json.loads(done.stdout)
    for batch, (outputs, scores) in zip(BATCHES, replies, strict=True):
        expected = translator.translate(batch)
        assert outputs == [translation.text for translation in expected]
        assert scores == pytest.approx([translation.score for translation in expected], rel=1e-4)
    assert echoed == [translation.text for translation in echo.translate(ECHOED)] == ["a cat", *ECHOED[1:]]


def test_versions_count_up(echo: Translator, tmp_path: Path) -> None:
    export_dir = tmp_path / "new" / "export"
    assert [export(echo, export_dir).name for _ in range(2)] == ["1", "2"]
    for name in ("10", "notes"):
        (export_dir / name).mkdir()
    path = export(echo, export_dir)
    assert path == export_dir / "11"
    assert path.stat().st_mode & 0o777 == 0o755
    assert {entry.name for entry in export_dir.iterdir()} == {"1", "2", "10", "11", "notes"}
    assert (path / "saved_model.pb").is_file()


def test_a_full_disk_leaves_nothing_behind(echo: Translator, tmp_path: Path) -> None:
    export(echo, tmp_path)
    with largest_file(4096), pytest.raises(UserError, match="cannot be written") as error:
        export(echo, tmp_path)
    assert "\n" not in str(error.value)
    assert [entry.name for entry in tmp_path.iterdir()] == ["1"]
    assert export(echo, tmp_path).name == "2"


def test_a_place_that_cannot_be_written(echo: Translator, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(UserError, match="cannot be written"):
            export(echo, place)
