"""Tests that the client translates over gRPC and REST, and that no server can harm it or keep it
waiting.
"""

import json
import socket
import socketserver
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

TEXTS = [
    "the dog",
    "",
    "a\u0085b\u2028c",
    " \t ",
    "a\tcat \x00",
    "Ω 漢 \U0001f600",
    '"\\',
    "the dog",
    "\u3000",
]
SHORT = 0.3
"""Timeout in seconds for a server whose answer never ends."""
PATIENCE = 30.0
"""Timeout in seconds for other servers."""
NOT_OURS = "does not give outputs (string) and scores (float)"


def nbest(inputs: Any) -> dict[str, Any]:
    """Returns three hypotheses per text. The last has the score -inf, as if the search had found
    only two.
    """
    scores = tf.tile([[-0.5, -1.25, float("-inf")]], [tf.size(inputs), 1])
    return {
        "outputs": tf.stack([inputs, inputs + "2", tf.zeros_like(inputs)], axis=1),
        "scores": scores,
    }


def echo(inputs: Any) -> dict[str, Any]:
    return {"outputs": inputs, "scores": tf.fill([tf.size(inputs)], -1.5)}


@pytest.fixture(scope="module")
def servers() -> Iterator[Served]:

    def lengths(inputs: Any) -> dict[str, Any]:
        return {"outputs": tf.strings.length(inputs), "scores": tf.zeros(3)}

    def one_output(inputs: Any) -> dict[str, Any]:
        return {"outputs": inputs}

    def languages(inputs: Any, target_language: Any) -> dict[str, Any]:
        return echo(target_language + inputs)

    models = {
        "echo": {
            3: {"serving_default": echo, "nbest": nbest},
            2: {"serving_default": lengths},
        },
        "one": {1: {"serving_default": one_output}},
        "languages": {1: {"serving_default": languages}},
    }
    with serve(models) as served:
        yield served


@pytest.fixture
def served(servers: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    servers.reset()
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 0.01)
    monkeypatch.setattr("_multiprocessing.SemLock", None)  # as on a machine without /dev/shm
    return servers


@pytest.fixture(params=["grpc", "rest"])
def ask(request: pytest.FixtureRequest, served: Served) -> Any:
    """Returns a function that makes clients. Each test with this fixture runs twice: with gRPC and
    with REST.
    """

    is_rest = request.param == "rest"

    def make(
        name: str = "echo", server: str = getattr(served, request.param), **options: Any
    ) -> Client:
        return Client(server, name, rest=is_rest, **{"timeout_secs": PATIENCE, **options})

    make.other = served.grpc if is_rest else served.rest  # type: ignore[attr-defined]
    return make


def error(client: Client, *texts: str) -> str:
    """Returns the error of a request, which must fail with one short line."""
    with client:
        message = user_error(client.translate, texts or ["the dog"])
    assert len(message) < 600
    return message


def test_answers_are_in_the_order_of_the_texts_and_empty_texts_are_not_sent(
    ask: Any, served: Served
) -> None:
    with ask() as client:
        expected = [Answer((text,), (-1.5,)) if text.strip() else EMPTY for text in TEXTS]
        assert client.translate(TEXTS) == expected
        assert client.translate(["", " "]) == [EMPTY, EMPTY]
    assert served.batches == [6]
    with ask(signature_name="nbest") as client:
        answers = client.translate(["one", "", "two"])
    scores = (-0.5, -1.25)
    assert answers == [Answer(("one", "one2"), scores), EMPTY, Answer(("two", "two2"), scores)]


def test_a_request_has_the_target_language_of_each_text(ask: Any) -> None:
    def texts(client: Client, *texts: str) -> list[str]:
        with client:
            return [answer.text for answer in client.translate(texts)]

    french = ask("languages", target_language="fr")
    assert texts(french, "a", "", ">>de<< b") == ["fra", "", "fr>>de<< b"]
    # For a model without languages, a tag is text.
    assert texts(ask(), ">>de<< b", "a") == [">>de<< b", "a"]
    assert texts(ask("languages"), ">>fr<< a", ">>de<< b") == [">>fr<< a", ">>de<< b"]


def test_a_request_names_the_model_the_version_and_the_signature(ask: Any) -> None:
    with ask(servable_version=3) as client:
        assert client.translate(["a"])[0].text == "a"
    assert NOT_OURS in error(ask(servable_version=2), "a", "b", "c")
    assert NOT_OURS in error(ask("one"))
    assert "Latest(eco); correct --servable_name" in error(ask("eco"))
    assert "Specific(echo, 9); correct --servable_name" in error(ask(servable_version=9))
    message = error(ask(signature_name="best"))
    assert "best" in message and "check --signature_name" in message


def test_a_request_is_repeated_while_the_server_is_unavailable_or_slow(
    ask: Any, served: Served, capsys: pytest.CaptureFixture[str]
) -> None:
    served.faults = Faults(unavailable=2)
    with ask(retries=2) as client:
        assert client.translate(["a"])[0].text == "a"
    assert "queue is full; trying again up to 2 times\n" in capsys.readouterr().err
    served.faults = Faults(unavailable=3)
    assert "queue is full; check that a server is ready" in error(ask(retries=2))
    assert served.faults.unavailable == 0
    served.faults = Faults("slow", seconds=1)
    served.batches.clear()
    assert "no answer within --timeout_secs: raise it" in error(
        ask(timeout_secs=SHORT, retries=1), "slow"
    )
    served.faults = Faults("bad", code=grpc.StatusCode.INTERNAL)
    assert "[[{{node it}}]] «broke»\x1b; check" in error(ask(), "bad")
    assert served.batches == [1] * 3  # "slow" twice, "bad" once


