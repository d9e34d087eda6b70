"""Reads the weights of a folder of transformers: `model.safetensors`, or `pytorch_model.bin` of
`torch.save`.

No code in a file can run: safetensors has none, and a pickle may use only the few names that
tensors need.
"""

import collections
import itertools
import math
import os
import pickle
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from t2t_repro.errors import UserError, first_line, shortened
from t2t_repro.files.untrusted import as_text, parse_json, require_regular

SAFETENSORS = "model.safetensors"
PICKLE = "pytorch_model.bin"
MAX_BYTES = 1 << 33
"""Maximum size of a file of weights."""
CURE = "get the file again"
DTYPES = {
    "F64": "<f8",
    "F32": "<f4",
    "F16": "<f2",
    "BF16": "bfloat16",
    "I64": "<i8",
    "Double": "<f8",
    "Float": "<f4",
    "Half": "<f2",
    "BFloat16": "bfloat16",
    "Long": "<i8",
}
"""NumPy's names of the types in safetensors and of PyTorch's storages, and "bfloat16", which NumPy
lacks.
"""


def read_weights(folder: Path) -> dict[str, np.ndarray]:
    """Returns the weights in a folder by transformers' names, in float32. Raises UserError if they
    are damaged.

    A large model's weights are in several files, such as "model-00001-of-00002.safetensors".
    """
    for name, read in ((SAFETENSORS, _read_safetensors), (PICKLE, _read_pickle)):
        path = folder / name
        shards = sorted(folder.glob(f"{path.stem}-*-of-*{path.suffix}"))
        if path.exists():
            shards = [path]
        if shards:
            return {key: value for shard in shards for key, value in _read(shard, read).items()}
    raise UserError(
        f"{folder}: no {SAFETENSORS} or {PICKLE} there; copy the whole folder of the model"
    )


def _read(
    path: Path, read: Callable[[BinaryIO, int], dict[str, np.ndarray]]
) -> dict[str, np.ndarray]:
    require_regular(path)
    try:
        size = os.path.getsize(path)
        if size > MAX_BYTES:
            raise ValueError(f"more than {MAX_BYTES:,} bytes")
        with open(path, "rb") as file, np.errstate(over="ignore"):
            return read(file, size)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None
    except Exception as error:  # damage makes pickle, zipfile and NumPy raise many kinds of errors
        raise UserError(
            f"{path}: cannot be read ({shortened(first_line(error))}); {CURE}"
        ) from None


def _read_safetensors(file: BinaryIO, size: int) -> dict[str, np.ndarray]:
    header_size = min(size, int.from_bytes(file.read(8), "little"))
    header = parse_json(as_text(file.read(header_size), "header", CURE), "header", CURE)
    header.pop("__metadata__", None)
    data = np.memmap(file, np.uint8, "r")[8 + header_size :]
    # Each tensor must begin where the one before it ends.
    places = sorted(tensor["data_offsets"] for tensor in header.values())
    bounds = [0, *itertools.chain(*places), len(data)]
    if bounds[::2] != bounds[1::2] or bounds != sorted(bounds):
        raise ValueError("the tensors do not fill the file")
    weights = {}
    for name, tensor in header.items():
        start, end = tensor["data_offsets"]
        values = _floats(data[start:end], DTYPES[tensor["dtype"]])
        weights[name] = values.reshape(tensor["shape"])
    return weights


class _Unpickler(pickle._Unpickler):
    """Reads a pickle of tensors. Raises UserError for a pickle that needs anything else.

    The base class is that in Python. A damaged pickle could make that in C fill the memory.
    """

    def find_class(self, module: str, name: str) -> Any:
        known: dict[str, Any] = {
            "collections.OrderedDict": collections.OrderedDict,
            # storage, offset, shape, strides
            "torch._utils._rebuild_tensor_v2": lambda *values: values[:4],
            "torch._utils._rebuild_parameter": lambda tensor, *_: tensor,
            **{f"torch.{kind}Storage": dtype for kind, dtype in DTYPES.items()},
        }
        path = f"{module}.{name}"
        if path not in known:
            raise UserError(
                f"wants to use {shortened(repr(path))}, which no weights need; do not use the file"
            )
        return known[path]

    def persistent_load(self, pid: Any) -> tuple[str, str]:
        """Returns a storage: the NumPy name of its type and its key."""
        return pid[1], pid[2]


def _read_pickle(file: BinaryIO, size: int) -> dict[str, np.ndarray]:
    tensors, data = _read_zip(file, size) if zipfile.is_zipfile(file) else _read_old(file, size)
    values = {
        (dtype, key): _floats(data[key], dtype)
        for dtype, key in {storage for storage, *_ in tensors.values()}
    }
    return {
        str(name): _array(values[storage], *place) for name, (storage, *place) in tensors.items()
    }


def _read_zip(file: BinaryIO, size: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Returns the tensors as `_Unpickler` builds them, and the bytes of their storages by key."""
    archive = zipfile.ZipFile(file)
    members = {info.filename.partition("/")[2]: info for info in archive.infolist()}
    if sum(info.file_size for info in members.values()) > size:
        raise ValueError("compressed")
    tensors = _Unpickler(archive.open(members["data.pkl"])).load()
    keys = {key for (_, key), *_ in tensors.values()}
    return tensors, {key: archive.read(members[f"data/{key}"]) for key in keys}


def _read_old(file: BinaryIO, size: int) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Returns what `_read_zip` returns, from a file of PyTorch before version 1.6."""
    file.seek(0)
    # The first three of the five pickles describe the format.
    _, _, _, tensors, keys = (_Unpickler(file).load() for _ in range(5))
    value_bytes = {key: 8 // _floats(bytes(8), dtype).size for (dtype, key), *_ in tensors.values()}
    data = {}
    for key in keys:
        count = int.from_bytes(file.read(8), "little")
        data[key] = file.read(min(size, count * value_bytes[key]))
    return tensors, data


def _array(
    values: np.ndarray, offset: int, shape: tuple[int, ...], strides: tuple[int, ...]
) -> np.ndarray:
    """Returns a part of the values of a storage. NumPy checks that it is inside."""
    if math.prod(shape) > values.size:
        raise ValueError("a tensor is larger than its values")
    size = values.itemsize
    byte_strides = [stride * size for stride in strides]
    return np.ndarray(shape, values.dtype, values, offset * size, byte_strides)


def _floats(data: Any, dtype: str) -> np.ndarray:
    """Returns little-endian values as float32."""
    if dtype == "bfloat16":  # the first half of a float32
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, dtype).astype(np.float32, copy=False)
