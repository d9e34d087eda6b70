"""Tests that the files for TensorFlow Serving have the right formats, and that files that the user edits stay."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from t2t_repro.bin.t2t_exporter import warmup_lines
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import DecodeHParams
from t2t_repro.serving.server_files import BATCHING, warmup_texts, write_configs, write_description, write_warmup


def warmup_logs(folder: Path) -> list[PredictionLog]:
    path = folder / "assets.extra" / "tf_serving_warmup_requests"
    return [PredictionLog.FromString(record) for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator()]


def test_edited_files_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_configs(tmp_path, "first")
    config = tmp_path / "models.config"
    (model,) = text_format.Parse(config.read_text(), ModelServerConfig()).model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("first", "/models/first", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1
    (tmp_path / "batching_parameters.txt").unlink()
    config.write_bytes(b"# \xfc\nname: 'first'\n")  # Latin-1, and quotation marks that are also allowed
    write_configs(tmp_path, "first")
    assert capsys.readouterr().err == ""
    write_configs(tmp_path, "second")
    assert config.read_bytes() == b"# \xfc\nname: 'first'\n"
    assert f"{config}: kept as it is, but it has no model 'second'" in capsys.readouterr().err
    assert {path.name for path in tmp_path.iterdir()} == {"models.config", "batching_parameters.txt"}


def test_the_description_is_json_even_with_an_infinite_penalty(tmp_path: Path) -> None:
    write_description(
        tmp_path, "M/model.ckpt-1", "float32", DecodeHParams(repeat_ngram_size=2, repeat_ngram_penalty=math.inf)
    )
    text = (tmp_path / "assets.extra" / "export.json").read_text("utf-8")
    assert "Infinity" not in text
    description = json.loads(text)
    assert (description["checkpoint"], description["precision"]) == ("M/model.ckpt-1", "float32")
    params = description["decode_hparams"]
    assert (params["repeat_ngram_size"], params["repeat_ngram_penalty"]) == (2, "inf")


def test_each_signature_has_a_warmup_request_per_text_and_one_with_all(tmp_path: Path) -> None:
    texts = ["a", "Übergröße \u2028", ""]
    write_warmup(tmp_path, texts, "name", ["serving_default", "score"])
    requests = [log.predict_log.request for log in warmup_logs(tmp_path)]
    assert {request.model_spec.name for request in requests} == {"name"}
    contents = [
        (request.model_spec.signature_name, name, [text.decode() for text in tf.make_ndarray(request.inputs[name])])
        for request in requests
        for name in sorted(request.inputs)
    ]
    batches = [[text] for text in texts] + [texts]
    assert contents == [
        *(("serving_default", "inputs", batch) for batch in batches),
        *(("score", name, batch) for batch in batches for name in ("inputs", "targets")),
    ]


def test_a_server_accepts_the_number_and_the_size_of_warmup_requests(tmp_path: Path) -> None:
    file = tmp_path / "texts"
    file.write_text("\n \n" * 200 + "".join(f"text {number}\n" for number in range(2000)))
    texts = warmup_lines(str(file))
    assert (texts[0], texts[-1]) == ("text 0", "text 99")
    write_warmup(tmp_path, texts, "name", ["serving_default", "nbest", "score"])
    logs = warmup_logs(tmp_path)
    assert 300 < len(logs) <= 1000
    (max_batch_size,) = re.findall(r"max_batch_size { value: (\d+) }", BATCHING)
    sizes = [log.predict_log.request.inputs["inputs"].tensor_shape.dim[0].size for log in logs]
    # A server that batches refuses to load a model that has a warm-up request larger than max_batch_size.
    assert 1 < max(sizes) <= int(max_batch_size)


def test_the_default_warmup_texts_have_about_1_8_and_32_subwords(tiny_vocabulary: Vocabulary) -> None:
    lengths = [len(ids) - 1 for ids in tiny_vocabulary.encode(warmup_texts(tiny_vocabulary))]
    assert lengths == pytest.approx([1, 8, 32], abs=1)  # inexact, because the tokenizer may join neighboring subwords
