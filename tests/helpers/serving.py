"""A server in Python that runs SavedModels and has TensorFlow Serving's gRPC and REST interfaces.

Tests can make requests fail. The gRPC interface uses the PredictionService and the messages of tensorflow-serving-api.
The REST interface has the paths, JSON format, status codes and messages of TensorFlow Serving's
http_rest_api_handler.cc and json_tensor.cc.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import grpc
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401, the graphs use its operations
from google.protobuf import json_format
from tensorflow.core.protobuf import saved_model_pb2
from tensorflow_serving.apis import (
    get_model_metadata_pb2,
    model_pb2,
    predict_pb2,
    prediction_service_pb2_grpc,
)

Arrays = dict[str, np.ndarray]

HTTP_STATUS = {
    grpc.StatusCode.INVALID_ARGUMENT: 400,
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.RESOURCE_EXHAUSTED: 429,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
    grpc.StatusCode.DEADLINE_EXCEEDED: 504,
}
PREDICT = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict")
METADATA = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?/metadata")


class Refused(Exception):  # noqa: N818
    """An error that the server sends as the answer to a request: a gRPC status code and a message."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code, self.message = code, message


@dataclass
class Faults:
    """Faults that the server simulates for requests with `text` in an input, or for all requests if `text` is empty."""

    text: str = ""
    seconds: float = 0.0
    """Seconds that the server waits before it answers."""
    unavailable: int = 0
    """Number of requests that the server will still answer with the error UNAVAILABLE."""
    code: grpc.StatusCode | None = None
    """The error with which the server answers; None to answer with the model's outputs."""
    hangs_up: bool = False
    """If True, the server closes every HTTP connection after one answer, without a "Connection: close" header."""

    def apply(self, inputs: Arrays) -> None:
        """Simulates the faults for a request with these inputs: waits, and raises Refused if the request must fail."""
        if not any(self.text.encode() in text for array in inputs.values() for text in array.astype("S").flat):
            return
        time.sleep(self.seconds)
        if self.unavailable:
            self.unavailable -= 1
            raise Refused(grpc.StatusCode.UNAVAILABLE, "The batch scheduling queue is full")
        if self.code:
            raise Refused(self.code, "[_Derived_] something\n\t [[{{node it}}]] «broke»\x1b")


@dataclass
class Served:
    """The server's models as {name: {version: folder of the SavedModel}}, its faults and a record of its requests."""

    models: Mapping[str, Mapping[int, Path]]
    faults: Faults = field(default_factory=Faults)
    batches: list[int] = field(default_factory=list)
    """Number of texts in each request, in the order of the requests."""
    connections: int = 0
    """Number of HTTP connections that clients have opened."""
    grpc: str = ""
    """Address host:port of the gRPC interface."""
    rest: str = ""
    """Address host:port of the REST interface."""
    _loaded: dict[Path, Any] = field(default_factory=dict)

    def load(self) -> None:
        """Loads all versions of all models, as TensorFlow Serving does before it answers requests."""
        for versions in self.models.values():
            for path in versions.values():
                self._loaded[path] = tf.saved_model.load(str(path)).signatures

    def find(self, name: str, version: int | None) -> tuple[int, Path]:
        """Returns a version of a model (the highest if `version` is None) and the folder of its SavedModel."""
        versions = self.models.get(name, {})
        number = max(versions, default=None) if version is None else version
        if number not in versions:
            request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise Refused(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {request}")
        return number, versions[number]

    def signatures(self, name: str, version: int | None) -> tuple[int, Any]:
        """Returns a version of a model (the highest if `version` is None) and the signatures in its SavedModel."""
        version, path = self.find(name, version)
        saved = saved_model_pb2.SavedModel.FromString((path / "saved_model.pb").read_bytes())
        return version, saved.meta_graphs[0].signature_def

    def predict(self, name: str, version: int | None, signature: str, inputs: Arrays) -> Arrays:
        """Returns a model's outputs for the inputs of a request, unless a simulated fault raises Refused."""
        call = self._loaded[self.find(name, version)[1]].get(signature or "serving_default")
        if call is None:
            raise Refused(grpc.StatusCode.FAILED_PRECONDITION, f'Serving signature key "{signature}" not found.')
        specs = call.structured_input_signature[1]
        if specs.keys() != inputs.keys():
            names, expected = (",".join(sorted(tensors)) for tensors in (inputs, specs))
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT,
                f"input size does not match signature: {len(inputs)}!={len(specs)} len({{{names}}}) != "
                f"len({{{expected}}}).",
            )
        self.batches.append(len(next(iter(inputs.values()))))
        self.faults.apply(inputs)
        try:
            tensors = {key: tf.constant(value, specs[key].dtype) for key, value in inputs.items()}
            return {key: value.numpy() for key, value in call(**tensors).items()}
        except (tf.errors.InvalidArgumentError, TypeError, ValueError) as error:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, str(error)) from None


