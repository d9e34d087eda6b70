"""The exported model as servers load it: without our code, and without Python; and what lies beside it."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
import tensorflow as tf
from google.protobuf import text_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis.prediction_log_pb2 import PredictionLog
from tensorflow_serving.config.model_server_config_pb2 import ModelServerConfig

from programs import Road, here
from t2t_repro.decoding import Translator

SHORT = "extra_length=5"
TIE = 1e-5
"""Two outputs whose scores differ by less may change places with the order of a sum."""
TEXT_OPERATIONS = {
    "SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceTokenizeWithOffsetsOp", "SentencepieceDetokenizeOp",
    "SentencepieceVocabSizeOp", "SentencepieceIdToStringOp", "SentencepieceStringToIdOp",
}  # fmt: skip
"""What tensorflow-text 2.20, which TensorFlow Serving links, has for SentencePiece (core/ops/sentencepiece_ops.cc)."""

SERVER = """
import json, sys, tensorflow as tf
from tensorflow.python.framework import op_def_registry
request = json.load(sys.stdin)
unknown = [name for name in request["operations"] if op_def_registry.get(name) is None]
import tensorflow_text
signatures = tf.saved_model.load(request["saved_model"]).signatures
replies = []
for name, inputs in request["requests"]:
    reply = signatures[name](**{key: tf.constant(texts) for key, texts in inputs.items()})
    replies.append({key: value.numpy().tolist() for key, value in reply.items()})
