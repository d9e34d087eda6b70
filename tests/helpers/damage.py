"""Damages files at random, with a fixed seed, and checks that a program reads them or ends with a one-line error."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from absl import flags

from t2t_repro.bin import program

HOSTILE_VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], {"a": {}}, "", " ", "x" * 5000, ".", "..", "../x", "/dev/zero", "/etc/passwd"),
    *("a/b", "a\0b", "a\nb", "\x1b[31m", "\ud800", "*", "[a]", "{}", "%s", "train", "1", "nan"),
    *(0, -1, 1, 7, 2**31, 2**32 + 1, 2**63, 10**18, 10**19 + 7, -(10**18), 0.5, -0.0, 1e308, 1e-320),
)
"""JSON values that most fields may not have: wrong types, extreme numbers and dangerous strings."""
LITERALS = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400", "1" + "0" * 5000, "[" * 20_000, '{"a":' * 20_000, "0x10")
"""Texts that replace a JSON value: invalid JSON, or a value that no field may have."""


class Damage:
    """Draws damaged versions of files. The same seed gives the same versions."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def bytes(self, contents: bytes) -> bytes:
        """Returns the contents after one random change: flipped bits; bytes cut, replaced or repeated."""
        draw = self.random
        kind, start = draw.randrange(6), draw.randrange(len(contents) + 1)
        end = min(len(contents), start + draw.randrange(24))
        if kind == 0:
            changed = bytearray(contents)
            for _ in range(draw.randrange(1, 4)):
                changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
            return bytes(changed)
        if kind == 1:
            return contents[:start]
        if kind == 2:
            return draw.randbytes(draw.randrange(2 * len(contents)))
        if kind == 3:
            return contents[:start] + draw.randbytes(draw.randrange(24)) + contents[end:]
        if kind == 4:
            return contents[:start] + contents[end:]
        return contents[:end] + contents[start:]  # repeats a few bytes

    def json(self, text: str) -> bytes:
        """Returns JSON after one random change: another value, key or literal, or a change of the bytes."""
        draw, value = self.random, json.loads(text)
        kind = draw.randrange(6)
        if kind == 0:
            return self.bytes(text.encode())
        if kind == 1:
            literal = draw.choice([*LITERALS, '1, "step": 2', f"1, {text}"])
            return json.dumps(self._changed(value, "@")).replace('"@"', literal).encode()
        if kind == 2 and isinstance(value, dict):
            del value[draw.choice(list(value))]
        elif kind == 3 and isinstance(value, dict):
            value[draw.choice(["", "x", "__class__", "self", "\ud800"])] = draw.choice(HOSTILE_VALUES)
        else:
            value = self._changed(value, draw.choice(HOSTILE_VALUES))
        return json.dumps(value).encode()

    def json_line(self, contents: bytes) -> bytes:
        """Returns the JSON lines in `contents` after changing a random one with `json`."""
        lines = contents.removesuffix(b"\n").split(b"\n")
        index = self.random.randrange(len(lines))
        lines[index] = self.json(lines[index].decode())
        return b"\n".join([*lines, b""])

    def _changed(self, value: Any, new: Any) -> Any:
        """Returns a copy of a JSON value in which `new` replaces one random value at any depth."""
        if isinstance(value, dict) and value:
            key = self.random.choice(list(value))
            return {**value, key: self._changed(value[key], new)}
        if isinstance(value, list) and value:
            index = self.random.randrange(len(value))
            return [*value[:index], self._changed(value[index], new), *value[index + 1 :]]
        return new


def outcome(read: Callable[[], object], capsys: pytest.CaptureFixture[str]) -> int:
    """Calls `read` as a program would, and returns the program's exit code: 0, or 2 after an error of one line."""

    def main(values: flags.FlagValues) -> None:
        read()

    code = program.run(main, flags.FlagValues(), None, ["t2t-fuzz"])
    printed = capsys.readouterr()
    assert printed.out == ""
    if code:
        line = printed.err.splitlines()[-1]
        assert code == 2 and line.startswith("t2t-fuzz: "), printed.err
        assert len(line) < 5000 and line.isprintable(), line
    return code
