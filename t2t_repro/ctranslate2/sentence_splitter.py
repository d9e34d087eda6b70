"""A model that splits text into sentences, in ONNX, for MiniSBD, the sentence splitter of Argos Translate.

It needs no training. A sentence ends after ".", "!", "?" or "…" if a space follows, unless a lower-case letter follows
the space; after a full stop of Chinese and Japanese; and, by MiniSBD's own rule, at the end of a paragraph. Without a
model in the package, Argos would download one.

The model adds three vectors of scores for each character: for itself, the next and the one after it. MiniSBD takes the
class with the highest score: 0 inside a sentence, 2 for its last character.
"""

import json
from typing import Any

import numpy as np

PAD, UNKNOWN = "<PAD>", "<UNK>"
CLASSES, INSIDE, END = 3, 0, 2
TERMINATORS, WIDE_TERMINATORS = ".!?…", "\u3002\uff01\uff1f"
LOWER_CASE = "".join(filter(str.islower, map(chr, range(0x530))))
UNITS = [PAD, UNKNOWN, " ", *TERMINATORS, *WIDE_TERMINATORS, *LOWER_CASE]
"""The characters that matter, by their ids."""
SCORES: tuple[dict[str, float], ...] = (
    dict.fromkeys(TERMINATORS, 1.0) | dict.fromkeys(WIDE_TERMINATORS, 3.0),
    {" ": 1.0},
    dict.fromkeys(LOWER_CASE, -1.0),
)
"""Scores for the end of a sentence at a character: of the character itself, the next one and the one after it."""
THRESHOLD = 1.5
FLOAT, INT64 = 1, 7
"""ONNX's numbers of types."""
Value = int | str | bytes


def splitter() -> bytes:
    """Returns the contents of the file."""
    nodes, tensors, last = [], [], ""
    for offset, scores in enumerate(SCORES):
        table = np.zeros((len(UNITS), CLASSES), "<f4")
        table[:, END] = [scores.get(unit, 0.0) for unit in UNITS]
        table[:, INSIDE] = THRESHOLD * (offset == 0)
        numbers = {"start": [offset], "end": [1 << 40], "axis": [1], "pads": [0, 0, 0, offset]}
        tensors.append(_tensor(f"table{offset}", FLOAT, table))
        tensors += [_tensor(f"{name}{offset}", INT64, np.array(value, "<i8")) for name, value in numbers.items()]
        nodes += [
            _node("Slice", ["units", *(f"{name}{offset}" for name in ("start", "end", "axis"))], f"cut{offset}"),
            _node("Pad", [f"cut{offset}", f"pads{offset}"], f"shifted{offset}"),
            _node("Gather", [f"table{offset}", f"shifted{offset}"], f"part{offset}"),
        ]
        if offset:
            nodes.append(_node("Add", [last, f"part{offset}"], f"sum{offset}"))
        last = f"sum{offset}" if offset else "part0"
    inputs = [_value("units", INT64, ["B", "T"]), _value("features", FLOAT, ["B", "T", "F"])]
    parts: dict[int, list[Any]] = {
        1: nodes,
        2: ["splitter"],
        5: tensors,
        11: inputs,
        12: [_value(last, FLOAT, ["B", "T", "C"])],
    }
    graph = _message(*((number, value) for number, values in parts.items() for value in values))
    vocabulary = {"lang": "", "_unit2id": {unit: number for number, unit in enumerate(UNITS)}, "_id2unit": UNITS}
    fields = {"config": {"feat_funcs": ["capitalized"]}, "vocab": vocabulary}
    metadata = [(14, _message((1, name), (2, json.dumps(value)))) for name, value in fields.items()]
    return _message((1, 8), (7, graph), (8, _message((2, 13))), *metadata)


def _node(kind: str, inputs: list[str], output: str) -> bytes:
    return _message(*((1, name) for name in inputs), (2, output), (4, kind))


def _tensor(name: str, kind: int, values: np.ndarray) -> bytes:
    return _message(*((1, size) for size in values.shape), (2, kind), (8, name), (9, values.tobytes()))


def _value(name: str, kind: int, shape: list[str]) -> bytes:
    sizes = _message(*((1, _message((2, size))) for size in shape))
    return _message((1, name), (2, _message((1, _message((1, kind), (2, sizes))))))


def _message(*fields: tuple[int, Value]) -> bytes:
    """Returns a message of protocol buffers with these numbers and values of fields."""
    data = b""
    for number, value in fields:
        if isinstance(value, int):
            data += _varint(number << 3) + _varint(value)
        else:
            contents = value.encode() if isinstance(value, str) else value
            data += _varint(number << 3 | 2) + _varint(len(contents)) + contents
    return data


def _varint(value: int) -> bytes:
    return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + _varint(value >> 7)