def test_the_pauses_between_tries_double_up_to_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    monkeypatch.setattr(client_module.time, "sleep", pauses.append)
    monkeypatch.setattr(client_module, "FIRST_PAUSE", 8.0)
    with socket.create_server(("localhost", 0)) as closed:
        address = f"localhost:{closed.getsockname()[1]}"
    assert "Connection refused" in error(Client(address, "echo", rest=True, retries=4))
    assert pauses == [8, 16, 30, 30]


def test_a_server_that_cannot_be_reached_is_not_available(ask: Any) -> None:
    for server in (ask.other, "no-such-host.invalid:1", f"{'a' * 64}.b:1"):
        message = error(ask(server=server, retries=0))
        assert server in message and "8500 for gRPC, 8501 for --rest" in message


@pytest.mark.parametrize("server", ["http://localhost:8501", "localhost:", "a b", ""])
def test_a_server_that_is_not_an_address_is_refused(server: str) -> None:
    for rest, port in ((False, 8500), (True, 8501)):
        assert f"give host:port, e.g. localhost:{port}" in user_error(
            Client, server, "echo", rest=rest
        )


def http(body: str | bytes, status: str = "200 OK", header: str = "") -> bytes:
    """Returns an HTTP answer that ends when the connection ends, unless `header` says otherwise."""
    data = body.encode() if isinstance(body, str) else body
    return f"HTTP/1.1 {status}\r\n{header}\r\n".encode() + data


def outputs(outputs: object, scores: object) -> bytes:
    return http(json.dumps({"outputs": {"outputs": outputs, "scores": scores}}))


@contextmanager
def client_of(answer: bytes, drip: bytes = b"", timeout_secs: float = PATIENCE) -> Iterator[Client]:
    """Yields the client of a server that sends `answer` on every connection, then `drip` again and
    again.
    """
    stopped = threading.Event()

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            with suppress(OSError):
                self.request.recv(1 << 16)
                self.request.sendall(answer)
                while drip and not stopped.wait(0.05 if len(drip) < 1000 else 0):
                    self.request.sendall(drip)
                self.request.shutdown(socket.SHUT_WR)
                # Closing a connection with unread data would discard the answer.
                while self.request.recv(1 << 16):
                    pass

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,)).start()
        address = f"127.0.0.1:{server.server_address[1]}"
        try:
            yield Client(address, "echo", rest=True, retries=0, timeout_secs=timeout_secs)
        finally:
            stopped.set()
            server.shutdown()


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
        (http("fffffffffffffff\r\n{}", header=CHUNKED), "127.0.0.1"),
        (http("", header="a: b\r\n" * 1000), "127.0.0.1"),
        (http("", header="a: " + "b" * 100_000 + "\r\n"), "127.0.0.1"),
        (b"\x00\x1b" * 100 + b"\r\n", "127.0.0.1"),
        (b"", "127.0.0.1"),
    ],
)
def test_a_wrong_rest_answer_is_an_error_of_one_line(answer: bytes, message: str) -> None:
    with client_of(answer) as client:
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
    with client_of(answer, drip, SHORT) as client:
        assert "no answer within --timeout_secs" in error(client)
        # The limit is far above SHORT, because other tests may slow the machine.
        assert time.monotonic() - start < 10


@pytest.mark.parametrize("header", [http(""), http("-1\r\n", header=CHUNKED)])
def test_an_endless_answer_does_not_fill_memory(
    header: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "MAX_ANSWER_BYTES", 1_000_000)
    with client_of(header, b"[" * 10_000) as client:
        assert "its answer has more than" in error(client)


def test_a_diverged_models_scores_are_shown() -> None:
    with client_of(outputs([["a", "b", ""]], [[float("nan"), -1, float("-inf")]])) as client:
        (answer,) = client.translate(["x"])
    assert answer.outputs == ("a", "b") and str(answer.scores) == "(nan, -1.0)"
    with client_of(outputs([["", ""]], [[float("-inf"), float("-inf")]])) as client:
        assert "its training has diverged" in error(client)


def response(texts: list[bytes], scores: list[float], numbers: list[int] = ()) -> Any:  # type: ignore[assignment]
    answer = predict_pb2.PredictResponse()
    answer.outputs["outputs"].string_val.extend(texts)
    answer.outputs["scores"].float_val.extend(scores)
    answer.outputs["scores"].int_val.extend(numbers)
    return answer


def test_a_wrong_grpc_answer_is_an_error_of_one_line() -> None:
    class Hostile(prediction_service_pb2_grpc.PredictionServiceServicer):
        answer: Any = None

        def Predict(self, request: Any, context: Any) -> Any:  # noqa: N802
            if self.answer is None:
                context.abort(grpc.StatusCode.INTERNAL, "\x1b[2J\r\u202ebad" + "x" * 5000)
            return self.answer

    service = grpc.server(futures.ThreadPoolExecutor(2))
    servicer = Hostile()
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(servicer, service)
    server = f"127.0.0.1:{service.add_insecure_port('127.0.0.1:0')}"
    client = Client(server, "echo", retries=0, timeout_secs=PATIENCE)
    service.start()
    huge = response([], [])
    huge.outputs["scores"].tensor_shape.dim.add(size=1 << 60)
    wrong = [
        response([], [0.0]),
        response([b"a"], []),
        response([b"a"], [1.0, 1.0]),
        response([b"a", b"b"], [1.0]),
    ]
    for servicer.answer in [*wrong, response([b"a"], [], [1]), huge]:
        assert NOT_OURS in user_error(client.translate, ["a"])
    servicer.answer = response([b"\xff"], [-1.0])
    assert client.translate(["a"]) == [Answer(("\ufffd",), (-1.0,))]
    servicer.answer = None
    assert ": \x1b[2J \u202ebadxx" in error(client)
    service.stop(None)
