"""Servers can run an exported model without this project's code and without Python."""

import json
import subprocess
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog

from programs import TrainedModel, refused, run, succeed, without_extras
from serving import serve
from t2t_repro.decoding import Translator

TIE = 1e-5
"""Score difference below which rounding errors may decide which of two hypotheses is better."""
TEXT_OPERATIONS = {
    "SentencepieceOp",
    "SentencepieceTokenizeOp",
    "SentencepieceTokenizeWithOffsetsOp",
    "SentencepieceDetokenizeOp",
    "SentencepieceVocabSizeOp",
    "SentencepieceIdToStringOp",
    "SentencepieceStringToIdOp",
}
"""The SentencePiece operations of tensorflow-text 2.20, which TensorFlow Serving contains."""

SERVER = """
import json, sys, tensorflow as tf
from tensorflow.python.framework import op_def_registry
request = json.load(sys.stdin)
unknown = [name for name in request["operations"] if op_def_registry.get(name) is None]
import tensorflow_text
signatures = tf.saved_model.load(request["path"]).signatures
replies = []
for name, inputs in request["requests"]:
    reply = signatures[name](**{key: tf.constant(texts) for key, texts in inputs.items()})
    replies.append({key: value.numpy().tolist() for key, value in reply.items()})
with tf.compat.v1.Session(graph=tf.Graph()) as session:
    signature = tf.compat.v1.saved_model.load(session, ["serve"], request["path"]).signature_def["serving_default"]
    outputs = {key: tensor.name for key, tensor in signature.outputs.items()}
    reply = session.run(outputs, {signature.inputs["inputs"].name: request["requests"][0][1]["inputs"]})
    replies.append({key: value.tolist() for key, value in reply.items()})
assert not [name for name in sys.modules if name.startswith("t2t_repro")]
json.dump([unknown, replies], sys.stdout, default=bytes.decode)
"""  # noqa: E501
"""Reads a JSON object with the path of a SavedModel, names of operations, and requests as
(signature, inputs).

It writes those operations that TensorFlow lacks without tensorflow-text, and the answers to the
requests. The last answer is the first one again, after the model was loaded as C, C++, Go or Rust
load it: as a graph in a session.
"""


@dataclass(frozen=True)
class Export:
    """An exported model, and the answers of a process that served it without this project's
    code.
    """

    path: Path
    """Folder of the SavedModel."""
    graph: Any
    """The MetaGraphDef of the SavedModel."""
    warmup: list[PredictionLog]
    """The warm-up requests in the SavedModel's folder."""
    unknown: list[str]
    """Names of the graph's operations that TensorFlow lacks before tensorflow-text is imported."""
    replies: list[dict[str, Any]]
    """The answers to the test lines, to the warm-up requests, and in a session to the test lines.
    """


@pytest.fixture(scope="module")
def lines(trained: TrainedModel) -> list[str]:
    return (trained.text / "test.en").read_text("utf-8").split("\n")[:120]


@pytest.fixture(scope="module")
def expected(trained: TrainedModel, lines: list[str]) -> list[tuple[str, float]]:
    """Returns the translator's translations of the test lines as (text, score)."""
    translations = Translator.from_dir(str(trained.folder), extra_length=5).translate(lines)
    assert len({translation.text for translation in translations}) > 25
    return [(translation.text, translation.score) for translation in translations]


