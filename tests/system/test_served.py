"""Servers can run an exported model without this project's code and without Python, and read the files next to it."""

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

from programs import TrainedModel, refused, run, succeed
from t2t_repro.decoding import Translator
from t2t_repro.serving.versions import CTRANSLATE2, SAVED_MODEL

SHORT = "extra_length=5"
TIE = 1e-5
"""Score difference below which rounding errors may decide which of two hypotheses is better."""
TEXT_OPERATIONS = {
    "SentencepieceOp", "SentencepieceTokenizeOp", "SentencepieceTokenizeWithOffsetsOp", "SentencepieceDetokenizeOp",
    "SentencepieceVocabSizeOp", "SentencepieceIdToStringOp", "SentencepieceStringToIdOp",
}  # fmt: skip
"""The SentencePiece operations of tensorflow-text 2.20, which TensorFlow Serving contains."""

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
    """An exported model, and the answers of a process that served it without this project's code."""

    path: Path
    """Folder of the SavedModel."""
    graph: Any
    """The MetaGraphDef of the SavedModel."""
    warmup: list[PredictionLog]
    """The warm-up requests in the SavedModel's folder."""
    unknown: list[str]
    """Names of the graph's operations that TensorFlow lacks before tensorflow-text is imported."""
    translations: list[tuple[str, float]]
    """The model's translations of the test lines as (text, score)."""
    warmup_replies: list[dict[str, Any]]


def ask_process(script: Sequence[str], request: Any) -> Any:
    """Starts a Python process with these arguments, sends it a JSON request and returns its JSON answer.

    The option -P keeps Python from importing modules of the current folder or of the script's folder.
    """
    process = subprocess.run([sys.executable, "-P", *script], input=json.dumps(request), capture_output=True, text=True)
    assert process.returncode == 0, process.stderr[-3000:]
    return json.loads(process.stdout)


@pytest.fixture(scope="module")
def batches(trained: TrainedModel) -> list[list[str]]:
    """Returns the 400 test lines in batches of 100."""
    lines = (trained.text / "test.en").read_text("utf-8").split("\n")[:-1]
    return [lines[start : start + 100] for start in range(0, len(lines), 100)]


@pytest.fixture(scope="module")
def expected(trained: TrainedModel) -> list[tuple[str, float]]:
    """Returns t2t-decoder's translations of the test lines as (text, score)."""
    result = succeed(
        "decoder", f"--output_dir={trained.folder}", f"--decode_from_file={trained.text / 'test.en'}",
        f"--decode_hparams={SHORT},write_beam_scores=true",
    )  # fmt: skip
    rows = [line.split("\t") for line in result.stdout.split("\n")[:-1]]
    assert len({text for text, _, _ in rows}) > 50
    return [(text, float(score)) for text, score, _ in rows]


@pytest.fixture(scope="module")
def served(trained: TrainedModel, batches: list[list[str]], tmp_path_factory: pytest.TempPathFactory) -> Served:
    export_dir = tmp_path_factory.mktemp("served")
    succeed(
        "exporter", f"--output_dir={trained.folder}", f"--export_dir={export_dir}", f"--decode_hparams={SHORT}",
        "--servable_name=numbers",
    )  # fmt: skip
    path = export_dir / "1"
    (graph,) = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes()).meta_graphs
    records = tf.data.TFRecordDataset(str(path / "assets.extra" / "tf_serving_warmup_requests"))
    warmup = [PredictionLog.FromString(record) for record in records.as_numpy_iterator()]
    requests = [("serving_default", {"inputs": batch}) for batch in batches]
    for log in warmup:
        request = log.predict_log.request
        tensors = {name: tf.make_ndarray(tensor) for name, tensor in request.inputs.items()}
        inputs = {name: [text.decode() for text in array] for name, array in tensors.items()}
        requests.append((request.model_spec.signature_name, inputs))
    job = {"saved_model": str(path), "operations": sorted(operations(graph)), "requests": requests}
    unknown, replies = ask_process(["-c", SERVER], job)
    translations = [
        pair for reply in replies[: len(batches)] for pair in zip(reply["outputs"], reply["scores"], strict=True)
    ]
    return Served(path, graph, warmup, unknown, translations, replies[len(batches) :])


