"""Tests that the files for TensorFlow Serving have the right formats, and that files that the user
edits stay.
"""

import json
import math
import re
from pathlib import Path

import pytest
import tensorflow as tf
from google.protobuf import text_format
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from t2t_repro.bin.t2t_exporter import read_texts
from t2t_repro.data.vocabularies.tensor2tensor import TokenVocabulary
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.hparam import DecodeHParams
from t2t_repro.serving.server_files import (
    BATCHING,
    warmup_texts,
    write_configs,
    write_description,
    write_warmup,
)


def test_edited_files_stay(tmp_path: Path) -> None:
    write_configs(tmp_path, "first")
    config = tmp_path / "models.config"
    (model,) = text_format.Parse(config.read_text(), ModelServerConfig()).model_config_list.config
    assert (model.name, model.base_path) == ("first", "/models/first")
    assert model.model_platform == "tensorflow"
    assert model.model_version_policy.latest.num_versions == 1
    config.write_text("mine")
    batching = tmp_path / "batching_parameters.txt"
    batching.unlink()
    write_configs(tmp_path, "second")
    assert config.read_text() == "mine" and batching.read_text() == BATCHING


def test_the_description_is_json_even_with_an_infinite_penalty(tmp_path: Path) -> None:
    params = DecodeHParams(repeat_ngram_size=2, repeat_ngram_penalty=math.inf)
    write_description(tmp_path, "M/x", "float32", params)
    text = (tmp_path / "assets.extra" / "export.json").read_text("utf-8")
    assert "Infinity" not in text
    description = json.loads(text)
    assert (description["checkpoint"], description["precision"]) == ("M/x", "float32")
    params = description["decode_hparams"]
    assert (params["repeat_ngram_size"], params["repeat_ngram_penalty"]) == (2, "inf")


def test_each_signature_has_a_warmup_request_per_text_and_one_with_the_first(
    tmp_path: Path,
) -> None:
    """A server reads at most 1,000 requests, and refuses a model with one larger than
    max_batch_size.
    """
    (tmp_path / "file").write_text(
        "\n \n" * 200 + "".join(f"Größe \u2028 {number}\n" for number in range(2000))
    )
    texts = read_texts(str(tmp_path / "file"))
    assert texts == [f"Größe \u2028 {number}" for number in range(100)]
    write_warmup(tmp_path, texts, "name", ["serving_default", "nbest", "score"])
    path = tmp_path / "assets.extra" / "tf_serving_warmup_requests"
    contents = []
    for record in tf.data.TFRecordDataset(str(path)).as_numpy_iterator():
        request = PredictionLog.FromString(record).predict_log.request
        assert request.model_spec.name == "name"
        inputs = {
            name: [text.decode() for text in tf.make_ndarray(proto)]
            for name, proto in request.inputs.items()
        }
        contents.append((request.model_spec.signature_name, inputs))
    (max_batch_size,) = re.findall(r"max_batch_size { value: (\d+) }", BATCHING)
    assert int(max_batch_size) >= 32
    batches = [[text] for text in texts] + [texts[:32]]
    assert contents == [
        *((name, {"inputs": batch}) for name in ("serving_default", "nbest") for batch in batches),
        *(("score", {"inputs": batch, "targets": batch}) for batch in batches),
    ]


def test_a_model_of_several_languages_warms_up_with_one_of_them(tmp_path: Path) -> None:
    write_warmup(tmp_path, ["a", "b"], "name", ["nbest"], "de")
    records = tf.data.TFRecordDataset(str(tmp_path / "assets.extra" / "tf_serving_warmup_requests"))
    requests = [
        PredictionLog.FromString(record).predict_log.request
        for record in records.as_numpy_iterator()
    ]
    columns = [tf.make_ndarray(request.inputs["target_language"]).tolist() for request in requests]
    assert columns == [[b"de"], [b"de"], [b"de", b"de"]]
    vocabulary = TokenVocabulary(b"<pad>\n<EOS>\n<unk>\na\nb\n>>de<<\n>>fr<<\n")
    assert not any(">>" in text for text in warmup_texts(vocabulary))


def test_the_default_warmup_texts_have_about_1_8_and_32_subwords(
    tiny_vocabulary: Vocabulary,
) -> None:
    lengths = [len(ids) - 1 for ids in tiny_vocabulary.encode(warmup_texts(tiny_vocabulary))]
    # Inexact, because the tokenizer may join neighboring subwords.
    assert lengths == pytest.approx([1, 8, 32], abs=1)
