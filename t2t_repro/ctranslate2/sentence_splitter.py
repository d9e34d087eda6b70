"""A model that splits text into sentences, in ONNX, for MiniSBD, the sentence splitter of Argos
Translate.

It needs no training. A sentence ends after ".", "!", "?" or "…" if a space follows, unless a
lower-case letter follows the space; after a full stop of Chinese and Japanese; and, by MiniSBD's
own rule, at the end of a paragraph. Without a model in the package, Argos would download one.
"""

import json
from typing import Any

import numpy as np

LOWER_CASE = "".join(filter(str.islower, map(chr, range(0x530))))
SCORES = (
    {" ": (0, 1, 0)}
    | dict.fromkeys(".!?…", (1, 0, 0))
    | dict.fromkeys("\u3002\uff01\uff1f", (3, 0, 0))
)
SCORES |= dict.fromkeys(LOWER_CASE, (0, 0, -1))
"""Scores of the characters that matter, for the end of a sentence at them, and one and two
characters before them.
"""
UNITS = ["<PAD>", "<UNK>", *SCORES]
INSIDE = 0
"""MiniSBD's class of a character inside a sentence."""
END = 2
"""MiniSBD's class of the last character of a sentence."""
CLASSES = 3
FLOAT = 1
INT64 = 7
"""ONNX's numbers of types of tensors. The numbers of fields below are also ONNX's."""
INTS = 7
"""ONNX's number of the type of an attribute that is a list of integers."""


def splitter() -> bytes:
    """Returns the contents of the file: a table of scores, and a convolution that adds the scores
    of three characters.
    """
    table = np.array([SCORES.get(unit, (0, 0, 0)) for unit in UNITS], "<f4")
    kernel = np.zeros((CLASSES, 3, 3), "<f4")
    kernel[END] = np.eye(3)
    bias = np.zeros(CLASSES, "<f4")
    bias[INSIDE] = 1.5  # a sentence ends if the sum is higher
    swap = {1: "perm", 8: [0, 2, 1], 20: INTS}
    nodes: list[dict[int, Any]] = [
        {4: "Gather", 1: ["table", "units"], 2: "scores"},
        {4: "Transpose", 1: "scores", 2: "channels", 5: swap},
        {
            4: "Conv",
            1: ["channels", "kernel", "bias"],
            2: "sums",
            5: {1: "pads", 8: [0, 2], 20: INTS},
        },
        {4: "Transpose", 1: "sums", 2: "classes", 5: swap},
    ]
    arrays = {"table": table, "kernel": kernel, "bias": bias}
    tensors = [
        {1: [*array.shape], 2: FLOAT, 8: name, 9: array.tobytes()} for name, array in arrays.items()
    ]
    inputs = [_value("units", INT64, "BT"), _value("features", FLOAT, "BTF")]
    graph = {1: nodes, 2: "splitter", 5: tensors, 11: inputs, 12: _value("classes", FLOAT, "BTC")}
    vocabulary = {
        "lang": "",
        "_unit2id": {unit: number for number, unit in enumerate(UNITS)},
        "_id2unit": UNITS,
    }
    fields = {"config": {"feat_funcs": ["capitalized"]}, "vocab": vocabulary}
    return _message(
        {
            1: 8,
            7: graph,
            8: {2: 13},
            14: [{1: name, 2: json.dumps(fields[name])} for name in fields],
        }
    )


def _value(name: str, kind: int, sizes: str) -> dict[int, Any]:
    return {1: name, 2: {1: {1: kind, 2: {1: [{2: size} for size in sizes]}}}}


def _message(fields: dict[int, Any]) -> bytes:
    """Returns a message of protocol buffers with these fields. A field whose value is a list is
    repeated.
    """
    data = b""
    for number, values in fields.items():
        for value in values if isinstance(values, list) else [values]:
            if isinstance(value, int):
                data += _varint(number << 3) + _varint(value)
                continue
            contents = _message(value) if isinstance(value, dict) else value
            contents = contents.encode() if isinstance(contents, str) else contents
            data += _varint(number << 3 | 2) + _varint(len(contents)) + contents
    return data


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)
