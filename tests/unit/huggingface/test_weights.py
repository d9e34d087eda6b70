"""Tests that weights are read without PyTorch, and that no file of a stranger runs code or does
other harm.
"""

import contextlib
import io
import json
import os
import pickle
import shutil
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from t2t_repro.errors import UserError
from t2t_repro.huggingface.weights import read_weights
from user_errors import user_error

FILES = Path(__file__).parents[2] / "golden" / "data" / "marian"
"""Files that torch.save and the library safetensors wrote."""
NAMES = {
    "model.safetensors": "model.safetensors",
    "weights.zip": "pytorch_model.bin",
    "weights.legacy": "pytorch_model.bin",
}
A = np.arange(6, dtype=np.float32).reshape(2, 3)


@pytest.mark.parametrize("is_part", [False, True])
@pytest.mark.parametrize("name", NAMES)
def test_weights_of_each_type_are_float32(name: str, is_part: bool, tmp_path: Path) -> None:
    shutil.copy(
        FILES / name, tmp_path / NAMES[name].replace(".", "-00002-of-00002." if is_part else ".")
    )
    weights = read_weights(tmp_path)
    expected = {
        "a": A,
        "half": A,
        "bfloat16": A,
        "double": A,
        "ids": [0, 1, 2],
        "empty": A[:0, :2],
        "scalar": 2.5,
    }
    if name != "model.safetensors":
        expected |= {"tied": A, "transposed": A.T, "row": A[1], "parameter": A}
    assert weights.keys() == expected.keys()
    for key, value in expected.items():
        assert weights[key].dtype == np.float32
        np.testing.assert_array_equal(weights[key], value)


@pytest.mark.parametrize("name", NAMES)
def test_a_damaged_file_is_read_or_refused(name: str, tmp_path: Path) -> None:
    path = tmp_path / NAMES[name]
    contents = (FILES / name).read_bytes()
    for place in range(0, len(contents) - 4, 20):
        path.write_bytes(contents[:place])
        assert user_error(read_weights, tmp_path).startswith(f"{path}: ")
        path.write_bytes(contents[:place] + bytes([contents[place] ^ 0x81]) + contents[place + 1 :])
        with contextlib.suppress(UserError):
            read_weights(tmp_path)
    path.unlink()
    assert "model.safetensors" in user_error(read_weights, tmp_path)
    os.mkfifo(path)
    assert str(path) in user_error(read_weights, tmp_path)
    shutil.copy(FILES / "model.safetensors", tmp_path / "new")
    (tmp_path / "new").replace(tmp_path / "model.safetensors")
    assert "bfloat16" in read_weights(tmp_path)  # safetensors come first


class Call:
    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return self.call


def zipped(compression: int = zipfile.ZIP_STORED, **changes: bytes) -> bytes:
    """Returns `weights.zip` with other contents of members, e.g. of `data.pkl`."""
    file = io.BytesIO()
    with (
        zipfile.ZipFile(FILES / "weights.zip") as old,
        zipfile.ZipFile(file, "w", compression) as new,
    ):
        for path in old.namelist():
            new.writestr(path, changes.get(path.removeprefix("weights/"), old.read(path)))
    return file.getvalue()


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_code_in_a_pickle_is_named_and_never_runs(protocol: int, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    calls = {
        "mkdir": Call(os.mkdir, str(trace)),
        "eval": {"a": Call(eval, f"open({str(trace)!r}, 'w')")},
        "__import__": Call(getattr, Call(__import__, "os"), "system"),
        "torch.nn": b"ctorch.nn\nModule\n.",
        "torch\\n": b"\x80\x04\x8c\x06torch\n\x8c\x01x\x93.",
    }
    for name, call in calls.items():
        model = call if isinstance(call, bytes) else pickle.dumps(call, protocol)
        for file in (zipped(**{"data.pkl": model}), model):
            (tmp_path / "pytorch_model.bin").write_bytes(file)
            message = user_error(read_weights, tmp_path)
            assert name in message or "getattr" in message
            assert not trace.exists()


def test_files_that_claim_to_be_huge_need_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(
        zipped(**{"data.pkl": b"\x80\x04}r" + struct.pack("<I", 1 << 24) + b"."})
    )  # entries of the memo
    tracemalloc.start()
    assert read_weights(tmp_path) == {}
    assert tracemalloc.get_traced_memory()[1] < 1 << 24
    tracemalloc.stop()
    path.write_bytes(zipped(zipfile.ZIP_LZMA, **{"data/0": bytes(1 << 20)}))
    assert user_error(read_weights, tmp_path).startswith(f"{path}: ")
    path = tmp_path / "model.safetensors"
    header = b'{"a": {"dtype": "F32", "shape": [4294967296], "data_offsets": [0, 17179869184]}}'
    for header_size in (len(header), 1 << 36):
        path.write_bytes(struct.pack("<Q", header_size) + header)
        os.truncate(path, 8 + len(header) + (1 << 34))
        assert user_error(read_weights, tmp_path).startswith(f"{path}: ")


PLACE = b"K\x00K\x02K\x03\x86q\x09K\x03K\x01\x86"
"""Offset, shape and strides of a tensor in a pickle."""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"K\x00", b"K\x01"),
        (b"K\x00", b"J\xff\xff\xff\xff"),
        (b"K\x02K\x03\x86", b"K\x03K\x03\x86"),
        (b"K\x03K\x01", b"K\x04K\x01"),
        (b"K\x03K\x01", b"J\xff\xff\xff\xffK\x01"),
        (b"K\x02K\x03\x86q\x09K\x03K\x01", b"K\xffK\xff\x86q\x09K\x00K\x00"),
    ],
)
def test_a_tensor_must_lie_in_its_storage(old: bytes, new: bytes, tmp_path: Path) -> None:
    with zipfile.ZipFile(FILES / "weights.zip") as archive:
        model = archive.read("weights/data.pkl")
    changed = model.replace(PLACE, PLACE.replace(old, new, 1), 1)
    (tmp_path / "pytorch_model.bin").write_bytes(zipped(**{"data.pkl": changed}))
    assert changed != model and "pytorch_model.bin: " in user_error(read_weights, tmp_path)


@pytest.mark.parametrize(
    ("offsets", "is_sound"),
    [
        ([[0, 8]], True),
        ([[4, 8], [0, 4]], True),
        ([[0, 8], [8, 8]], True),
        ([[0, 4]], False),
        ([[4, 8]], False),
        ([[-4, 8]], False),
        ([[8, 0]], False),
        ([[0]], False),
        ([[0, 8, 2]], False),
        ([[0, 8], [0, 8]], False),
        ([[0, 4], [0, 8]], False),
        ([[0, 12], [12, 8]], False),
    ],
)
def test_tensors_must_fill_a_safetensors_file(
    offsets: list[list[int]], is_sound: bool, tmp_path: Path
) -> None:
    header = {
        str(n): {"dtype": "F32", "shape": [-1], "data_offsets": place}
        for n, place in enumerate(offsets)
    }
    text = json.dumps(header).encode()
    path = tmp_path / "model.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(8))
    if is_sound:
        assert sum(value.size for value in read_weights(tmp_path).values()) == 2
    else:
        assert user_error(read_weights, tmp_path).startswith(f"{path}: ")
