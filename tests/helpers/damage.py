"""Strategies of hypothesis that damage the contents of files."""

import json
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
from hypothesis.strategies import DrawFn, SearchStrategy

VALUES: tuple[Any, ...] = (
    *(None, True, False, [], {}, [[]], {"a": {}}, "", " ", "x" * 5000, ".", "..", "../x"),
    *("/dev/zero", "/etc/passwd", "a/b", "a\0b", "a\nb", "\x1b[31m", "\ud800", "*", "[a]", "{}"),
    *("%s", "train", "1", "nan", 0, -1, 1, 7, 2**31, 2**32 + 1, 2**63, 10**18, 10**19 + 7),
    *(-(10**18), 0.5, -0.0, 1e308, 1e-320),
)
"""JSON values that most fields may not have: wrong types, extreme numbers and dangerous strings."""
LITERALS = (
    *(
        "NaN",
        "Infinity",
        "-Infinity",
        "1e400",
        "-1e400",
        "1" + "0" * 5000,
        "[" * 20_000,
        '{"a":' * 20_000,
        "0x10",
    ),
    *('1, "step": 2', '1, "__class__": 2', '1, "": 2', '1, "\\ud800": 2'),
)
"""Texts that replace a JSON value: invalid JSON, a value that no field may have, or a value and a
new field.
"""
INSERTED = (
    b"",
    b"\n",
    b"\0",
    b"\xff\xfe",
    b"\x1b[2J",
    b"-1",
    b"1e400",
    b"9" * 30,
    b"(" * 2000,
    "\u2028".encode(),
)
PLACE = "@"


@st.composite
def damaged_bytes(draw: DrawFn, contents: bytes) -> bytes:
    """Draws contents with a changed bit, or in which other bytes replace a part."""
    start = draw(st.integers(0, len(contents) - 1))
    if draw(st.booleans()):
        end = start + 1
        new = bytes([contents[start] ^ 1 << draw(st.integers(0, 7))])
    else:
        end = draw(st.sampled_from([start, start + 1, start + 17, len(contents)]))
        new = draw(st.sampled_from(INSERTED) | st.binary(max_size=24))
    return contents[:start] + new + contents[end:]


@st.composite
def damaged_json(draw: DrawFn, contents: bytes) -> bytes:
    """Draws JSON in which one value is missing or replaced, or which `damaged_bytes` changed."""
    value = json.loads(contents)
    path = draw(st.sampled_from(list(_paths(value))))
    change = draw(st.sampled_from(["delete", "value", "value", "literal", "bytes"]))
    if change == "bytes":
        return draw(damaged_bytes(contents))
    texts = LITERALS if change == "literal" else list(map(json.dumps, VALUES))
    new = draw(st.sampled_from(texts))
    changed = _changed(value, path, is_deleted=change == "delete")
    text = json.dumps(changed, ensure_ascii=False).replace(json.dumps(PLACE), new)
    return text.encode("utf-8", "surrogatepass")


@st.composite
def damaged_json_lines(draw: DrawFn, contents: bytes) -> bytes:
    """Draws JSON lines, one of which `damaged_json` changed."""
    lines = contents.split(b"\n")
    number = draw(st.integers(0, len(lines) - 2))
    lines[number] = draw(damaged_json(lines[number]))
    return b"\n".join(lines)


def _paths(value: Any) -> Iterator[tuple[Any, ...]]:
    """Yields the path of each value in a JSON value: the keys that lead to it."""
    yield ()
    items: Any = enumerate(value) if isinstance(value, list) else ()
    if isinstance(value, dict):
        items = value.items()
    for key, item in items:
        yield from ((key, *path) for path in _paths(item))


def _changed(value: Any, path: tuple[Any, ...], is_deleted: bool) -> Any:
    """Returns a copy of a JSON value in which the value at `path` is deleted, or is `PLACE`."""
    if not path:
        return PLACE
    key, *rest = path
    items = dict(value.items() if isinstance(value, dict) else enumerate(value))
    if is_deleted and not rest:
        del items[key]
    else:
        items[key] = _changed(items[key], tuple(rest), is_deleted)
    return items if isinstance(value, dict) else list(items.values())


Damaged = SearchStrategy[bytes]
