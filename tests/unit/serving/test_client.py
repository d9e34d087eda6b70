"""Tests that the client translates over gRPC and REST, and that no server can harm it or keep it waiting."""

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
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

from serving import Faults, Served, serve
from t2t_repro.serving import client as client_module
from t2t_repro.serving.client import EMPTY, Answer, Client
from user_errors import user_error

TEXTS = ["the dog", "", "a\u0085b\u2028c", " \t ", "a\tcat \x00", "Ω 漢 \U0001f600", '"\\', "the dog", "\u3000"]
SHORT, PATIENCE = 0.3, 30.0
"""Timeouts in seconds: SHORT for a server whose answer never ends, PATIENCE for other servers."""
NOT_OURS = "does not give outputs (string) and scores (float)"


def nbest(inputs: Any) -> dict[str, Any]:
    """Returns three hypotheses per text. The last has the score -inf, as if the search had found only two."""
    scores = tf.tile([[-0.5, -1.25, float("-inf")]], [tf.size(inputs), 1])
    return {"outputs": tf.stack([inputs, inputs + "2", tf.zeros_like(inputs)], axis=1), "scores": scores}


def echo(inputs: Any) -> dict[str, Any]:
    return {"outputs": inputs, "scores": tf.fill([tf.size(inputs)], -1.5)}


@pytest.fixture(scope="module")
def servers() -> Iterator[Served]:
    lengths = {"serving_default": lambda inputs: {"outputs": tf.strings.length(inputs), "scores": tf.zeros(3)}}
    one_output = {"serving_default": lambda inputs: {"outputs": inputs}}
    with serve({"echo": {3: {"serving_default": echo, "nbest": nbest}, 2: lengths}, "one": {1: one_output}}) as served:
        yield served


@pytest.fixture
def served(servers: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    servers.reset()
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.01)
    return servers


@pytest.fixture(params=["grpc", "rest"])
def ask(request: pytest.FixtureRequest, served: Served) -> Iterator[Any]:
    """Yields a function that makes clients. Each test with this fixture runs twice: with gRPC and with REST."""
    clients: list[Client] = []

    def make(name: str = "echo", **options: Any) -> Client:
        server = options.pop("server", getattr(served, request.param))
        clients.append(Client(server, name, rest=request.param == "rest", **{"timeout_secs": PATIENCE, **options}))
        return clients[-1]

    make.other = served.rest if request.param == "grpc" else served.grpc  # type: ignore[attr-defined]
    yield make
    for client in clients:
        client.close()


def error(client: Client, *texts: str) -> str:
    """Returns the error of a request, which must fail with one short line."""
    message = user_error(client.translate, texts or ["the dog"])
    assert len(message) < 600
    return message


def test_answers_are_in_the_order_of_the_texts_and_empty_texts_are_not_sent(ask: Any, served: Served) -> None:
    client = ask()
    assert client.translate(TEXTS) == [Answer((text,), (-1.5,)) if text.strip() else EMPTY for text in TEXTS]
    assert client.translate(["", " "]) == [EMPTY, EMPTY]
    assert client.translate([]) == []
    assert served.batches == [6]


def test_nbest_gives_each_texts_hypotheses_without_the_missing_ones(ask: Any) -> None:
    answers = ask(signature_name="nbest").translate(["one", "", "two"])
    assert answers == [Answer(("one", "one2"), (-0.5, -1.25)), EMPTY, Answer(("two", "two2"), (-0.5, -1.25))]


def test_a_request_names_the_model_the_version_and_the_signature(ask: Any) -> None:
    assert ask(version=3).translate(["a"])[0].text == "a"
    assert NOT_OURS in error(ask(version=2), "a", "b", "c")
    assert NOT_OURS in error(ask("one"))
    assert "Latest(eco); correct --servable_name" in error(ask("eco"))
    assert "Specific(echo, 9); correct --servable_name" in error(ask(version=9))
    assert "best" in (message := error(ask(signature_name="best"))) and "check --signature_name" in message


