"""Tests that the client sends requests over gRPC and REST. The test servers run real SavedModels."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import grpc
import numpy as np
import pytest
import tensorflow as tf

from models import Copier
from serving import Faults, Served, serve
from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams
from t2t_repro.serving.client import EMPTY, Answer, Client, RequestError
from t2t_repro.serving.deadline_http import DeadlineConnection
from t2t_repro.serving.export import export
from t2t_repro.serving.transports import Rest, Servable, TransportError, tensor_values

FEWER_OUTPUTS = {"outputs": [["a", ""], ["", ""]], "scores": [[-1.0, float("-inf")], [float("-inf")] * 2]}
TEXTS = ["the dog", "", "a\u0085b\u2028c", " \t ", "a\tcat \x00", "Ω 漢 \U0001f600", '"\\', "the dog", "\u3000"]


@pytest.fixture(scope="module")
def echo(tiny_vocabulary: Vocabulary) -> Translator:
    """Returns a translator whose best output equals its input."""
    return Translator(Copier(tiny_vocabulary.size), tiny_vocabulary, DecodeHParams(beam_size=2, extra_length=3))


@pytest.fixture(scope="module")
def servers(echo: Translator, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("served")
    strings = tf.TensorSpec([None], tf.string)
    other_models = {
        "tensor2tensor's": (tf.TensorSpec([None], tf.string, name="input"), lambda input: {"outputs": input}),
        "lengths": (strings, lambda inputs: {"outputs": tf.strings.length(inputs), "scores": tf.zeros(3)}),
        "fewer_outputs": (strings, lambda inputs: {key: tf.constant(values) for key, values in FEWER_OUTPUTS.items()}),
        "one_output": (strings, lambda inputs: {"outputs": inputs}),
    }
    models = {"echo": {3: export(echo, folder / "echo"), 2: folder / "lengths"}}
    for name, (spec, call) in other_models.items():
        module = tf.Module()
        module.call = tf.function(call, autograph=False, input_signature=[spec])
        tf.saved_model.save(module, str(folder / name), signatures=module.call)
        models[name] = {1: folder / name}
    with serve(models) as served:
        yield served


@pytest.fixture
def served(servers: Served) -> Served:
    """Returns the test servers, with all faults switched off and all counters set to 0."""
    servers.faults, servers.connections = Faults(), 0
    servers.batches.clear()
    return servers


@pytest.fixture(params=["grpc", "rest"])
def ask(request: pytest.FixtureRequest, served: Served) -> Iterator[Any]:
    """Yields a function that makes clients. Each test with this fixture runs twice: with gRPC and with REST."""
    clients: list[Client] = []

    def make(name: str = "echo", **options: Any) -> Client:
        options = {"timeout_secs": 60, "first_pause": 0.01, **options}
        server = options.pop("server", getattr(served, request.param))
        clients.append(Client(server, name, rest=request.param == "rest", **options))
        return clients[-1]

    make.interface = request.param  # type: ignore[attr-defined]
    yield make
    for client in clients:
        client.close()


def error(client: Client, *texts: str) -> str:
    """Returns the one-line error message of a request, which must fail.

    Asserts that it is no RequestError, because that class means that requests with other texts may succeed.
    """
    with pytest.raises(UserError) as raised:
        client.translate(texts or ["the dog"])
    assert not isinstance(raised.value, RequestError)
    assert "\n" not in str(raised.value)
    return str(raised.value)


def test_answers_are_in_the_order_of_the_texts_and_empty_texts_are_not_sent(ask: Any, served: Served) -> None:
    client = ask()
    answers = client.translate(TEXTS)
    assert [answer.text for answer in answers] == [text if text.strip() else "" for text in TEXTS]
    assert [answer is EMPTY for answer in answers] == [not text.strip() for text in TEXTS]
    assert answers[0].scores == pytest.approx([0.0], abs=1e-4)
    assert client.translate(["", " "]) == [EMPTY, EMPTY]
    assert client.translate([]) == []
    with pytest.raises(UserError, match="texts is one string"):
        client.translate("the dog")
    assert served.batches == [6]


def test_nbest_gives_the_translators_hypotheses_and_scores(ask: Any, echo: Translator) -> None:
    expected = echo.translate(["the cat", "a dog"], return_beams=True)
    for answer, translation in zip(ask(signature_name="nbest").translate(["the cat", "a dog"]), expected, strict=True):
        assert answer.outputs == tuple(hypothesis.text for hypothesis in translation.hypotheses)
        assert answer.scores == pytest.approx([hypothesis.score for hypothesis in translation.hypotheses], abs=1e-4)
        assert len(answer.outputs) == 2


def test_missing_hypotheses_are_omitted(ask: Any) -> None:
    assert ask("fewer_outputs").translate(["one", "two"]) == [Answer(("a",), (-1.0,)), EMPTY]


def test_a_version_can_be_chosen(ask: Any) -> None:
    assert ask(version=3).translate(["a"])[0].text == "a"
    assert "does not give outputs (string)" in error(ask(version=2))


def test_a_missing_model_version_or_signature_is_named_with_the_existing_ones(ask: Any) -> None:
    assert "serves no model 'eco'; give --servable_name" in error(ask("eco"))
    assert "serves no model 'eco'" in error(ask("eco", version=1))
    assert "'echo'" in (message := error(ask(version=9)))
    assert "has no version 9; give --servable_version=3, the latest" in message
    message = error(ask(signature_name="best"))
    assert "no signature 'best'; there are: nbest, score, serving_default, tokens" in message
    assert message.endswith("give --signature_name=nbest or serving_default")


def test_a_signature_with_other_inputs_or_outputs_is_refused(ask: Any) -> None:
    assert "'tokens' of model 'echo'" in (message := error(ask(signature_name="tokens")))
    assert "takes inputs (int32), but the client sends inputs (string); give --signature_name=nbest or" in message
    message = error(ask("tensor2tensor's"))
    assert "takes input (string), but the client sends inputs (string); give --servable_name of a" in message
    for name in ("lengths", "one_output"):
        assert f"'{name}'" in (message := error(ask(name), "a", "b", "c"))
        assert "does not give outputs (string) and scores (float)" in message


def test_a_request_is_repeated_while_the_server_is_unavailable(ask: Any, served: Served) -> None:
    messages: list[str] = []
    served.faults = Faults(unavailable=2)
    assert ask(retries=2, tell=messages.append).translate(["a"])[0].text == "a"
    assert len(messages) == 1
    assert "queue is full; trying again for 0.03 s" in messages[0]

    served.faults = Faults(unavailable=3)
    message = error(ask(retries=2))
    assert "not available" in message
    assert "queue is full" in message
    assert served.faults.unavailable == 0
    served.faults = Faults(unavailable=1)
    assert "not available" in error(ask(retries=0))


def test_a_missing_server_is_not_available(ask: Any) -> None:
    with socket.socket() as silent:
        silent.bind(("localhost", 0))  # reserves a port on which no program listens
        messages: list[str] = []
        server = f"localhost:{silent.getsockname()[1]}"
        message = error(ask(server=server, retries=1, tell=messages.append))
    assert message.startswith(f"{server}: not available (")
    assert "Connection refused" in message
    assert "correct --server" in message
    assert len(messages) == 1
    port = {"grpc": 8500, "rest": 8501}[ask.interface]
    assert error(ask(server="no-such-host.invalid", retries=0)).startswith(
        f"no-such-host.invalid:{port}: not available"
    )


def test_a_restarted_server_is_reached_at_once() -> None:
    with socket.socket() as silent:
        silent.bind(("localhost", 0))
        port = silent.getsockname()[1]
        client = Client(f"localhost:{port}", "echo", retries=2, first_pause=0.15)
        start = time.monotonic()
        while time.monotonic() - start < 3:
            assert "not available" in error(client)
    with client, serve({}, port):
        assert "serves no model" in error(client)


def test_the_port_of_the_other_interface_is_refused(ask: Any, served: Served) -> None:
    other = served.rest if ask.interface == "grpc" else served.grpc
    message = error(ask(server=other, retries=1))
    assert message.isprintable()
    assert "8500 for gRPC and 8501 for --rest" in message


def test_a_client_is_usable_after_a_failed_request(ask: Any, served: Served) -> None:
    client = ask(timeout_secs=1.5)
    ask().translate(["warm"])
    served.faults = Faults("slow", seconds=4)
    with pytest.raises(RequestError, match=r"^no answer from localhost:\d+ within 1\.5 s; raise --timeout_secs, lower"):
        client.translate(["slow"])
    served.faults = Faults("bad", code=grpc.StatusCode.RESOURCE_EXHAUSTED)
    with pytest.raises(RequestError, match=r"_Derived_\] something \[\[\{\{node it\}\}\]\] «broke»") as raised:
        client.translate(["bad"])
    assert str(raised.value).isprintable()
    assert served.batches == [1, 1, 1]  # the client repeated no request
    served.faults = Faults("bad", code=grpc.StatusCode.INVALID_ARGUMENT)  # the server refuses only this text
    with pytest.raises(RequestError, match="something"):
        client.translate(["bad"])
    assert client.translate(["good"])[0].text == "good"


def test_each_request_on_a_kept_connection_has_its_own_deadline(served: Served) -> None:
    with contextlib.closing(DeadlineConnection(served.rest)) as connection:
        for _ in range(2):
            assert connection.exchange("GET", "/v1/models/echo/metadata", None, time.monotonic() + 60)[0] == 200
        assert served.connections == 1
        with pytest.raises(TimeoutError):
            connection.exchange("GET", "/v1/models/echo/metadata", None, time.monotonic() - 1)


def test_rest_keeps_its_connection_open(served: Served) -> None:
    messages: list[str] = []
    with Client(served.rest, "echo", rest=True, tell=messages.append) as client:
        for _ in range(3):
            client.translate(["a"])
        assert served.connections == 1
        served.faults = Faults(hangs_up=True)
        for _ in range(3):
            assert client.translate(["a"])[0].text == "a"
        assert served.connections == 3
    assert messages == []


@pytest.mark.parametrize("rest", [False, True])
@pytest.mark.parametrize("server", ["no..host:1", f"{'a' * 64}.b:1"])
def test_a_server_name_that_no_host_can_have_is_not_available(server: str, rest: bool) -> None:
    with pytest.raises(UserError, match="not available"), Client(server, "echo", rest=rest, retries=0) as client:
        client.translate(["a"])


@pytest.mark.parametrize(
    "server",
    ["http://localhost:8501", "localhost:", "a b", "", "localhost:8501/v1", "a:b", "a:65536", f"a:{10**20}"],
)
def test_a_server_that_is_not_an_address_is_refused(server: str) -> None:
    for rest, port in ((False, 8500), (True, 8501)):
        with pytest.raises(UserError, match=f"give host:port, e.g. localhost:{port}"):
            Client(server, "echo", rest=rest)


@pytest.mark.parametrize(
    ("status", "body", "message"),
    [
        (404, "<html>\n<h1>Not Found</h1>", "serves no model 'echo'"),
        (500, '{ "error": "caf\\303\\251 is \\\'bad\\\'" }', r"HTTP 500, { \"error\": .*is .*bad"),
        (500, "", "HTTP 500; see the server's log"),
        (400, "[]", r"HTTP 400, \[\]; see the server's log"),
        (200, "<html>", "HTTP 200, <html>"),
        (200, "{}", "does not give outputs"),
        (200, '{"outputs": {"outputs": ["a"], "scores": []}}', "does not give outputs"),
        (200, '{"outputs": {"outputs": [1], "scores": [1]}}', "does not give outputs"),
    ],
)
def test_an_http_answer_without_predictions_is_an_error(status: int, body: str, message: str) -> None:
    """The client reports an error even if the body is not valid JSON. Old TensorFlow Serving sends octal escapes."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body.encode())

        do_GET = do_POST  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with HTTPServer(("localhost", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            with (
                Client(f"localhost:{server.server_address[1]}", "echo", rest=True) as client,
                pytest.raises(UserError, match=message) as raised,
            ):
                client.translate(["a"])
        finally:
            server.shutdown()
            thread.join()
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("values", [[[1.5, -2.5], [3.5, float("-inf")]], [0.25, 0.25, 0.25], [7.0], [[-1.5], [-1.5]]])
def test_floats_are_read_from_every_form_of_a_tensor_proto(values: list) -> None:
    array = np.array(values, np.float32)
    packed = tf.make_tensor_proto(array)
    listed = tf.make_tensor_proto(np.float32(0), shape=array.shape)
    listed.ClearField("float_val")
    listed.float_val.extend(array.ravel().tolist())
    forms = [packed, listed]
    if len(set(array.flat)) == 1:
        forms.append(tf.make_tensor_proto(array.flat[0], shape=array.shape))
        assert len(forms[-1].float_val) == 1
    for form in forms:
        assert tensor_values(form) == array.tolist()


def test_an_impossible_host_name_is_reported_after_each_try() -> None:
    transport = Rest("a..b:80", timeout_secs=5)
    for _ in range(2):
        with pytest.raises(TransportError, match="no such host"):
            transport.metadata(Servable("m", None))
