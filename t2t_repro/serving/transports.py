"""The client's connections to TensorFlow Serving: `Grpc`, and `Rest`, which does not import TensorFlow.

Connections are not encrypted and use no proxy. In shapes, B is the number of texts in a request and n is the number of
hypotheses per text.
"""

from __future__ import annotations

import enum
import json
import math
import re
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from typing import Any, NamedTuple, Protocol
from urllib.parse import quote

from t2t_repro.serving.deadline_http import MAX_ANSWER_BYTES, DeadlineConnection, TooLargeError

NOT_METADATA = "not TensorFlow Serving's metadata"
OUTPUTS = ("outputs", "scores")
"""Names of the outputs that the client reads. A transport skips all others."""
MAX_VALUES = 1 << 22
"""Maximum number of values in an output. A gRPC message of a few bytes can describe a tensor of any size."""


class Servable(NamedTuple):
    """A model on a server, by name and version."""

    name: str
    version: int | None
    """Number of the version; None for the latest."""


class Metadata(NamedTuple):
    """The server's description of a model."""

    version: str
    signatures: dict[str, dict[str, str]]
    """For each signature, the types of its inputs, by input name."""


class Transport(Protocol):
    """A connection to a server, whose address is host:port. Methods raise TransportError if their request fails."""

    def __init__(self, server: str, timeout_secs: float) -> None: ...

    def predict(self, servable: Servable, signature: str, texts: Sequence[str]) -> dict[str, Any]:
        """Sends `texts` [B] to a signature. Returns those of its outputs that are in `OUTPUTS`, by name.

        An output should be a list [B] or [B, n]. The transport does not check this.
        """

    def metadata(self, servable: Servable) -> Metadata:
        """Returns the server's description of a model."""

    def close(self) -> None:
        """Closes the connection."""


class Cause(enum.Enum):
    """Reasons why a request failed. The value of each reason lists the status codes of gRPC and HTTP that mean it."""

    UNAVAILABLE = ("UNAVAILABLE", 502, 503)
    """The server cannot be reached, or reports that it is unavailable."""
    TIMEOUT = ("DEADLINE_EXCEEDED",)
    """The server did not answer in time."""
    NOT_FOUND = ("NOT_FOUND", 404)
    """The server does not have the model or the version that the request names."""
    REFUSED = ("INVALID_ARGUMENT", "FAILED_PRECONDITION", 400)
    """The server rejected the request as invalid."""
    OTHER = ()


class TransportError(Exception):
    """A failed request: its cause, and the explanation that the server or the operating system gave."""

    def __init__(self, code: str | int, detail: str) -> None:
        super().__init__(detail)
        self.detail = printable(detail)
        self.cause = next((cause for cause in Cause if code in cause.value), Cause.OTHER)


def printable(text: str) -> str:
    """Returns the beginning of a text from a server, in one line of at most 300 characters, all of them printable."""
    line = " ".join("".join(char if char.isprintable() else " " for char in text[:1000]).split())
    return line if len(line) <= 300 and len(text) <= 1000 else f"{line[:296]} ..."


class Grpc(Transport):
    """Sends requests over gRPC. The package tensorflow-serving-api, which this class imports, imports TensorFlow."""

    def __init__(self, server: str, timeout_secs: float) -> None:
        import grpc
        from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

        self._error, self._timeout_secs = grpc.RpcError, timeout_secs
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

    def predict(self, servable: Servable, signature: str, texts: Sequence[str]) -> dict[str, Any]:
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = PredictRequest(model_spec=_model_spec(servable, signature))
        request.inputs["inputs"].CopyFrom(tf.make_tensor_proto([text.encode("utf-8") for text in texts], tf.string))
        response = self._call(self._stub.Predict, request)
        return {name: tensor_values(response.outputs[name]) for name in OUTPUTS if name in response.outputs}

    def metadata(self, servable: Servable) -> Metadata:
        from google.protobuf.message import DecodeError
        from tensorflow.core.framework.types_pb2 import DataType
        from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest, SignatureDefMap

        request = GetModelMetadataRequest(model_spec=_model_spec(servable), metadata_field=["signature_def"])
        response = self._call(self._stub.GetModelMetadata, request)
        definitions = SignatureDefMap()
        try:
            response.metadata["signature_def"].Unpack(definitions)
            types = {
                signature: {name: DataType.Name(tensor.dtype) for name, tensor in definition.inputs.items()}
                for signature, definition in definitions.signature_def.items()
            }
        except (DecodeError, ValueError):  # the bytes are no SignatureDefMap, or a type is unknown
            raise TransportError("OK", NOT_METADATA) from None
        return Metadata(str(response.model_spec.version.value), _public(types))

    def _call(self, method: Callable[..., Any], request: Any) -> Any:
        try:
            return method(request, timeout=self._timeout_secs)
        except self._error as error:
            code = error.code().name
            # If the host has several addresses, gRPC lists the failure of each one. Keep only the last.
            detail = (error.details() or code).rpartition("last error: ")[2]
            raise TransportError(code, detail) from None