def test_a_request_is_repeated_while_the_server_is_unavailable_or_slow(ask: Any, served: Served) -> None:
    messages: list[str] = []
    served.faults = Faults(unavailable=2)
    assert ask(retries=2, tell=messages.append).translate(["a"])[0].text == "a"
    assert len(messages) == 1 and "queue is full; trying again up to 2 times" in messages[0]
    served.faults = Faults(unavailable=3)
    assert "queue is full; check that a server is ready" in error(ask(retries=2))
    assert served.faults.unavailable == 0
    served.faults, served.batches[:] = Faults("slow", seconds=1), []
    client = ask(timeout_secs=0.3, retries=1)
    assert "no answer within --timeout_secs: raise it" in error(client, "slow")
    assert client.translate(["fast"])[0].text == "fast"
    served.faults = Faults("bad", code=grpc.StatusCode.INTERNAL)
    assert "[[{{node it}}]] «broke»\x1b; check" in error(client, "bad")
    assert served.batches == [1] * 4  # "slow" twice, "fast" and "bad" once


def test_the_pauses_between_tries_double_up_to_a_maximum(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(client_module.time, "sleep", pauses.append)
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 8.0)
    with socket.create_server(("localhost", 0)) as closed:
        address = f"localhost:{closed.getsockname()[1]}"
    assert "Connection refused" in error(Client(address, "echo", rest=True, retries=4))
    assert pauses == [8, 16, 30, 30]


def test_a_server_that_cannot_be_reached_is_not_available(ask: Any) -> None:
    for server in (ask.other, "no-such-host.invalid:1", "no..host:1", f"{'a' * 64}.b:1"):
        message = error(ask(server=server, retries=0))
        assert server in message and "8500 for gRPC, 8501 for --rest" in message


@pytest.mark.parametrize("server", ["http://localhost:8501", "localhost:", "a b", ""])
def test_a_server_that_is_not_an_address_is_refused(server: str) -> None:
    for rest, port in ((False, 8500), (True, 8501)):
        assert f"give host:port, e.g. localhost:{port}" in user_error(Client, server, "echo", rest=rest)


def http(body: str | bytes, status: str = "200 OK", header: str = "") -> bytes:
    """Returns an HTTP answer that ends when the connection ends, unless `header` says otherwise."""
    data = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\n{header}\r\n".encode() + data


def outputs(outputs: object, scores: object) -> bytes:
    return http(json.dumps({"outputs": {"outputs": outputs, "scores": scores}}))


@contextmanager
def hostile(answer: bytes, drip: bytes = b"") -> Iterator[str]:
    """Sends `answer` on every connection, then `drip` again and again. Yields the address."""
    stopped = threading.Event()

    def answer_all(listener: socket.socket) -> None:
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
        thread = threading.Thread(target=answer_all, args=(listener,))
        thread.start()
        try:
            yield f"127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stopped.set()
            thread.join()


CHUNKED = "Transfer-Encoding: chunked\r\n"


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (outputs(5, 5), NOT_OURS),
        (http('{"outputs": 5}'), NOT_OURS),
        (outputs(["a"], [True]), NOT_OURS),
        (outputs(["a"], []), NOT_OURS),
        (outputs([[]], [[]]), NOT_OURS),
        (outputs([["a", "b"]], [[1.0]]), NOT_OURS),
        (outputs([1], [1]), NOT_OURS),
        (outputs(["a", "b"], [1.0, 2.0]), NOT_OURS),
        (http("[" * 100_000), "HTTP 200"),
        (http('{"outputs": {"scores": ' + "9" * 5000 + "}}"), NOT_OURS),
        (http(b"\xff\xfe{"), "HTTP 200"),
        (http("moved", "301 Moved", "Location: http://127.0.0.1:1/\r\n"), "HTTP 301, moved"),
        (http('{"error": "\\u001b[2J\\r\\u202ebad"}', "500 Oops"), "HTTP 500, \x1b[2J \u202ebad"),
        (http("x" * 5_000_000, "500 Oops"), "HTTP 500, x"),
        (http("<html>\n<h1>Not Found</h1>", "404 Not Found"), "correct --servable_name"),
        (http("{}", header="Content-Length: -5\r\n"), NOT_OURS),
        (http("-9\r\n{}\r\n0\r\n\r\n", header=CHUNKED), "127.0.0.1"),
        (http("fffffffffffffff\r\n{}", header=CHUNKED), "127.0.0.1"),
        (http("", header="a: b\r\n" * 1000), "127.0.0.1"),
        (http("", header="a: " + "b" * 100_000 + "\r\n"), "127.0.0.1"),
        (b"\x00\x1b" * 100 + b"\r\n", "127.0.0.1"),
        (b"", "127.0.0.1"),
    ],
)
def test_a_wrong_rest_answer_is_an_error_of_one_line(answer: bytes, message: str) -> None:
    with hostile(answer) as address, Client(address, "echo", rest=True, retries=0, timeout_secs=PATIENCE) as client:
        assert message in error(client)


