"""Writes a JSON object in one line, with floats rounded to the precision of float32."""

from __future__ import annotations

import json
from typing import Any

DIGITS = 8
"""Number of significant digits of floats in the JSON. Measurements are in float32, which has seven to eight."""


def to_json_line(fields: dict[str, Any]) -> str:
    """Returns a JSON object in one line, without "\\n". Rounds floats, also in lists, with `rounded`.

    Escapes the Unicode characters that some programs read as line ends.
    """
    text = json.dumps(rounded(fields), ensure_ascii=False)
    return text.replace("\u0085", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def rounded(value: Any) -> Any:
    """Returns `value` with all floats in it rounded to `DIGITS` significant digits.

    `value` may be a float, or a list, tuple or dict that contains floats. Tuples become lists.
    """
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value
