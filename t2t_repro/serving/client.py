"""Asks a served model for translations, over gRPC or over TensorFlow Serving's REST API, which
needs no TensorFlow.

Connections are not encrypted and use no proxy. The client does not trust the server: SECURITY.md
says what it checks. In shapes, B is the number of texts in a request and n is the number of
hypotheses per text.
"""

import contextlib
import functools
import json
import math
import re
import threading
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import KW_ONLY, dataclass, field
from http.client import HTTPConnection, HTTPException
from typing import Any
from urllib.parse import quote

from t2t_repro.console.progress import say
from t2t_repro.data.vocabularies.tags import split_tag
from t2t_repro.data.vocabularies.text_rules import is_empty
from t2t_repro.errors import UserError, counted, shortened, text_list

GRPC_PORT = 8500
"""TensorFlow Serving's default port for gRPC."""
REST_PORT = 8501
"""TensorFlow Serving's default port for the REST API."""
FIRST_PAUSE = 0.5
MAX_PAUSE = 30.0
"""Seconds before the first repetition of a request. Each later pause is twice as long, up to the
maximum.
"""
MAX_ANSWER_BYTES = 64 << 20
"""Maximum size of an answer. The answer to 1,000 texts has about 1 MB."""
HTTP_CODES = {404: "NOT_FOUND", 502: "UNAVAILABLE", 503: "UNAVAILABLE"}
"""HTTP status codes for which the client needs gRPC's name of the error."""
TEMPORARY = ("UNAVAILABLE", "DEADLINE_EXCEEDED")
"""Errors after which a request is repeated."""
CURES = {
    "UNAVAILABLE": (
        f"check that a server is ready at --server (ports: {GRPC_PORT} for gRPC, {REST_PORT} for "
        "--rest)"
    ),
    "DEADLINE_EXCEEDED": (
        "no answer within --timeout_secs: raise it, lower --batch_size, or check the server"
    ),
    "NOT_FOUND": "correct --servable_name or --servable_version",
}
"""Cures of errors, by their names in gRPC."""


@dataclass(frozen=True)
class Answer:
    """The model's outputs for one text. An empty text has no outputs."""

    outputs: tuple[str, ...]
    """Hypotheses (candidate translations), best first. The signature serving_default gives only
    one.
    """
    scores: tuple[float, ...]
    """Score of each hypothesis: its log-probability in nats, divided by the length penalty."""

    @property
    def text(self) -> str:
        """The best output, or "" if the text has no outputs."""
        return self.outputs[0] if self.outputs else ""


EMPTY = Answer((), ())


class RequestError(Exception):
    """A failed request: a status code of gRPC, such as UNAVAILABLE, and the server's or system's
    explanation.
    """

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(shortened(" ".join(detail.split()), 300))
        self.code = code


