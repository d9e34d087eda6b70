"""Asks a served model for translations, over gRPC or TensorFlow Serving's REST API; for the latter without TensorFlow.

Shapes: B texts of a request, n hypotheses.
"""

from __future__ import annotations

import contextlib
import enum
import json
import math
import re
import textwrap
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from t2t_repro.data.text_rules import is_empty
from t2t_repro.errors import UserError

T = TypeVar("T")

GRPC_PORT, REST_PORT = 8500, 8501
"""TensorFlow Serving's own."""
LONGEST_PAUSE = 30.0
"""Seconds between two tries, at most."""

WANTED = {"inputs": "string"}
"""What a signature must take."""


class RequestError(UserError):
    """The server could not translate these texts; others it may."""


@dataclass(frozen=True)
class Answer:
    """What the model gave for a text; for an empty text nothing."""

    outputs: tuple[str, ...]
    """Hypotheses, best first; with serving_default one."""
    scores: tuple[float, ...]
    """log P / length penalty of each, in nats."""

    @property
    def text(self) -> str:
        """The best output, or "" where there is none."""
        return self.outputs[0] if self.outputs else ""


EMPTY = Answer((), ())


class Client:
    """A connection to one served model; use it in a `with` block, or close it.

    Args:
        server: host, or host:port.
        servable_name: the model's name on the server.
        rest: speak TensorFlow Serving's REST API in place of gRPC.
        signature_name: serving_default, or nbest for n hypotheses.
        version: of the model; None is the latest.
        timeout_secs: how long a request may take.
        retries: how often a request is repeated while the server cannot be reached or says that it is unavailable.
        first_pause: seconds before the first repetition; each further pause is twice as long.
        tell: called with a line of text before requests are repeated.

    Raises:
        UserError: `server` is none.
    """

    def __init__(
        self,
        server: str,
        servable_name: str,
        *,
        rest: bool = False,
        signature_name: str = "serving_default",
        version: int | None = None,
        timeout_secs: float = 10.0,
        retries: int = 4,
        first_pause: float = 0.5,
        tell: Callable[[str], None] = lambda text: None,
    ) -> None:
        if not re.fullmatch(r"([\w.-]+|\[[\w:.%]+\])(:\d+)?", server, re.ASCII):
            raise UserError(f"--server={server}: give host:port, e.g. localhost:{REST_PORT if rest else GRPC_PORT}")
        if not re.search(r":\d+$", server):
            server += f":{REST_PORT if rest else GRPC_PORT}"
        self._server, self._name, self._version, self._signature = server, servable_name, version, signature_name
        self._timeout, self._tell = timeout_secs, tell
        self._pauses = [min(first_pause * 2**number, LONGEST_PAUSE) for number in range(retries)]
        self._transport: Grpc | Rest = (Rest if rest else Grpc)(server, timeout_secs)

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection."""
        self._transport.close()

    def translate(self, texts: Sequence[str]) -> list[Answer]:
        """What the model gives for each text, in their order; one request.

        Empty texts are not sent.

        Args:
            texts: one line each.

        Raises:
            RequestError: this request failed, e.g. it took too long; another may do.
            UserError: the server cannot be reached, or has no such model or signature, or one of another kind.
        """
        wanted = [number for number, text in enumerate(texts) if not is_empty(text)]
        answers = [EMPTY] * len(texts)
        if wanted:
            place = self._name, self._version, self._signature
            try:
                outputs = self._patiently(lambda: self._transport.predict(*place, [texts[number] for number in wanted]))
            except Failure as failure:
                raise self._explained(failure) from None
            for number, answer in zip(wanted, self._read(outputs, len(wanted)), strict=True):
                answers[number] = answer
        return answers

    def _patiently(self, call: Callable[[], T]) -> T:
        """Calls it again after pauses while the server is away."""
        for number, pause in enumerate(self._pauses):
            try:
                return call()
            except Failure as failure:
                if failure.trouble is not Trouble.AWAY:
                    raise
                if number == 0:
                    self._tell(f"{self._server}: {failure.detail}; trying again for {sum(self._pauses):g} s")
            time.sleep(pause)
        return call()

    def _read(self, outputs: Mapping[str, list], count: int) -> list[Answer]:
        """Columns "outputs" [B] or [B, n] and "scores", alike, -> B answers."""
        found = []
        for texts, scores in zip(outputs.get("outputs", []), outputs.get("scores", []), strict=False):
            pairs = list(zip(_row(texts), _row(scores), strict=False))
            kept = [(text, score) for text, score in pairs if score != -math.inf]  # there may be fewer than n
            if pairs and all(isinstance(text, str) for text, _ in pairs):
                found.append(Answer(tuple(text for text, _ in kept), tuple(score for _, score in kept)))
        if len(found) != count:
            raise UserError(
                f"signature {self._signature!r} of model {self._name!r} on {self._server} does not give outputs "
                "(string) and scores (float); give --servable_name of a model that t2t-exporter has written"
            )
        return found

    def _explained(self, failure: Failure) -> UserError:
        """The error for what failed, and its cure."""
        if failure.trouble is Trouble.AWAY:
            return UserError(
                f"{self._server}: not available ({failure.detail}); see that a server runs there and is ready, or mend "
                f"--server (TensorFlow Serving's ports are {GRPC_PORT} for gRPC and {REST_PORT} for --rest)"
            )
        if failure.trouble is Trouble.LATE:
            return RequestError(
                f"no answer from {self._server} within {self._timeout:g} s; raise --timeout_secs, lower --batch_size, "
                "or see whether the server is well"
            )
        found = self._mismatch() if failure.trouble in (Trouble.REFUSED, Trouble.UNKNOWN) else None
        return found or RequestError(f"{self._server}: {failure.detail}; its log may say more")

    def _mismatch(self) -> UserError | None:
        """The error where the server has not what is asked for, by its own account of what it has."""
        name = self._name
        try:
            _, signatures = self._transport.metadata(name, self._version)
        except Failure as failure:
            return self._unknown() if failure.trouble is Trouble.UNKNOWN else None
        fitting = " or ".join(sorted(each for each, inputs in signatures.items() if inputs == WANTED))
        cure = f"--signature_name={fitting}" if fitting else "--servable_name of a model that t2t-exporter has written"
        inputs = signatures.get(self._signature)
        if inputs is None:
            there = ", ".join(sorted(signatures)) or "none"
            return UserError(
                f"model {name!r} on {self._server} has no signature {self._signature!r}; there are: {there}; "
                f"give {cure}"
            )
        if inputs != WANTED:
            takes = ", ".join(f"{each} ({kind})" for each, kind in sorted(inputs.items())) or "nothing"
            return UserError(
                f"signature {self._signature!r} of model {name!r} on {self._server} takes {takes}, not inputs "
                f"(string) alone; give {cure}"
            )
        return None

    def _unknown(self) -> UserError:
        """The error where there is no such model, or not this version of it."""
        name = self._name
        if self._version is not None:
            with contextlib.suppress(Failure):
                latest, _ = self._transport.metadata(name, None)
                return UserError(
                    f"model {name!r} on {self._server} has no version {self._version}; the latest is {latest}: give "
                    "that as --servable_version, or leave it out"
                )
        return UserError(
            f"{self._server} serves no model {name!r}; give --servable_name as the server has it: its --model_name, or "
            "the name in its models.config"
        )


class Trouble(enum.Enum):
    """Why a request failed."""

    AWAY = enum.auto()
    """The server cannot be reached, or says that it is unavailable."""
    LATE = enum.auto()
    """No answer in time."""
    UNKNOWN = enum.auto()
    """The server has not what is named in the request."""
    REFUSED = enum.auto()
    """The request is not as the server wants it."""
    FAILED = enum.auto()
    """Anything else."""


TROUBLES: dict[str | int, Trouble] = {
    "UNAVAILABLE": Trouble.AWAY,
    "DEADLINE_EXCEEDED": Trouble.LATE,
    "NOT_FOUND": Trouble.UNKNOWN,
    "INVALID_ARGUMENT": Trouble.REFUSED,
    "FAILED_PRECONDITION": Trouble.REFUSED,
    400: Trouble.REFUSED,
    404: Trouble.UNKNOWN,
    502: Trouble.AWAY,
    503: Trouble.AWAY,
}
"""By gRPC's codes and HTTP's; all others are FAILED."""


class Failure(Exception):  # noqa: N818, it becomes a UserError
    """A request that failed.

    Args:
        trouble: why.
        detail: the same in the server's or the system's words.
    """

    def __init__(self, trouble: Trouble, detail: str) -> None:
        super().__init__(detail)
        printable = "".join(sign if sign.isprintable() else " " for sign in detail)
        self.trouble, self.detail = trouble, textwrap.shorten(printable, 300, placeholder=" ...")


class Grpc:
    """gRPC without encryption, past any proxy."""

    def __init__(self, server: str, timeout: float) -> None:
        import grpc
        from tensorflow_serving.apis.prediction_service_pb2_grpc import PredictionServiceStub

        self._error, self._timeout = grpc.RpcError, timeout
        self._channel = grpc.insecure_channel(
            server,
            options=[
                ("grpc.max_receive_message_length", -1),
                ("grpc.max_send_message_length", -1),
                ("grpc.enable_http_proxy", 0),
                # Between two tries to connect a channel answers for the server; when to try is decided here.
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.max_reconnect_backoff_ms", 400),
            ],
        )

        self._stub = PredictionServiceStub(self._channel)

    def close(self) -> None:
        """Ends the connection."""
        self._channel.close()

    def predict(self, name: str, version: int | None, signature: str, texts: Sequence[str]) -> dict[str, list]:
        """Columns of what the signature gives for "inputs", each [B] or [B, n].

        Raises:
            Failure: no answer, or an error for one.
        """
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = PredictRequest(model_spec=self._model(name, version, signature))
        request.inputs["inputs"].CopyFrom(tf.make_tensor_proto([text.encode("utf-8") for text in texts], tf.string))
        response = self._call(self._stub.Predict, request)
        return {key: tensor_values(tensor) for key, tensor in response.outputs.items()}

    def metadata(self, name: str, version: int | None) -> tuple[str, dict[str, dict[str, str]]]:
        """The model's version, and of each signature the inputs and their types.

        Raises:
            Failure: no answer, or an error for one.
        """
        from tensorflow.core.framework.types_pb2 import DataType
        from tensorflow_serving.apis.get_model_metadata_pb2 import GetModelMetadataRequest, SignatureDefMap

        request = GetModelMetadataRequest(model_spec=self._model(name, version), metadata_field=["signature_def"])
        response = self._call(self._stub.GetModelMetadata, request)
        found = SignatureDefMap()
        response.metadata["signature_def"].Unpack(found)
        return str(response.model_spec.version.value), {
            signature: {
                key: DataType.Name(info.dtype).removeprefix("DT_").lower() for key, info in definition.inputs.items()
            }
            for signature, definition in found.signature_def.items()
            if not signature.startswith("__")
        }

    def _model(self, name: str, version: int | None, signature: str = "") -> Any:
        from tensorflow_serving.apis.model_pb2 import ModelSpec

        model = ModelSpec(name=name, signature_name=signature)
        if version is not None:
            model.version.value = version
        return model

    def _call(self, call: Callable[..., Any], request: Any) -> Any:
        try:
            return call(request, timeout=self._timeout)
        except self._error as error:
            code = error.code().name
            detail = (error.details() or code).rpartition("last error: ")[2]  # of all addresses that were tried
            raise Failure(TROUBLES.get(code, Trouble.FAILED), detail) from None


class Rest:
    """HTTP without encryption, past any proxy, on a connection that is kept."""

    def __init__(self, server: str, timeout: float) -> None:
        from http.client import HTTPConnection

        self._connection = HTTPConnection(server, timeout=timeout)

    def close(self) -> None:
        """Ends the connection."""
        self._connection.close()

    def predict(self, name: str, version: int | None, signature: str, texts: Sequence[str]) -> dict[str, list]:
        """As `Grpc.predict`."""
        request = json.dumps({"signature_name": signature, "inputs": {"inputs": list(texts)}}, ensure_ascii=False)
        outputs = self._call("POST", f"{_path(name, version)}:predict", request.encode("utf-8")).get("outputs")
        # Of a signature with one output its name is left out.
        return outputs if isinstance(outputs, dict) else {"": outputs or []}

    def metadata(self, name: str, version: int | None) -> tuple[str, dict[str, dict[str, str]]]:
        """As `Grpc.metadata`."""
        response = self._call("GET", f"{_path(name, version)}/metadata", None)
        try:
            return str(response["model_spec"]["version"]), {
                signature: {
                    key: value["dtype"].removeprefix("DT_").lower() for key, value in definition["inputs"].items()
                }
                for signature, definition in response["metadata"]["signature_def"]["signature_def"].items()
                if not signature.startswith("__")
            }
        except (KeyError, TypeError, AttributeError):
            raise Failure(Trouble.FAILED, "not TensorFlow Serving's metadata") from None

    def _call(self, method: str, path: str, body: bytes | None) -> dict[str, Any]:
        status, data = self._send(method, path, body)
        text = data.decode("utf-8", errors="replace")
        try:
            response = json.loads(text, strict=False)
        except ValueError:  # an error page; and older versions of TensorFlow Serving write errors that are no JSON
            response = None
        if status == 200 and isinstance(response, dict):
            return response
        reason = response.get("error") if isinstance(response, dict) else text
        detail = f"HTTP {status}, {reason}" if reason else f"HTTP {status}"
        raise Failure(TROUBLES.get(status, Trouble.FAILED), detail)

    def _send(self, method: str, path: str, body: bytes | None) -> tuple[int, bytes]:
        from http.client import HTTPException

        connection = self._connection
        while True:
            is_kept = connection.sock is not None
            try:
                connection.request(method, path, body, {"Content-Type": "application/json"})
                response = connection.getresponse()
                return response.status, response.read()
            except TimeoutError:
                connection.close()
                raise Failure(Trouble.LATE, "timed out") from None
            except UnicodeError:  # of a name that no host can have
                raise Failure(Trouble.AWAY, "no such host") from None
            except (OSError, HTTPException) as error:
                connection.close()
                if not is_kept:  # a kept connection may have been closed by the server meanwhile: once more
                    detail = error.strerror or str(error) if isinstance(error, OSError) else "its answer is not HTTP"
                    raise Failure(Trouble.AWAY, detail) from None


def tensor_values(tensor: Any) -> list:
    """The strings or floats of a TensorProto, [B] or [B, n]; of other types and ranks none."""
    import numpy as np
    import tensorflow as tf

    if tensor.dtype not in (tf.string.as_datatype_enum, tf.float32.as_datatype_enum):
        return []
    array = tf.make_ndarray(tensor)
    if array.ndim not in (1, 2):
        return []
    if tensor.dtype == tf.float32.as_datatype_enum:
        return array.tolist()
    rows = [[value.decode("utf-8", errors="replace") for value in row] for row in np.atleast_2d(array)]
    return rows if array.ndim == 2 else rows[0]


def _row(value: Any) -> list:
    return value if isinstance(value, list) else [value]


def _path(name: str, version: int | None) -> str:
    from urllib.parse import quote

    return f"/v1/models/{quote(name, safe='')}" + ("" if version is None else f"/versions/{version}")
