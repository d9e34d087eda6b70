"""Writes JSON objects that take one line each, with numbers as long as their precision deserves."""

from __future__ import annotations

import json
from typing import Any

DIGITS = 8
"""Number of significant digits of floats: about as many as float32 has, in which measurements are computed."""


def to_json_line(fields: dict[str, Any]) -> str:
    """Returns a JSON object in one line, without "\\n". Rounds floats, also in lists, with `rounded`.

    Escapes the Unicode characters that some programs read as line ends.
    """
    text = json.dumps(rounded(fields), ensure_ascii=False)
    return text.replace("\u0085", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def rounded(value: Any) -> Any:
    """Returns a float with `DIGITS` significant digits; a list, tuple or dict with its floats rounded; others as is."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