assert not [name for name in sys.modules if name.startswith("t2t_repro")]
json.dump([unknown, replies], sys.stdout, default=bytes.decode)
"""


@dataclass(frozen=True)
class Served:
    """An exported model, and what a process without our code makes of it."""

    path: Path
    """The SavedModel."""
    graph: Any
    """Its MetaGraphDef."""
    warmup: list[PredictionLog]
    """Its requests to warm up with."""
    unknown: list[str]
    """Operations of the graph that TensorFlow has not."""
    lines: list[tuple[str, float]]
    """Translations and scores of the captions."""
    warmed: list[dict[str, Any]]
    """Answers to the requests."""


def in_process(script: Sequence[str], request: Any) -> Any:
    """What a Python process answers to JSON; it has none of our folders on its path."""
    done = subprocess.run([sys.executable, "-P", *script], input=json.dumps(request), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def texts(captions: Road) -> list[list[str]]:
    """A thousand captions, a hundred in each batch."""
    lines = (captions.text / "val.en").read_text("utf-8").split("\n")[:1000]
    return [lines[start : start + 100] for start in range(0, 1000, 100)]


@pytest.fixture(scope="module")
def expected(captions: Road, tmp_path_factory: pytest.TempPathFactory) -> list[tuple[str, float]]:
    """What t2t-decoder says of these."""
    output = tmp_path_factory.mktemp("decoded") / "val.de"
    status = here(
        "decoder", f"--output_dir={captions.model}", f"--decode_from_file={captions.text / 'val.en'}",
        f"--decode_to_file={output}", f"--decode_hparams={SHORT},write_beam_scores=true",
    )  # fmt: skip
    assert status == 0
    rows = [line.split("\t") for line in output.read_text("utf-8").split("\n")[:1000]]
    assert len({text for text, _, _ in rows}) > 100
    return [(text, float(score)) for text, score, _ in rows]


@pytest.fixture(scope="module")
def served(captions: Road, texts: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> Served:
    export_dir = tmp_path_factory.mktemp("served")
    status = here(
        "exporter", f"--output_dir={captions.model}", f"--export_dir={export_dir}", f"--decode_hparams={SHORT}",
        "--servable_name=captions",
    )  # fmt: skip
    assert status == 0
    path = export_dir / "1"
    (graph,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    records = tf.data.TFRecordDataset(str(path / "assets.extra" / "tf_serving_warmup_requests"))
    warmup = [PredictionLog.FromString(record) for record in records.as_numpy_iterator()]
    requests = [("serving_default", {"inputs": batch}) for batch in texts]
    for log in warmup:
        given = log.predict_log.request.inputs.items()
        inputs = {name: [text.decode() for text in tf.make_ndarray(tensor)] for name, tensor in given}
        requests.append((log.predict_log.request.model_spec.signature_name, inputs))
    request = {"saved_model": str(path), "operations": sorted(operations(graph)), "requests": requests}
    unknown, replies = in_process(["-c", SERVER], request)
    lines = [pair for reply in replies[: len(texts)] for pair in zip(reply["outputs"], reply["scores"], strict=True)]
    return Served(path, graph, warmup, unknown, lines, replies[len(texts) :])


def operations(graph: Any) -> set[str]:
    """All that a graph and its functions need."""
    functions = graph.graph_def.library.function
    nodes = [*graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    return {node.op for node in nodes} - {function.signature.name for function in functions}


def assert_same(found: Iterable[tuple[str, float]], expected: Iterable[tuple[str, float]]) -> None:
    different = []
    for (text, score), (wanted, wanted_score) in zip(found, expected, strict=True):
        assert score == pytest.approx(wanted_score, abs=1e-4)
        if text != wanted:
            different.append(abs(score - wanted_score))
    assert len(different) <= 2 and max(different, default=0.0) < TIE  # where two outputs score alike


def test_a_process_without_our_code_gives_what_the_decoder_gives(
    served: Served, expected: list[tuple[str, float]]
) -> None:
    assert_same(served.lines, expected)


def test_tensorflows_c_api_gives_what_the_decoder_gives(
    served: Served, texts: list[list[str]], expected: list[tuple[str, float]]
) -> None:
    signature = served.graph.signature_def["serving_default"]
    script = Path(__file__).parents[1] / "helpers" / "c_api.py"
    request = {
        "saved_model": str(served.path),
        "input": signature.inputs["inputs"].name,
        "outputs": [signature.outputs[name].name for name in ("outputs", "scores")],
        "batches": [*texts, [], ["", texts[0][0]]],
    }
    *replies, nothing, (outputs, scores) = in_process([str(script)], request)
    assert_same([pair for reply in replies for pair in zip(*reply, strict=True)], expected)
    assert nothing == [[], []]
    assert outputs[0] == "" and scores[0] == 0
    assert_same([(outputs[1], scores[1])], expected[:1])


def test_all_operations_are_tensorflows_or_of_the_sentencepiece_that_servers_link(served: Served) -> None:
    assert {"While", "SentencepieceTokenizeOp"} <= operations(served.graph)
    assert set(served.unknown) <= TEXT_OPERATIONS
    assert not [name for name in operations(served.graph) if "PyFunc" in name]  # these call back into Python


def test_the_graph_says_what_its_signatures_take_and_give(served: Served) -> None:
    def shapes(tensors: Any) -> dict[str, tuple[str, list[int]]]:
        return {
            name: (tf.as_dtype(tensor.dtype).name, [dimension.size for dimension in tensor.tensor_shape.dim])
            for name, tensor in tensors.items()
        }

    found = {
        name: (shapes(each.inputs), shapes(each.outputs))
        for name, each in served.graph.signature_def.items()
        if each.method_name == "tensorflow/serving/predict"
    }
    strings, scores = ("string", [-1]), ("float32", [-1])
    assert found == {
        "serving_default": ({"inputs": strings}, {"outputs": strings, "scores": scores}),
        "nbest": ({"inputs": strings}, {"outputs": ("string", [-1, 4]), "scores": ("float32", [-1, 4])}),
        "tokens": ({"inputs": ("int32", [-1, -1])}, {"outputs": ("int32", [-1, -1]), "scores": scores}),
        "score": (
            {"inputs": strings, "targets": strings},
            {"log_probs": scores, "lengths": ("int32", [-1])},
        ),
    }


def test_a_server_can_warm_up(served: Served) -> None:
    assert len(served.warmup) == len(served.warmed) == 3 * 4
    seen = set()
    for log, reply in zip(served.warmup, served.warmed, strict=True):
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        name = request.model_spec.signature_name
        seen.add(name)
        assert request.model_spec.name == "captions"
        assert set(request.inputs) == set(served.graph.signature_def[name].inputs)
        (count,) = {tensor.tensor_shape.dim[0].size for tensor in request.inputs.values()}
        values = reply["log_probs" if name == "score" else "scores"]
        assert len(values) == count
        best = [row[0] for row in values] if name == "nbest" else values
        assert all(math.isfinite(value) and value < 0 for value in best)
    assert seen == {"serving_default", "nbest", "score"}


@pytest.mark.parametrize("beam_size", [1, 4])
def test_ctranslate2_translates_as_we_do(
    captions: Road, texts: list[list[str]], tmp_path: Path, beam_size: int
) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    lines = [line for batch in texts[:4] for line in batch]
    flags = [f"--output_dir={captions.model}", f"--export_dir={tmp_path}", "--format=ctranslate2"]
    assert here("exporter", *flags) == 0
    translator = ctranslate2.Translator(str(tmp_path / "1"), intra_threads=1)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "1" / "sentencepiece.model"))
    pieces = tokenizer.encode(lines, out_type=str)
    found: dict[int, str] = {}
    for length in {len(each) for each in pieces}:  # each has its own limit
        numbers = [number for number, each in enumerate(pieces) if len(each) == length]
        results = translator.translate_batch(
            [pieces[number] for number in numbers], beam_size=beam_size, length_penalty=0, max_batch_size=2000,
            batch_type="tokens", max_decoding_length=length + 1 + 5,
        )  # fmt: skip
        found |= {number: tokenizer.decode(each.hypotheses[0]) for number, each in zip(numbers, results, strict=True)}
    ours = Translator.from_dir(str(captions.model), beam_size=beam_size, alpha=0.0, extra_length=5).translate(lines)
    equal = sum(found[number] == each.text for number, each in enumerate(ours))
    assert equal >= 0.99 * len(lines) == 396


def test_the_example_of_models_config_names_the_model(served: Served) -> None:
    config = text_format.Parse((served.path.parent / "models.config").read_text(), ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("captions", "/models/captions", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--quantization=int8"], ("--quantization", "saved_model")),
        (["--format=ctranslate2", "--decode_hparams=beam_size=2"], ("--decode_hparams", "ctranslate2")),
        (["--format=ctranslate2", "--servable_name=x"], ("--servable_name", "ctranslate2")),
        (["--format=ctranslate2", "--warmup_from_file=x"], ("--warmup_from_file", "ctranslate2")),
        (["--decode_hparams=return_beams=true"], ("return_beams", "nbest")),
        (["--decode_hparams=sampling_method=random"], ("sampling_method", "searches")),
        (["--decode_hparams=write_beam_scores=true"], ("write_beam_scores",)),
        (["--decode_hparams=prefix_file=x"], ("prefix_file",)),
        (["--decode_hparams=batch_size=3"], ("batch_size=3",)),
        (["--decode_hparams=n=5"], ("n=5", "beam_size=4")),
        (["--decode_hparams=beam_size=5000"], ("beam_size=5000", "vocabulary")),
        (["--warmup_from_file=/nowhere"], ("/nowhere", "no such file")),
    ],
)
def test_what_does_not_fit_together_is_refused(
    captions: Road, capfd: pytest.CaptureFixture[str], flags: list[str], words: tuple[str, ...]
) -> None:
    assert here("exporter", f"--output_dir={captions.model}", *flags) == 2
    line = capfd.readouterr().err.splitlines()[-1]
    assert line.startswith("t2t-exporter: ")
    for word in words:
        assert word in line
    assert not (captions.model / "export").exists()
