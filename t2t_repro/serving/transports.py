"""The client's connections to TensorFlow Serving: `Grpc`, and `Rest`, which does not import TensorFlow.

Connections are not encrypted and use no proxy. In shapes, B is the number of texts in a request and n is the number of
hypotheses per text.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from t2t_repro.errors import shortened

MAX_ANSWER_BYTES = 64 << 20
"""Maximum size of an answer. The answer to 1,000 texts has about 1 MB."""
HTTP_CODES = {404: "NOT_FOUND", 502: "UNAVAILABLE", 503: "UNAVAILABLE"}
"""HTTP status codes for which the client needs gRPC's name of the error."""


class Signature(NamedTuple):
    """A signature of a model on a server."""

    model: str
    name: str
    version: int | None
    """Version of the model; None for the latest."""


class TransportError(Exception):
    """A failed request: a status code of gRPC, such as UNAVAILABLE, and the server's or system's explanation."""

    def __init__(self, code: str, detail: str) -> None:
        super().__init__(detail)
        self.code, self.detail = code, shortened(" ".join(detail.split()), 300)


class Transport(Protocol):
    """A connection to one signature on a server, whose address is host:port. A request may take `timeout_secs`."""

    def __init__(self, server: str, signature: Signature, timeout_secs: float) -> None: ...

    def predict(self, texts: Sequence[str]) -> tuple[Any, Any]:
        """Sends `texts` [B]. Returns the signature's "outputs" and "scores", which should be lists [B, n] or [B].

        The transport does not check them. Raises TransportError if the request fails.
        """

    def close(self) -> None: ...


class Grpc(Transport):
    """Sends requests over gRPC. The package tensorflow-serving-api, which this class imports, imports TensorFlow."""

    def __init__(self, server: str, signature: Signature, timeout_secs: float) -> None:
        import grpc
        from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

        self._signature, self._timeout_secs = signature, timeout_secs
        self._channel = grpc.insecure_channel(
            server,
            options=[
                ("grpc.max_receive_message_length", MAX_ANSWER_BYTES),
                ("grpc.max_send_message_length", -1),
                ("grpc.enable_http_proxy", 0),
                # While gRPC waits to reconnect, every call fails immediately. Keep this wait short, because the
                # client decides when to retry.
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 400),
            ],
        )
        self._stub = PredictionServiceStub(self._channel)

    def close(self) -> None:
        self._channel.close()

    def predict(self, texts: Sequence[str]) -> tuple[Any, Any]:
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = self._signature.model, self._signature.name
        if self._signature.version is not None:
            request.model_spec.version.value = self._signature.version
        request.inputs["inputs"].CopyFrom(tf.make_tensor_proto([text.encode("utf-8") for text in texts], tf.string))
        try:
            outputs = self._stub.Predict(request, timeout=self._timeout_secs).outputs
        except grpc.RpcError as error:
            code = error.code().name
            raise TransportError(code, error.details() or code) from None
        strings = [value.decode("utf-8", errors="replace") for value in outputs["outputs"].string_val]
        return _rows(strings, len(texts)), _rows(list(outputs["scores"].float_val), len(texts))


class Rest(Transport):
    """Sends requests over TensorFlow Serving's REST API. The connection stays open between requests."""

    def __init__(self, server: str, signature: Signature, timeout_secs: float) -> None:
        import urllib3

        # The package `requests` would read the whole body of a redirect into memory, even if it must not follow it.
        self._pool = urllib3.PoolManager(
            headers={"Content-Type": "application/json"}, timeout=timeout_secs, retries=False
        )
        version = "" if signature.version is None else f"/versions/{signature.version}"
        self._url = f"http://{server}/v1/models/{quote(signature.model, safe='')}{version}:predict"
        self._signature, self._timeout_secs = signature, timeout_secs

    def close(self) -> None:
        self._pool.clear()

    def predict(self, texts: Sequence[str]) -> tuple[Any, Any]:
        request = {"signature_name": self._signature.name, "inputs": {"inputs": list(texts)}}
        status, text = self._post_in_time(json.dumps(request))
        try:
            answer = json.loads(text, strict=False, parse_int=float)
        except (ValueError, RecursionError):  # The answer is an error page, an old server's invalid JSON, or hostile.
            answer = None
        if status != 200 or not isinstance(answer, dict):
            error = answer.get("error") if isinstance(answer, dict) else text
            raise TransportError(HTTP_CODES.get(status, "UNKNOWN"), f"HTTP {status}, {error}")
        # If a signature has only one output, the API omits the output's name. The client needs two outputs.
        outputs = answer.get("outputs")
        return (outputs.get("outputs"), outputs.get("scores")) if isinstance(outputs, dict) else (None, None)

    def _post_in_time(self, body: str) -> tuple[int, str]:
        """Returns the status and the text of the answer, or raises TransportError after the timeout.

        urllib3's timeouts limit the time between two bytes of an answer. To limit the time of all bytes, a thread waits
        for them. Python ends without waiting for this thread.
        """
        answer: Future[tuple[int, str]] = Future()

        def post() -> None:
            try:
                answer.set_result(self._post(body))
            except BaseException as error:
                answer.set_exception(error)

        threading.Thread(target=post, daemon=True).start()
        try:
            return answer.result(self._timeout_secs)
        except TimeoutError:
            raise TransportError("DEADLINE_EXCEEDED", "timed out") from None

    def _post(self, body: str) -> tuple[int, str]:
        from urllib3.exceptions import HTTPError

        data = bytearray()
        try:
            with self._pool.request("POST", self._url, body=body, redirect=False, preload_content=False) as response:
                # read1 returns only what has arrived, whatever length the server claims. Answers are not unpacked.
                while piece := response.read1(1 << 16, decode_content=False):
                    data += piece
                    if len(data) > MAX_ANSWER_BYTES:
                        raise TransportError(
                            "UNKNOWN", f"its answer has more than {MAX_ANSWER_BYTES:,} bytes; lower --batch_size"
                        )
        except HTTPError as error:
            raise TransportError("UNAVAILABLE", _first_cause(error)) from None
        return response.status, data.decode("utf-8", errors="replace")


def _rows(values: list, count: int) -> list[list]:
    """Returns the values of a tensor [B, n] or [B] as B = `count` rows of equal length, or [] if there are none."""
    size = len(values) // count
    return [values[start : start + size] for start in range(0, len(values), size)] if size else []


def _first_cause(error: BaseException) -> str:
    """Returns the system's words for an error, such as "Connection refused", without those of the libraries."""
    while error.__context__:
        error = error.__context__
    return (isinstance(error, OSError) and error.strerror) or str(error)