@pytest.fixture(scope="module")
def exported(
    trained: TrainedModel, lines: list[str], tmp_path_factory: pytest.TempPathFactory
) -> Export:
    folder = tmp_path_factory.mktemp("served")
    flags = [f"--export_dir={folder}", "--decode_hparams=extra_length=5", "--servable_name=numbers"]
    with without_extras():
        succeed("exporter", f"--output_dir={trained.folder}", *flags)
    assert 'name: "numbers"' in (folder / "models.config").read_text()
    path = folder / "1"
    (graph,) = saved_model_pb2.SavedModel.FromString(
        (path / "saved_model.pb").read_bytes()
    ).meta_graphs
    records = tf.data.TFRecordDataset(str(path / "assets.extra" / "tf_serving_warmup_requests"))
    warmup = [PredictionLog.FromString(record) for record in records.as_numpy_iterator()]
    requests = [("serving_default", {"inputs": lines})]
    for log in warmup:
        request = log.predict_log.request
        tensors = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        inputs = {name: [text.decode() for text in array] for name, array in tensors.items()}
        requests.append((request.model_spec.signature_name, inputs))
    job = json.dumps(
        {"path": str(path), "operations": sorted(operations(graph)), "requests": requests}
    )
    # The option -P keeps Python from importing modules of the current folder.
    process = subprocess.run(
        [sys.executable, "-P", "-c", SERVER], input=job, capture_output=True, text=True
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return Export(path, graph, warmup, *json.loads(process.stdout))


def operations(graph: Any) -> set[str]:
    """Returns the names of all operations in a graph and in the graph's functions."""
    functions = graph.graph_def.library.function
    nodes = [*graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    return {node.op for node in nodes} - {function.signature.name for function in functions}


def assert_same(
    translations: Iterable[tuple[str, float]], expected: Iterable[tuple[str, float]]
) -> None:
    differences = []
    for (text, score), (expected_text, expected_score) in zip(translations, expected, strict=True):
        assert score == pytest.approx(expected_score, abs=1e-4)
        if text != expected_text:
            differences.append(abs(score - expected_score))
    assert len(differences) <= 2 and max(differences, default=0.0) < TIE


def test_a_process_without_our_code_translates_as_the_translator(
    exported: Export, expected: list[tuple[str, float]]
) -> None:
    for reply in (exported.replies[0], exported.replies[-1]):
        assert_same(zip(reply["outputs"], reply["scores"], strict=True), expected)


def test_the_client_translates_as_the_translator(
    exported: Export, lines: list[str], expected: list[tuple[str, float]]
) -> None:
    """With n-best lists, whose first output and score are the best translation's."""
    text = "".join(f"{line}\n" for line in ["", *lines[:20]])
    with serve({"numbers": {1: tf.saved_model.load(str(exported.path)).signatures}}) as served:
        for server in ([f"--server={served.grpc}"], [f"--server={served.rest}", "--rest"]):
            flags = [*server, "--servable_name=numbers", "--signature_name=nbest", "--batch_size=7"]
            answers = succeed("query-server", *flags, "--timeout_secs=60", input=text).stdout.split(
                "\n"
            )
            assert answers[0] == answers[-1] == ""
            rows = [answer.split("\t") for answer in answers[1:-1]]
            assert {len(row) for row in rows} == {2 * 4}
            assert_same([(row[0], float(row[1])) for row in rows], expected[:20])


def test_all_operations_are_in_tensorflow_or_in_the_sentencepiece_that_servers_link(
    exported: Export,
) -> None:
    assert {"While", "SentencepieceTokenizeOp"} <= operations(exported.graph)
    assert set(exported.unknown) <= TEXT_OPERATIONS
    # Such operations call Python.
    assert not [name for name in operations(exported.graph) if "PyFunc" in name]


def test_a_server_can_warm_up(exported: Export) -> None:
    assert len(exported.warmup) == 3 * 4
    for log, reply in zip(exported.warmup, exported.replies[1:-1], strict=True):
        request = log.predict_log.request
        name = request.model_spec.signature_name
        assert request.model_spec.name == "numbers"
        (count,) = {tensor.tensor_shape.dim[0].size for tensor in request.inputs.values()}
        scores = np.array(reply["log_probs" if name == "score" else "scores"])
        best = scores[:, 0] if name == "nbest" else scores
        assert best.shape == (count,) and np.isfinite(best).all() and best.max() < 0


def test_ctranslate2_translates_almost_the_same(
    trained: TrainedModel, lines: list[str], expected: list[tuple[str, float]], tmp_path: Path
) -> None:
    """CTranslate2 stops a beam search early, so it may miss the best translation."""
    ctranslate2 = pytest.importorskip(
        "ctranslate2", reason="the extra ctranslate2 is not installed"
    )
    succeed(
        "exporter",
        f"--output_dir={trained.folder}",
        f"--export_dir={tmp_path}",
        "--format=ctranslate2",
    )
    translator = ctranslate2.Translator(str(tmp_path / "1"), intra_threads=1)
    tokenizer = sentencepiece.SentencePieceProcessor(
        model_file=str(tmp_path / "1" / "sentencepiece.model")
    )
    same = 0
    for line, (text, _) in zip(lines[:100], expected, strict=False):
        pieces = tokenizer.encode(line, out_type=str)
        options = {
            "beam_size": 4,
            "length_penalty": 0.6,
            "max_decoding_length": len(pieces) + 1 + 5,
        }
        same += (
            tokenizer.decode(translator.translate_batch([pieces], **options)[0].hypotheses[0])
            == text
        )
    assert same > 50


def test_a_random_search_is_not_served(trained: TrainedModel) -> None:
    result = run(
        "exporter", f"--output_dir={trained.folder}", "--decode_hparams=sampling_method=random"
    )
    refused(result, "sampling_method", "beam search")
    assert not (trained.folder / "export").exists()