@dataclass(eq=False)
class Client(contextlib.AbstractContextManager):
    """A connection to one served model, for a `with` block.

    Raises UserError if `server` does not have the form host or host:port.
    """

    server: str
    """host:port of the server; the default port is 8500, or 8501 with --rest"""
    servable_name: str
    """name of the model on the server"""
    _: KW_ONLY
    rest: bool = False
    """use TensorFlow Serving's REST API, not gRPC"""
    signature_name: str = "serving_default"
    """serving_default, or nbest: n outputs per line, each followed by its score"""
    servable_version: int = 0
    """version of the model; 0 for the server's latest"""
    target_language: str = ""
    """language of the translations, for a model with several; not needed if each line begins with
    its tag
    """
    timeout_secs: float = field(default=10.0, metadata={"lower_bound": 0.001, "upper_bound": 1e6})
    """seconds after which a request fails"""
    retries: int = 4
    """how often to repeat a request while the server is unavailable or slow, after 0.5 s, 1 s, 2 s,
    ... up to 30 s
    """

    def __post_init__(self) -> None:
        port = REST_PORT if self.rest else GRPC_PORT
        if not re.fullmatch(r"([\w.-]+|\[[\w:.%]+\])(:\d{1,5})?", self.server, re.ASCII):
            raise UserError(f"--server={self.server}: give host:port, e.g. localhost:{port}")
        self.server = self.server if re.search(r":\d+$", self.server) else f"{self.server}:{port}"
        self._predict = self._predict_rest if self.rest else self._predict_grpc

    def __exit__(self, *error: object) -> None:
        if not self.rest:
            self._channel.close()

    def translate(self, texts: Iterable[str]) -> list[Answer]:
        """Sends one request and returns an answer for each text, in order. Empty texts are not
        sent.

        `texts` have no line breaks. Raises UserError if the server cannot be reached, answers with
        an error, or has no model of this project.
        """
        texts = text_list("texts", texts)
        sources = [text for text in texts if not is_empty(text)]
        answers = iter(self._ask(sources) if sources else ())
        return [EMPTY if is_empty(text) else next(answers) for text in texts]

    def _ask(self, sources: Sequence[str]) -> list[Answer]:
        outputs, scores = self._repeat(sources)
        try:
            return [_answer(*rows) for _, *rows in zip(sources, outputs, scores, strict=True)]
        except (TypeError, ValueError):
            raise UserError(
                f"{self.server}: signature {self.signature_name!r} of model "
                f"{self.servable_name!r} does not give outputs (string) and scores (float); give "
                "--servable_name of a model that t2t-exporter wrote"
            ) from None

    def _repeat(self, sources: Sequence[str]) -> tuple[Any, Any]:
        """Sends a request. Repeats it after temporary errors, which gRPC itself would do at most
        four times.
        """
        repetitions = 0
        while True:
            try:
                return self._predict(sources)
            except RequestError as error:
                if error.code not in TEMPORARY or repetitions == self.retries:
                    other = "check --signature_name, --target_language and the server's log"
                    cure = CURES.get(error.code, other)
                    raise UserError(f"{self.server}: {error}; {cure}") from None
                if not repetitions:
                    times = counted(self.retries, "time")
                    say(f"{self.server}: {error}; trying again up to {times}")
            time.sleep(min(FIRST_PAUSE * 2**repetitions, MAX_PAUSE))
            repetitions += 1

    def _inputs(self, texts: Sequence[str]) -> dict[str, list[str]]:
        """Returns the signature's inputs. Only models with several target languages take the
        language of each text.
        """
        has_languages = self.target_language or all(split_tag(text)[0] for text in texts)
        inputs = {"inputs": list(texts)}
        if has_languages:
            inputs["target_language"] = [self.target_language] * len(texts)
        return inputs

    @functools.cached_property
    def _channel(self) -> Any:
        import grpc

        options = {
            "grpc.max_receive_message_length": MAX_ANSWER_BYTES,
            "grpc.enable_http_proxy": 0,
            # While gRPC waits to reconnect, every call fails. Keep this wait short, because the
            # client makes pauses.
            "grpc.initial_reconnect_backoff_ms": 100,
            "grpc.max_reconnect_backoff_ms": 400,
        }
        return grpc.insecure_channel(self.server, options=[*options.items()])

    def _predict_grpc(self, texts: Sequence[str]) -> tuple[Any, Any]:
        """Sends `texts` [B]. Returns the signature's "outputs" and "scores", which should be lists
        [B, n] or [B].
        """
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest
        from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

        request = PredictRequest()
        request.model_spec.name = self.servable_name
        request.model_spec.signature_name = self.signature_name
        if self.servable_version:
            request.model_spec.version.value = self.servable_version
        for name, column in self._inputs(texts).items():
            values = [text.encode("utf-8") for text in column]
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values, tf.string))
        stub = PredictionServiceStub(self._channel)
        try:
            outputs = stub.Predict(request, timeout=self.timeout_secs).outputs
        except grpc.RpcError as error:
            code = error.code().name
            raise RequestError(code, error.details() or code) from None
        strings = [
            value.decode("utf-8", errors="replace") for value in outputs["outputs"].string_val
        ]
        return _rows(strings, len(texts)), _rows(list(outputs["scores"].float_val), len(texts))

    def _predict_rest(self, texts: Sequence[str]) -> tuple[Any, Any]:
        """Does what `_predict_grpc` does, over the REST API."""
        request = {"signature_name": self.signature_name, "inputs": self._inputs(texts)}
        answered: Future[tuple[int, str]] = Future()

        def post() -> None:
            try:
                answered.set_result(self._post(json.dumps(request).encode()))
            except Exception as error:
                answered.set_exception(error)

        # A thread, because a socket's timeout limits only the time between two bytes. At exit,
        # nobody waits for it.
        threading.Thread(target=post, daemon=True).start()
        try:
            status, text = answered.result(self.timeout_secs)
        except TimeoutError:
            raise RequestError("DEADLINE_EXCEEDED", "timed out") from None
        except (OSError, HTTPException, UnicodeError, OverflowError) as error:
            # The last two mean that the host or port is not valid.
            raise RequestError("UNAVAILABLE", str(error) or type(error).__name__) from None
        try:
            answer = json.loads(text, strict=False, parse_int=float)
        except (ValueError, RecursionError):
            # The answer is an error page, an old server's invalid JSON, or hostile.
            answer = None
        if status != 200 or not isinstance(answer, dict):
            reason = answer.get("error") if isinstance(answer, dict) else text
            raise RequestError(HTTP_CODES.get(status, "UNKNOWN"), f"HTTP {status}, {reason}")
        # If a signature has only one output, the API omits the output's name. The client needs two
        # outputs.
        outputs = answer.get("outputs")
        if not isinstance(outputs, dict):
            return None, None
        return outputs.get("outputs"), outputs.get("scores")

    def _post(self, body: bytes) -> tuple[int, str]:
        """Returns the HTTP status and the text of the server's answer to a request."""
        version = f"/versions/{self.servable_version}" if self.servable_version else ""
        path = f"/v1/models/{quote(self.servable_name, safe='')}{version}:predict"
        data = bytearray()
        connection = HTTPConnection(self.server, timeout=self.timeout_secs)
        with contextlib.closing(connection):
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            with connection.getresponse() as response:
                # `read1` returns what has arrived, whatever length the server claims.
                while piece := response.read1(1 << 16):
                    data += piece
                    if len(data) > MAX_ANSWER_BYTES:
                        excess = f"its answer has more than {MAX_ANSWER_BYTES:,} bytes"
                        raise RequestError("UNKNOWN", f"{excess}; lower --batch_size")
        return response.status, data.decode("utf-8", errors="replace")


def _rows(values: list, count: int) -> list[list]:
    """Returns the values of a tensor [B, n] or [B] as B = `count` rows of equal length, or [] if
    there are none.
    """
    size = len(values) // count
    return [values[start : start + size] for start in range(0, len(values), size)] if size else []


def _answer(texts: Any, scores: Any) -> Answer:
    """Returns the Answer for one text, whose hypotheses are `texts` and `scores`, or a single
    hypothesis.

    Raises ValueError or TypeError if a text is not a string, a score is not a float, or their
    numbers differ.
    """
    pairs = list(zip(texts, scores, strict=True)) if isinstance(texts, list) else [(texts, scores)]
    for text, score in pairs:
        if not isinstance(text, str) or not isinstance(score, float):
            raise TypeError
    if not pairs:
        raise ValueError
    # If a text has fewer than n hypotheses, the model adds empty hypotheses with score -inf. Drop
    # them.
    kept = [(text, score) for text, score in pairs if score != -math.inf]
    if not kept:
        raise UserError(
            "the model gives all outputs the probability 0: its training has diverged; export "
            "another one"
        )
    return Answer(tuple(text for text, _ in kept), tuple(score for _, score in kept))