def operations(graph: Any) -> set[str]:
    """Returns the names of all operations in a graph and in the graph's functions."""
    functions = graph.graph_def.library.function
    nodes = [*graph.graph_def.node, *(node for function in functions for node in function.node_def)]
    return {node.op for node in nodes} - {function.signature.name for function in functions}


def assert_same(translations: Iterable[tuple[str, float]], expected: Iterable[tuple[str, float]]) -> None:
    differences = []
    for (text, score), (expected_text, expected_score) in zip(translations, expected, strict=True):
        assert score == pytest.approx(expected_score, abs=1e-4)
        if text != expected_text:
            differences.append(abs(score - expected_score))
    assert len(differences) <= 2 and max(differences, default=0.0) < TIE


def test_a_process_without_our_code_translates_as_the_decoder(
    served: Served, expected: list[tuple[str, float]]
) -> None:
    assert_same(served.translations, expected)


def test_tensorflows_c_api_translates_as_the_decoder(
    served: Served, batches: list[list[str]], expected: list[tuple[str, float]]
) -> None:
    signature = served.graph.signature_def["serving_default"]
    script = Path(__file__).parents[1] / "helpers" / "c_api.py"
    request = {
        "saved_model": str(served.path),
        "input": signature.inputs["inputs"].name,
        "outputs": [signature.outputs[name].name for name in ("outputs", "scores")],
        "batches": [*batches, [], ["", batches[0][0]]],
    }
    *replies, empty_batch, (outputs, scores) = ask_process([str(script)], request)
    assert_same([pair for reply in replies for pair in zip(*reply, strict=True)], expected)
    assert empty_batch == [[], []]
    assert outputs[0] == "" and scores[0] == 0
    assert_same([(outputs[1], scores[1])], expected[:1])


def test_all_operations_are_in_tensorflow_or_in_the_sentencepiece_that_servers_link(served: Served) -> None:
    assert {"While", "SentencepieceTokenizeOp"} <= operations(served.graph)
    assert set(served.unknown) <= TEXT_OPERATIONS
    assert not [name for name in operations(served.graph) if "PyFunc" in name]  # such operations call Python


def test_the_version_says_how_it_was_made(served: Served, trained: TrainedModel) -> None:
    assert (served.path / SAVED_MODEL).exists()
    description = json.loads((served.path / "assets.extra" / "export.json").read_text("utf-8"))
    assert (description["checkpoint"], description["precision"]) == (f"{trained.folder}/model.ckpt-60", "float32")
    assert description["decode_hparams"]["extra_length"] == 5


def test_the_graph_declares_its_inputs_and_outputs(served: Served) -> None:
    def shapes(tensors: Any) -> dict[str, tuple[str, list[int]]]:
        return {
            name: (tf.as_dtype(tensor.dtype).name, [dimension.size for dimension in tensor.tensor_shape.dim])
            for name, tensor in tensors.items()
        }

    signatures = {
        name: (shapes(signature.inputs), shapes(signature.outputs))
        for name, signature in served.graph.signature_def.items()
        if signature.method_name == "tensorflow/serving/predict"
    }
    strings, scores = ("string", [-1]), ("float32", [-1])
    assert signatures == {
        "serving_default": ({"inputs": strings}, {"outputs": strings, "scores": scores}),
        "nbest": ({"inputs": strings}, {"outputs": ("string", [-1, 4]), "scores": ("float32", [-1, 4])}),
        "tokens": ({"inputs": ("int32", [-1, -1])}, {"outputs": ("int32", [-1, -1]), "scores": scores}),
        "score": (
            {"inputs": strings, "targets": strings},
            {"log_probs": scores, "lengths": ("int32", [-1])},
        ),
    }


def test_a_server_can_warm_up(served: Served) -> None:
    assert len(served.warmup) == len(served.warmup_replies) == 3 * 4
    names = set()
    for log, reply in zip(served.warmup, served.warmup_replies, strict=True):
        assert log.WhichOneof("log_type") == "predict_log"
        request = log.predict_log.request
        name = request.model_spec.signature_name
        names.add(name)
        assert request.model_spec.name == "numbers"
        assert set(request.inputs) == set(served.graph.signature_def[name].inputs)
        (count,) = {tensor.tensor_shape.dim[0].size for tensor in request.inputs.values()}
        scores = reply["log_probs" if name == "score" else "scores"]
        assert len(scores) == count
        best = [row[0] for row in scores] if name == "nbest" else scores
        assert all(math.isfinite(score) and score < 0 for score in best)
    assert names == {"serving_default", "nbest", "score"}


