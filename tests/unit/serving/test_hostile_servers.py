"""Tests that wrong and endless answers of a server are reported in one line, in time and within bounded memory."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager, suppress
from typing import Any

import grpc
import pytest
import tensorflow as tf
from tensorflow_serving.apis import get_model_metadata_pb2, predict_pb2, prediction_service_pb2_grpc

from t2t_repro.errors import UserError
from t2t_repro.serving import deadline_http
from t2t_repro.serving.client import Answer, Client

SHORT, PATIENCE = 0.3, 30.0
"""Timeouts in seconds: SHORT for a server whose answer never ends, PATIENCE for other servers."""


def http(body: str | bytes, status: str = "200 OK", header: str = "") -> bytes:
    """Returns an HTTP answer that ends when the connection ends, unless `header` says otherwise."""
    data = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\n{header}\r\n".encode() + data


def outputs(outputs: object, scores: object) -> bytes:
    return http(json.dumps({"outputs": {"outputs": outputs, "scores": scores}}))


@contextmanager
def server(answer: bytes, drip: bytes = b"") -> Iterator[str]:
    """Sends `answer` on every connection, then `drip` again and again. Yields the address."""
    stopped = threading.Event()

    def serve(listener: socket.socket) -> None:
        while not stopped.is_set():
            with suppress(OSError):
                connection, _ = listener.accept()
                with connection:
                    connection.settimeout(PATIENCE)
                    connection.recv(1 << 16)
                    connection.sendall(answer)
                    while drip and not stopped.is_set():
                        connection.sendall(drip)
                        time.sleep(0.05 if len(drip) < 1000 else 0)
                    # Closing a connection with unread data would discard the answer, too.
                    connection.shutdown(socket.SHUT_WR)
                    while connection.recv(1 << 16):
                        pass

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.05)
        thread = threading.Thread(target=serve, args=(listener,))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopped.set()
            thread.join()


def error(address: str, rest: bool = True, timeout_secs: float = PATIENCE) -> str:
    """Returns the error of a request for one text. Asserts that it is one printable line."""
    with (
        Client(address, "echo", rest=rest, retries=0, timeout_secs=timeout_secs) as client,
        pytest.raises(UserError) as raised,
    ):
        client.translate(["a"])
    message = str(raised.value)
    assert message.isprintable() and len(message) < 600
    return message


WRONG = "does not give outputs (string) and scores (float)"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (outputs(5, 5), WRONG),
        (http('{"outputs": {"outputs": 5}}'), WRONG),
        (http('{"outputs": 5}'), WRONG),
        (outputs(["a"], None), WRONG),
        (outputs(["a"], [None]), WRONG),
        (outputs(["a"], ["1"]), WRONG),
        (outputs(["a"], [True]), WRONG),
        (outputs(["a"], [10**400]), WRONG),
        (outputs(["a"], [float("inf")]), WRONG),
        (outputs(["a"], [[]]), WRONG),
        (outputs([[]], [[]]), WRONG),
        (outputs([["a", "b"]], [[1.0]]), WRONG),
        (outputs([[["a"]]], [[[1.0]]]), WRONG),
        (outputs([{"a": 1}], [1.0]), WRONG),
        (outputs({"a": 1}, [1.0]), WRONG),
        (outputs([], []), WRONG),
        (outputs(["a", "b"], [1.0, 2.0]), WRONG),
        (outputs(["\ud800"], [1.0]), WRONG),
        (http("[" * 100_000), "HTTP 200"),
        (http('{"outputs": ' + "[" * 100_000 + "]" * 100_000 + "}"), "HTTP 200"),
        (http('{"outputs": {"scores": ' + "9" * 5000 + "}}"), "HTTP 200"),
        (http(b"\xff\xfe{"), "HTTP 200"),
        (http("", "204 No Content"), "HTTP 204"),
        (http("moved", "301 Moved", "Location: http://127.0.0.1:1/\r\n"), "HTTP 301, moved"),
        (http('{"error": "\\u001b[2J\\r\\u202ebad"}', "500 Oops"), "HTTP 500, [2J bad"),
        (http('{"error": ' + "[" * 900 + "]" * 900 + "}", "500 Oops"), "HTTP 500"),
        (http("x" * 5_000_000, "500 Oops"), "HTTP 500, x"),
        (http("{", "404 Not Found"), "serves no model"),
        (http("{}", header="Content-Length: 100\r\n"), "its answer is incomplete"),
        (http("{}", header="Content-Length: many\r\n"), WRONG),
        (http("{}", header="Content-Length: -5\r\n"), WRONG),
        (http("zz\r\n{}", header="Transfer-Encoding: chunked\r\n"), "its answer is incomplete"),
        (http("-9\r\n{}\r\n0\r\n\r\n", header="Transfer-Encoding: chunked\r\n"), "127.0.0.1"),
        (http("fffffffffffffff\r\n{}", header="Transfer-Encoding: chunked\r\n"), "its answer is incomplete"),
        (http("", header="a: b\r\n" * 1000), "its answer is not HTTP"),
        (http("", header="a: " + "b" * 100_000 + "\r\n"), "its answer is not HTTP"),
        (b"HTTP/1.1 2000000 OK\r\n\r\n", "its answer is not HTTP"),
        (b"\x00\x1b" * 100 + b"\r\n", "its answer is not HTTP"),
        (b"", "127.0.0.1"),
    ],
)
def test_a_wrong_rest_answer_is_an_error_of_one_line(answer: bytes, message: str) -> None:
    with server(answer) as address:
        assert message in error(address)


@pytest.mark.parametrize(
    ("answer", "drip"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (http("", header="Content-Length: 1000\r\n"), b" "),
        (http("", header="Transfer-Encoding: chunked\r\n"), b"1\r\n \r\n"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_an_endless_answer_ends_in_time(answer: bytes, drip: bytes) -> None:
    start = time.monotonic()
    with server(answer, drip) as address:
        assert f"within {SHORT} s" in error(address, timeout_secs=SHORT)
    assert time.monotonic() - start < 10  # far above SHORT, because other tests may slow the machine


def test_an_endless_answer_does_not_fill_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deadline_http, "MAX_ANSWER_BYTES", 1_000_000)
    with server(http(""), b"[" * 10_000) as address:
        assert "its answer has more than" in error(address)


@pytest.mark.parametrize(
    "metadata",
    [
        "[]",
        '{"model_spec": {"version": {}}, "metadata": {"signature_def": {"signature_def": {}}}}',
        '{"model_spec": {"version": "\\u001b"}, "metadata": {"signature_def": {"signature_def": {}}}}',
        '{"metadata": {"signature_def": {"signature_def": {"a": {"inputs": {"b": {"dtype": 5}}}}}}}',
    ],
)
def test_wrong_metadata_is_no_metadata(metadata: str) -> None:
    with server(http(metadata, "400 Bad")) as address:
        assert "HTTP 400" in error(address)


def test_a_diverged_models_scores_are_shown() -> None:
    answer_bytes = outputs([["a", "b", ""]], [[float("nan"), -1, float("-inf")]])
    with server(answer_bytes) as address, Client(address, "echo", rest=True, retries=0) as client:
        (answer,) = client.translate(["x"])
    assert answer.outputs == ("a", "b") and str(answer.scores) == "(nan, -1.0)"


def test_a_text_with_a_lone_surrogate_is_refused() -> None:
    with Client("127.0.0.1:1", "echo", rest=True, retries=0) as client:
        with pytest.raises(UserError, match="lone surrogate"):
            client.translate(["a\ud800"])
        assert client.translate([""]) == [Answer((), ())]


class Hostile(prediction_service_pb2_grpc.PredictionServiceServicer):
    """A server that answers every request with the same messages."""

    predict: Any = predict_pb2.PredictResponse()
    metadata: Any = get_model_metadata_pb2.GetModelMetadataResponse()
    code: grpc.StatusCode | None = None

    def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.code:
            context.abort(self.code, "\x1b[2J\r\u202ebad" + "x" * 5000)
        return self.predict

    def GetModelMetadata(self, request: Any, context: Any) -> Any:  # noqa: N802
        return self.metadata


@pytest.fixture(scope="module")
def hostile() -> Iterator[tuple[Hostile, str]]:
    service, servicer = grpc.server(futures.ThreadPoolExecutor(2)), Hostile()
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, service)
    port = service.add_insecure_port("127.0.0.1:0")
    service.start()
    yield servicer, f"127.0.0.1:{port}"
    service.stop(None)


def tensor(dtype: tf.DType, *dimensions: int, **values: Any) -> Any:
    """Returns a TensorProto whose values need not fit its type and dimensions."""
    proto = tf.make_tensor_proto(0)
    proto.Clear()
    proto.dtype = dtype.as_datatype_enum
    for size in dimensions:
        proto.tensor_shape.dim.add(size=size)
    for name, value in values.items():
        if isinstance(value, bytes):
            setattr(proto, name, value)
        else:
            getattr(proto, name).extend(value)
    return proto


TEXT, SCORE = tensor(tf.string, 1, string_val=[b"a"]), tensor(tf.float32, 1, float_val=[0.0])


@pytest.mark.parametrize(
    ("texts", "scores"),
    [
        (None, SCORE),
        (SCORE, SCORE),
        (tensor(tf.string), SCORE),
        (tensor(tf.string, 1), SCORE),
        (tensor(tf.string, -1, string_val=[b"a"]), SCORE),
        (tensor(tf.string, 1, 1 << 60, string_val=[b"a"]), SCORE),
        (tensor(tf.string, 1, 1 << 21, string_val=[b"a"]), tensor(tf.float32, 1, 1 << 40)),
        (tensor(tf.string, 1, tensor_content=b"abcdefgh"), SCORE),
        (TEXT, tensor(tf.float32, 1, float_val=[float("inf")])),
        (TEXT, tensor(tf.float32, 3, 5, tensor_content=b"abc")),
        (TEXT, tensor(tf.float32, 2, float_val=[1.0])),
        (TEXT, tensor(tf.int32, 1, int_val=[1])),
    ],
)
def test_a_wrong_grpc_answer_is_an_error_of_one_line(hostile: tuple[Hostile, str], texts: Any, scores: Any) -> None:
    servicer, address = hostile
    servicer.code, servicer.predict = None, predict_pb2.PredictResponse()
    for name, proto in (("outputs", texts), ("scores", scores)):
        if proto is not None:
            servicer.predict.outputs[name].CopyFrom(proto)
    assert WRONG in error(address, rest=False)


def test_a_grpc_servers_words_are_cut_and_printable(hostile: tuple[Hostile, str]) -> None:
    servicer, address = hostile
    servicer.code = grpc.StatusCode.INTERNAL
    assert ": [2J bad" in error(address, rest=False)
    servicer.code = grpc.StatusCode.INVALID_ARGUMENT
    servicer.metadata.metadata["signature_def"].type_url = "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    servicer.metadata.metadata["signature_def"].value = b"\xff\xff\xff"
    assert ": [2J bad" in error(address, rest=False)
    signatures = get_model_metadata_pb2.SignatureDefMap()
    signatures.signature_def["\x1b" + "x" * 5000].inputs["\r"].dtype = 9999
    servicer.metadata.metadata["signature_def"].Pack(signatures)
    assert ": [2J bad" in error(address, rest=False)
    signatures.signature_def["\x1b" + "x" * 5000].inputs["\r"].dtype = 7
    servicer.metadata.metadata["signature_def"].Pack(signatures)
    assert "has no signature 'serving_default'" in error(address, rest=False)