@contextmanager
def serve(models: Mapping[str, Mapping[int, Path]], port: int = 0) -> Iterator[Served]:
    """Serves models on this machine until the `with` block ends.

    Args:
        models: folders of SavedModels, as {name: {version: folder}}.
        port: the port of the gRPC interface; 0 chooses a free port.
    """
    served = Served(models)
    served.load()
    service = grpc.server(futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_Service(served), service)
    served.grpc = f"localhost:{service.add_insecure_port(f'localhost:{port}')}"
    service.start()
    web = ThreadingHTTPServer(("localhost", 0), type("Handler", (_Handler,), {"served": served}))
    served.rest = f"localhost:{web.server_address[1]}"
    thread = threading.Thread(target=web.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield served
    finally:
        service.stop(None)
        web.shutdown()
        thread.join()
        web.server_close()


class _Service(prediction_service_pb2_grpc.PredictionServiceServicer):
    def __init__(self, served: Served) -> None:
        self._served = served

    def Predict(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        inputs = {key: tf.make_ndarray(tensor) for key, tensor in request.inputs.items()}
        try:
            outputs = self._served.predict(*_model(request), request.model_spec.signature_name, inputs)
        except Refused as refused:
            context.abort(refused.code, refused.message)
        response = predict_pb2.PredictResponse(model_spec=request.model_spec)
        for key, array in outputs.items():
            # TensorFlow Serving stores each value in a typed field (Tensor::AsProtoField), not in `tensor_content`.
            tensor = response.outputs[key]
            tensor.dtype = tf.as_dtype(array.dtype).as_datatype_enum
            tensor.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
            values = {"O": tensor.string_val, "f": tensor.float_val, "i": tensor.int_val}[array.dtype.kind]
            values.extend(array.ravel().tolist())
        return response

    def GetModelMetadata(self, request: Any, context: grpc.ServicerContext) -> Any:  # noqa: N802
        assert list(request.metadata_field) == ["signature_def"]
        try:
            version, signatures = self._served.signatures(*_model(request))
        except Refused as refused:
            context.abort(refused.code, refused.message)
        response = get_model_metadata_pb2.GetModelMetadataResponse(
            model_spec=_model_spec(request.model_spec.name, version)
        )
        response.metadata["signature_def"].Pack(_signature_map(signatures))
        return response


def _model(request: Any) -> tuple[str, int | None]:
    model = request.model_spec
    return model.name, model.version.value if model.HasField("version") else None


def _model_spec(name: str, version: int) -> Any:
    model = model_pb2.ModelSpec(name=name)
    model.version.value = version
    return model


def _signature_map(signatures: Mapping[str, Any]) -> Any:
    signature_map = get_model_metadata_pb2.SignatureDefMap()
    for name, signature in signatures.items():
        signature_map.signature_def[name].CopyFrom(signature)
    return signature_map


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: Served

    def setup(self) -> None:
        super().setup()
        self.served.connections += 1

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self._answer(lambda: self._predict(body))

    def do_GET(self) -> None:
        self._answer(self._metadata)

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self, call: Any) -> None:
        status = 200
        self.close_connection |= self.served.faults.hangs_up
        try:
            reply = call()
        except Refused as refused:
            status, reply = HTTP_STATUS[refused.code], {"error": refused.message}
        data = json.dumps(reply, ensure_ascii=False, indent=4).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:  # the client closed the connection before the answer
            self.close_connection = True

    def _place(self, pattern: re.Pattern[str]) -> tuple[str, int | None]:
        match = pattern.fullmatch(self.path)
        if not match:
            raise Refused(grpc.StatusCode.INVALID_ARGUMENT, f"Malformed request: {self.command} {self.path}")
        return unquote(match[1]), int(match[2]) if match[2] else None

    def _predict(self, body: bytes) -> dict[str, Any]:
        name, version = self._place(PREDICT)
        request = json.loads(body)
        signature = request.get("signature_name", "serving_default")
        signatures = self.served.signatures(name, version)[1]
        if signature not in signatures:
            raise Refused(
                grpc.StatusCode.INVALID_ARGUMENT, f'Serving signature name: "{signature}" not found in signature def'
            )
        names = sorted(signatures[signature].inputs)
        if "instances" in request:
            columns = _columns(request["instances"], names)
        else:
            inputs = request["inputs"]
            columns = inputs if isinstance(inputs, dict) else {names[0]: inputs}
        for input_name in names:
            if input_name not in columns:
                raise Refused(
                    grpc.StatusCode.INVALID_ARGUMENT, f"Missing named input: {input_name} in 'inputs' object."
                )
        arrays = {key: np.array(columns[key], dtype=object) for key in names}
        arrays = {
            key: np.array([text.encode() for text in array.flat], object).reshape(array.shape)
            if all(isinstance(text, str) for text in array.flat) else array
            for key, array in arrays.items()
        }  # fmt: skip
        outputs = self.served.predict(name, version, signature, arrays)
        values = {key: _json_values(array) for key, array in outputs.items()}
        if "instances" in request:
            rows = [dict(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]
            return {"predictions": rows if len(values) > 1 else [row[next(iter(values))] for row in rows]}
        return {"outputs": values if len(values) > 1 else next(iter(values.values()))}

    def _metadata(self) -> dict[str, Any]:
        name, version = self._place(METADATA)
        version, signatures = self.served.signatures(name, version)
        options = {"preserving_proto_field_name": True, "always_print_fields_with_no_presence": True}
        return {
            "model_spec": json_format.MessageToDict(_model_spec(name, version), **options),
            "metadata": {"signature_def": json_format.MessageToDict(_signature_map(signatures), **options)},
        }


def _columns(instances: list, names: list[str]) -> dict[str, list]:
    """Returns the values of each input as {name: values} from the "instances" of a REST request.

    An instance is a JSON object with the value of each input, or the value itself if the model has only one input.
    """
    if not instances:
        raise Refused(grpc.StatusCode.INVALID_ARGUMENT, "No values in 'instances' array")
    rows = [row if isinstance(row, dict) else {names[0]: row} for row in instances]
    return {key: [row[key] for row in rows] for key in rows[0]}


def _json_values(array: np.ndarray) -> Any:
    if array.dtype.kind != "O":
        return array.tolist()
    return np.array([text.decode(errors="replace") for text in array.flat], object).reshape(array.shape).tolist()
