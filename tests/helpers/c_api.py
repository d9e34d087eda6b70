"""Runs a SavedModel through TensorFlow's C API with ctypes, like a server in C, Go or Rust.

TensorFlow's Python package is not imported. Run as a program, this file reads a JSON object from standard input:

    saved_model: folder of the SavedModel
    input: name of the input tensor, which holds strings
    outputs: names of the output tensors
    batches: lists of input texts

It writes a JSON list to standard output: for each batch, a list of the values of each output tensor.
"""

from __future__ import annotations

import ctypes
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from ctypes import POINTER, byref, c_char_p, c_float, c_int, c_int64, c_size_t, c_void_p
from pathlib import Path
from typing import Any

FLOAT, STRING = 1, 7
"""The C API's numbers for tensors of float32 (TF_FLOAT) and of strings (TF_STRING)."""
STRING_SIZE = 24
"""Size in bytes of TF_TString, the C API's string in a tensor."""


class Output(ctypes.Structure):
    """The C API's struct TF_Output: an operation and the index of one of its output tensors."""

    _fields_ = (("operation", c_void_p), ("index", c_int))


def installed(package: str) -> Path:
    """Returns the folder of an installed package without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec and spec.submodule_search_locations
    return Path(spec.submodule_search_locations[0])


class Library:
    """The C functions in the two shared libraries of TensorFlow's wheel."""

    def __init__(self) -> None:
        folder = installed("tensorflow")
        self._libraries = [
            ctypes.CDLL(str(folder / f"libtensorflow_{name}.so.2"), mode=ctypes.RTLD_GLOBAL)
            for name in ("framework", "cc")
        ]

    def function(self, name: str, result: type | None, *arguments: Any) -> Callable[..., Any]:
        for library in self._libraries:
            if hasattr(library, name):
                function = getattr(library, name)
                function.restype, function.argtypes = result, arguments
                return function
        raise AssertionError(f"{name} is in neither library")


class Session:
    """Loads a SavedModel into a session of TensorFlow's C API.

    Args:
        saved_model: the model's folder.
        operations: path of a shared library with the operations of the model that TensorFlow lacks.
    """

    def __init__(self, saved_model: str, operations: Path) -> None:
        library = Library()
        pointer = c_void_p
        self._code = library.function("TF_GetCode", c_int, pointer)
        self._message = library.function("TF_Message", c_char_p, pointer)
        self._operation = library.function("TF_GraphOperationByName", pointer, pointer, c_char_p)
        self._allocate = library.function("TF_AllocateTensor", pointer, c_int, POINTER(c_int64), c_int, c_size_t)
        self._delete_tensor = library.function("TF_DeleteTensor", None, pointer)
        self._data = library.function("TF_TensorData", pointer, pointer)
        self._type = library.function("TF_TensorType", c_int, pointer)
        self._count = library.function("TF_TensorElementCount", c_int64, pointer)
        self._string_init = library.function("TF_StringInit", None, pointer)
        self._string_copy = library.function("TF_StringCopy", None, pointer, c_char_p, c_size_t)
        self._string_delete = library.function("TF_StringDealloc", None, pointer)
        self._string_data = library.function("TF_StringGetDataPointer", pointer, pointer)
        self._string_size = library.function("TF_StringGetSize", c_size_t, pointer)
        self._run = library.function(
            "TF_SessionRun", None, pointer, pointer,
            POINTER(Output), POINTER(pointer), c_int,
            POINTER(Output), POINTER(pointer), c_int,
            pointer, c_int, pointer, pointer,
        )  # fmt: skip
        self._status = library.function("TF_NewStatus", pointer)()
        library.function("TF_LoadLibrary", pointer, c_char_p, pointer)(str(operations).encode(), self._status)
        self._check()
        self._graph = library.function("TF_NewGraph", pointer)()
        load = library.function(
            "TF_LoadSessionFromSavedModel", pointer, pointer, pointer, c_char_p, POINTER(c_char_p), c_int,
            pointer, pointer, pointer,
        )  # fmt: skip
        self._session = load(
            library.function("TF_NewSessionOptions", pointer)(), None, saved_model.encode(),
            (c_char_p * 1)(b"serve"), 1, self._graph, None, self._status,
        )  # fmt: skip
        self._check()

    def run(self, name: str, texts: Sequence[str], outputs: Sequence[str]) -> list[list]:
        """Runs the model on a batch of texts and returns, for each output, the list of its values.

        Args:
            name: name of the input tensor, e.g. "serving_default_inputs:0".
            outputs: names of output tensors of type string or float32.
        """
        texts_tensor = self._allocate(STRING, (c_int64 * 1)(len(texts)), 1, STRING_SIZE * len(texts))
        places = [self._data(texts_tensor) + STRING_SIZE * number for number in range(len(texts))]
        for place, text in zip(places, texts, strict=True):
            contents = text.encode("utf-8")
            self._string_init(place)
            self._string_copy(place, contents, len(contents))
        outputs_array = (Output * len(outputs))(*map(self._output, outputs))
        results = (c_void_p * len(outputs))()
        self._run(
            self._session, None, byref(self._output(name)), byref(c_void_p(texts_tensor)), 1, outputs_array, results,
            len(outputs),
            None, 0, None, self._status,
        )  # fmt: skip
        self._check()
        values = [self._values(tensor) for tensor in results]
        for place in places:
            self._string_delete(place)
        for tensor in (texts_tensor, *results):
            self._delete_tensor(tensor)
        return values

    def _output(self, name: str) -> Output:
        """Returns the TF_Output of the tensor with this name, which has the form "operation:index"."""
        operation, _, index = name.partition(":")
        pointer = self._operation(self._graph, operation.encode())
        assert pointer, f"no operation {operation}"
        return Output(pointer, int(index))

    def _values(self, tensor: int) -> list:
        """Returns all elements of a tensor as a flat list in row-major order."""
        count, data = self._count(tensor), self._data(tensor)
        if self._type(tensor) == FLOAT:
            return list((c_float * count).from_address(data)) if count else []
        assert self._type(tensor) == STRING
        places = (data + STRING_SIZE * number for number in range(count))
        return [ctypes.string_at(self._string_data(place), self._string_size(place)).decode() for place in places]

    def _check(self) -> None:
        """Raises RuntimeError if the last call of the C API failed."""
        if self._code(self._status):
            raise RuntimeError(self._message(self._status).decode())


def main() -> None:
    request = json.load(sys.stdin)
    operations = installed("tensorflow_text") / "python" / "ops" / "_sentencepiece_tokenizer.so"
    session = Session(request["saved_model"], operations)
    replies = [session.run(request["input"], batch, request["outputs"]) for batch in request["batches"]]
    assert not [name for name in sys.modules if name.startswith(("tensorflow", "keras", "t2t_repro"))]
    json.dump(replies, sys.stdout)


if __name__ == "__main__":
    main()