def test_ctranslate2_translates_the_same(trained: TrainedModel, batches: list[list[str]], tmp_path: Path) -> None:
    ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra ctranslate2 is not installed")
    lines = [line for batch in batches for line in batch]
    flags = [f"--output_dir={trained.folder}", f"--export_dir={tmp_path}", "--format=ctranslate2"]
    succeed("exporter", *flags)
    assert (tmp_path / "1" / CTRANSLATE2).exists()
    translator = ctranslate2.Translator(str(tmp_path / "1"), intra_threads=1)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "1" / "sentencepiece.model"))
    pieces = tokenizer.encode(lines, out_type=str)
    for beam_size in (1, 4):
        translations: dict[int, tuple[str, float]] = {}
        at_limit = set()
        for length in set(map(len, pieces)):  # one call per length, because max_decoding_length depends on it
            numbers = [number for number, line in enumerate(pieces) if len(line) == length]
            results = translator.translate_batch(
                [pieces[number] for number in numbers], beam_size=beam_size, length_penalty=0, max_batch_size=2000,
                batch_type="tokens", max_decoding_length=length + 1 + 5, return_scores=True,
            )  # fmt: skip
            pairs = [(tokenizer.decode(result.hypotheses[0]), result.scores[0]) for result in results]
            translations |= dict(zip(numbers, pairs, strict=True))
            lengths = [len(result.hypotheses[0]) for result in results]
            at_limit |= {number for number, each in zip(numbers, lengths, strict=True) if each == length + 1 + 5}
        ours = Translator.from_dir(str(trained.folder), beam_size=beam_size, alpha=0.0, extra_length=5)
        expected = ours.translate(lines)
        # CTranslate2 stops a beam search as soon as it has enough finished hypotheses, so it may miss the best
        # hypothesis. If CTranslate2's translation differs from ours, our translation must have the higher score. At the
        # length limit, CTranslate2 prefers a better unfinished hypothesis, but we prefer a finished one.
        assert beam_size == 1 or len(at_limit) < 0.9 * len(lines)
        differences = [
            translation.score - translations[number][1]
            for number, translation in enumerate(expected)
            if translation.text != translations[number][0] and (beam_size == 1 or number not in at_limit)
        ]
        assert len(differences) <= (0 if beam_size == 1 else 0.03 * len(lines))
        assert min(differences, default=1.0) > TIE


def test_the_example_of_models_config_names_the_model(served: Served) -> None:
    config = text_format.Parse((served.path.parent / "models.config").read_text(), ModelServerConfig())
    (model,) = config.model_config_list.config
    assert (model.name, model.base_path, model.model_platform) == ("numbers", "/models/numbers", "tensorflow")
    assert model.model_version_policy.latest.num_versions == 1


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--quantization=int8"], ("--quantization", "saved_model")),
        (["--format=ctranslate2", "--decode_hparams=beam_size=2"], ("--decode_hparams", "ctranslate2")),
        (["--format=ctranslate2", "--servable_name=x"], ("--servable_name", "ctranslate2")),
        (["--format=ctranslate2", "--warmup_from_file=x"], ("--warmup_from_file", "ctranslate2")),
        (["--decode_hparams=sampling_method=random"], ("sampling_method", "beam search")),
        (["--decode_hparams=write_beam_scores=true"], ("write_beam_scores",)),
        (["--decode_hparams=prefix_file=x"], ("prefix_file",)),
        (["--decode_hparams=n=5"], ("n=5", "beam_size=4")),
        (["--decode_hparams=beam_size=5000"], ("beam_size=5000", "vocabulary")),
        (["--output_dir=a,b"], ("--output_dir=a,b: this program takes only one model; give one folder",)),
        (["--warmup_from_file=/nowhere"], ("/nowhere", "no such file")),
        (["--warmup_from_file=/dev/null"], ("--warmup_from_file=/dev/null: the file has no text",)),
    ],
)
def test_flags_that_contradict_each_other_are_refused(
    trained: TrainedModel, flags: list[str], words: tuple[str, ...]
) -> None:
    refused(run("exporter", f"--output_dir={trained.folder}", *flags), *words)
    assert not (trained.folder / "export").exists()
