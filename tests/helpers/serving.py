"""A server in Python with TensorFlow Serving's gRPC and REST interfaces. Tests can make its
requests fail.

The gRPC interface uses the PredictionService and the messages of tensorflow-serving-api. The REST
interface has the paths, JSON format, status codes and messages of TensorFlow Serving's
http_rest_api_handler.cc and json_tensor.cc.
"""

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

import grpc
import numpy as np
import tensorflow as tf
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

Signatures = Mapping[str, Callable[..., Mapping[str, Any]]]
"""Functions from a tensor of strings, `inputs` [B], to named outputs, such as
tf.saved_model.load(...).signatures.
"""

HTTP_STATUS = {
    grpc.StatusCode.FAILED_PRECONDITION: 400,
    grpc.StatusCode.NOT_FOUND: 404,
    grpc.StatusCode.INTERNAL: 500,
    grpc.StatusCode.UNAVAILABLE: 503,
}
PREDICT = re.compile(r"/v1/models/([^/:]+)(?:/versions/(\d+))?:predict")


class Refused(Exception):  # noqa: N818
    """An error that the server sends as the answer to a request: a gRPC status code and a
    message.
    """

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass
class Faults:
    """Faults that the server simulates for requests with `text` in an input, or for all requests if
    `text` is empty.
    """

    text: str = ""
    seconds: float = 0.0
    """Seconds that the server waits before it answers."""
    unavailable: int = 0
    """Number of requests that the server will still answer with the error UNAVAILABLE."""
    code: grpc.StatusCode | None = None
    """The error with which the server answers; None to answer with the model's outputs."""

    def apply(self, texts: Sequence[bytes]) -> None:
        """Simulates the faults for a request with these texts: waits, and raises Refused if the
        request must fail.
        """
        if not any(self.text.encode() in text for text in texts):
            return
        time.sleep(self.seconds)
        if self.unavailable:
            self.unavailable -= 1
            raise Refused(grpc.StatusCode.UNAVAILABLE, "The batch scheduling queue is full")
        if self.code:
            raise Refused(self.code, "[_Derived_] something\n\t [[{{node it}}]] «broke»\x1b")


@dataclass
class Served:
    """The server's models as {name: {version: signatures}}, its faults and a record of its
    requests.
    """

    models: Mapping[str, Mapping[int, Signatures]]
    faults: Faults = field(default_factory=Faults)
    batches: list[int] = field(default_factory=list)
    """Number of texts in each request, in the order of the requests."""
    grpc: str = ""
    """Address host:port of the gRPC interface."""
    rest: str = ""
    """Address host:port of the REST interface."""

    def reset(self) -> None:
        """Switches all faults off and forgets all requests."""
        self.faults = Faults()
        self.batches.clear()

    def predict(
        self, name: str, version: int | None, signature: str, inputs: dict[str, list[bytes]]
    ) -> dict[str, np.ndarray]:
        """Returns a model's outputs for the inputs of a request, unless a simulated fault raises
        Refused.
        """
        versions = self.models.get(name, {})
        number = max(versions, default=None) if version is None else version
        if number not in versions:
            request = f"Latest({name})" if version is None else f"Specific({name}, {version})"
            raise Refused(grpc.StatusCode.NOT_FOUND, f"Servable not found for request: {request}")
        if signature not in versions[number]:
            raise Refused(
                grpc.StatusCode.FAILED_PRECONDITION,
                f'Serving signature key "{signature}" not found.',
            )
        self.batches.append(len(inputs["inputs"]))
        self.faults.apply(inputs["inputs"])
        tensors = {key: tf.constant(texts, tf.string) for key, texts in inputs.items()}
        outputs = versions[number][signature](**tensors)
        return {key: value.numpy() for key, value in outputs.items()}


@contextmanager
def serve(models: Mapping[str, Mapping[int, Signatures]]) -> Iterator[Served]:
    """Serves models, {name: {version: signatures}}, on this machine until the `with` block ends."""
    served = Served(models)
    service = grpc.server(futures.ThreadPoolExecutor(4))
    prediction_service_pb2_grpc.add_PredictionServiceServicer_to_server(_Service(served), service)
    served.grpc = f"localhost:{service.add_insecure_port('localhost:0')}"
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
        spec = request.model_spec
        version = spec.version.value if spec.HasField("version") else None
        inputs = {key: tf.make_ndarray(tensor).tolist() for key, tensor in request.inputs.items()}
        try:
            outputs = self._served.predict(spec.name, version, spec.signature_name, inputs)
        except Refused as refused:
            context.abort(refused.code, refused.message)
        response = predict_pb2.PredictResponse(model_spec=spec)
        for key, array in outputs.items():
            # TensorFlow Serving stores each value in a typed field (Tensor::AsProtoField), not in
            # `tensor_content`.
            tensor = response.outputs[key]
            tensor.dtype = tf.as_dtype(array.dtype).as_datatype_enum
            tensor.tensor_shape.CopyFrom(tf.TensorShape(array.shape).as_proto())
            values = {"O": tensor.string_val, "f": tensor.float_val, "i": tensor.int_val}[
                array.dtype.kind
            ]
            values.extend(array.ravel().tolist())
        return response


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    served: Served

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        try:
            status = 200
            reply = {"outputs": self._predict(json.loads(body))}
        except Refused as refused:
            status = HTTP_STATUS[refused.code]
            reply = {"error": refused.message}
        data = json.dumps(reply, ensure_ascii=False, indent=4).encode()
        try:
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)
        except ConnectionError:  # the client closed the connection before the answer
            self.close_connection = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _predict(self, request: Any) -> Any:
        match = PREDICT.fullmatch(self.path)
        assert match, self.path
        version = int(match[2]) if match[2] else None
        inputs = {
            key: [text.encode() for text in texts] for key, texts in request["inputs"].items()
        }
        outputs = self.served.predict(unquote(match[1]), version, request["signature_name"], inputs)
        decode = np.vectorize(lambda text: text.decode(errors="replace"), otypes=[object])
        values = {
            k: (decode(array) if array.dtype.kind == "O" else array).tolist()
            for k, array in outputs.items()
        }
        return values if len(values) > 1 else next(iter(values.values()))