class Rest(Transport):
    """Sends requests over TensorFlow Serving's REST API. The connection stays open between requests."""

    def __init__(self, server: str, timeout_secs: float) -> None:
        self._connection, self._timeout_secs = DeadlineConnection(server), timeout_secs

    def close(self) -> None:
        self._connection.close()

    def predict(self, servable: Servable, signature: str, texts: Sequence[str]) -> dict[str, Any]:
        request = json.dumps({"signature_name": signature, "inputs": {"inputs": list(texts)}}, ensure_ascii=False)
        outputs = self._call("POST", f"{_path(servable)}:predict", request.encode("utf-8")).get("outputs")
        # If a signature has only one output, the API omits the output's name. The client needs two outputs.
        return {name: outputs[name] for name in OUTPUTS if name in outputs} if isinstance(outputs, dict) else {}

    def metadata(self, servable: Servable) -> Metadata:
        response = self._call("GET", f"{_path(servable)}/metadata")
        try:
            types = {
                signature: {name: tensor["dtype"] for name, tensor in definition["inputs"].items()}
                for signature, definition in response["metadata"]["signature_def"]["signature_def"].items()
            }
            version = response["model_spec"]["version"]
            if re.fullmatch(r"\d{1,20}", version, re.ASCII):
                return Metadata(version, _public(types))
        except (KeyError, TypeError, AttributeError):
            pass
        raise TransportError(200, NOT_METADATA)

    def _call(self, method: str, path: str, body: bytes | None = None) -> dict[str, Any]:
        """Sends a request and returns the JSON object in the answer."""
        status, data = self._send(method, path, body)
        text = data.decode("utf-8", errors="replace")
        try:
            response = json.loads(text, strict=False)
        except (ValueError, RecursionError):  # The answer is an error page, an old server's invalid JSON, or hostile.
            response = None
        if status == 200 and isinstance(response, dict):
            return response
        error = response.get("error") if isinstance(response, dict) else None
        reason = error if isinstance(error, str) else text
        raise TransportError(status, f"HTTP {status}, {reason}" if reason else f"HTTP {status}")

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        """Sends a request and returns the answer's status and body."""
        connection, deadline = self._connection, time.monotonic() + self._timeout_secs
        while True:
            was_open = connection.sock is not None
            try:
                return connection.exchange(method, path, body, deadline)
            except TimeoutError:
                connection.close()
                raise TransportError("DEADLINE_EXCEEDED", "timed out") from None
            except TooLargeError:
                connection.close()
                raise TransportError(
                    200, f"its answer has more than {MAX_ANSWER_BYTES:,} bytes; lower --batch_size"
                ) from None
            except UnicodeError:  # A part of the host name is empty or too long.
                connection.close()
                raise TransportError("UNAVAILABLE", "no such host") from None
            except (OSError, HTTPException) as error:
                connection.close()
                # The server may have closed an open connection while it was idle: try once more with a new connection.
                if not was_open:
                    reason = error.strerror or str(error) if isinstance(error, OSError) else "its answer is not HTTP"
                    raise TransportError("UNAVAILABLE", reason) from None


def tensor_values(tensor: Any) -> list:
    """Returns the values of a TensorProto of strings or floats, [B] or [B, n].

    Returns [] for other types and ranks, for more than `MAX_VALUES` values, and for values that do not fit the shape.
    """
    import numpy as np
    import tensorflow as tf

    is_string = tensor.dtype == tf.string.as_datatype_enum
    shape = [dimension.size for dimension in tensor.tensor_shape.dim]
    if not (is_string or tensor.dtype == tf.float32.as_datatype_enum) or len(shape) not in (1, 2):
        return []
    # make_ndarray repeats the last value if there are too few. A server could give one huge string and a huge shape.
    if min(shape) < 0 or math.prod(shape) > MAX_VALUES or (is_string and len(tensor.string_val) != math.prod(shape)):
        return []
    try:
        array = tf.make_ndarray(tensor)
    except (TypeError, ValueError):  # the number of values does not fit the shape
        return []
    decode = np.vectorize(lambda value: value.decode("utf-8", errors="replace"), otypes=[object])
    values: list = (decode(array) if is_string else array).tolist()
    return values


def _model_spec(servable: Servable, signature: str = "") -> Any:
    """Returns the protocol buffer that names a model and one of its signatures."""
    from tensorflow_serving.apis.model_pb2 import ModelSpec

    spec = ModelSpec(name=servable.name, signature_name=signature)
    if servable.version is not None:
        spec.version.value = servable.version
    return spec


def _path(servable: Servable) -> str:
    """Returns the model's path in the REST API."""
    version = "" if servable.version is None else f"/versions/{servable.version}"
    return f"/v1/models/{quote(servable.name, safe='')}{version}"


def _public(types: dict[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Returns all signatures except TensorFlow's internal ones. Types get Python names: DT_STRING becomes "string"."""
    return {
        signature: {name: dtype.removeprefix("DT_").lower() for name, dtype in inputs.items()}
        for signature, inputs in types.items()
        if not signature.startswith("__")
    }