@pytest.mark.parametrize(
    ("answer", "drip"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (http("", header="Content-Length: 1000\r\n"), b" "),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    ],
)
def test_an_endless_answer_ends_in_time(answer: bytes, drip: bytes) -> None:
    start = time.monotonic()
    with hostile(answer, drip) as address, Client(address, "a", rest=True, retries=0, timeout_secs=SHORT) as client:
        assert "no answer within --timeout_secs" in error(client)
    assert time.monotonic() - start < 10  # far above SHORT, because other tests may slow the machine


@pytest.mark.parametrize("header", [http(""), http("-1\r\n", header=CHUNKED)])
def test_an_endless_answer_does_not_fill_memory(header: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 1_000_000)
    with hostile(header, b"[" * 10_000) as address, Client(address, "echo", rest=True, retries=0) as client:
        assert "its answer has more than" in error(client)


def test_a_diverged_models_scores_are_shown() -> None:
    with (
        hostile(outputs([["a", "b", ""]], [[float("nan"), -1, float("-inf")]])) as address,
        Client(address, "echo", rest=True, retries=0) as client,
    ):
        (answer,) = client.translate(["x"])
    assert answer.outputs == ("a", "b") and str(answer.scores) == "(nan, -1.0)"


class Hostile(prediction_service_pb2_grpc.PredictionServiceServicer):
    """A server that answers every request with the same message, or with an error if the message is None."""

    answer: Any = None

    def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802
        if self.answer is None:
            context.abort(grpc.StatusCode.INTERNAL, "\x1b[2J\r\u202ebad" + "x" * 5000)
        return self.answer


@pytest.fixture(scope="module")
def hostile_grpc() -> Iterator[tuple[Hostile, Client]]:
    service, servicer = grpc.server(futures.ThreadPoolExecutor(2)), Hostile()
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, service)
    port = service.add_insecure_port("127.0.0.1:0")
    service.start()
    with Client(f"127.0.0.1:{port}", "echo", retries=0, timeout_secs=PATIENCE) as client:
        yield servicer, client
    service.stop(None)


def response(texts: list[bytes], scores: list[float], **values: Any) -> Any:
    answer = predict_pb2.PredictResponse()
    answer.outputs["outputs"].string_val.extend(texts)
    answer.outputs["scores"].float_val.extend(scores)
    for name, numbers in values.items():
        getattr(answer.outputs["scores"], name).extend(numbers)
    return answer


def test_a_wrong_grpc_answer_is_an_error_of_one_line(hostile_grpc: Any) -> None:
    servicer, client = hostile_grpc
    wrong = [response([], [0.0]), response([b"a"], []), response([b"a"], [1.0, 1.0]), response([b"a", b"b"], [1.0])]
    huge = response([], [])
    for name in ("outputs", "scores"):
        huge.outputs[name].tensor_shape.dim.add(size=1 << 60)
    for servicer.answer in [*wrong, response([b"a"], [], int_val=[1]), huge]:
        assert NOT_OURS in error(client)
    servicer.answer = None
    assert ": \x1b[2J \u202ebadxx" in error(client)
    servicer.answer = response([b"\xff"], [-1.0])
    assert client.translate(["a"]) == [Answer(("\ufffd",), (-1.0,))]
