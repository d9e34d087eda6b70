"""JSON: dataclasses as files, whose names and types are checked, and objects of one line."""

import dataclasses
import json
import math
import typing
from typing import Any, TypeVar

from t2t_repro.errors import UserError, check_type, unknown
from t2t_repro.files.untrusted import parse_json

T = TypeVar("T")

DIGITS = 8
"""Number of significant digits of floats in JSON lines. Measurements are in float32, which has
seven to eight.
"""


def to_json(values: Any) -> str:
    """Returns the fields of dataclass `values` as JSON, one field per line, in the order of the
    class definition.
    """
    return json.dumps(dataclasses.asdict(values), indent=2, ensure_ascii=False) + "\n"


def to_json_line(fields: dict[str, Any]) -> str:
    """Returns a JSON object in one line, with `rounded` floats and without other characters that
    can end a line.
    """
    text = json.dumps(rounded(fields), ensure_ascii=False, allow_nan=False)
    for separator in ("\u0085", "\u2028", "\u2029"):
        text = text.replace(separator, f"\\u{ord(separator):04x}")
    return text


def rounded(value: Any) -> Any:
    """Returns a JSON value with all floats in it rounded to `DIGITS` significant digits, or None if
    not finite.

    Tuples become lists.
    """
    if isinstance(value, float):
        return finite(float(f"{value:.{DIGITS}g}"))
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return value


def finite(number: float) -> float | None:
    """Returns a number, or None for NaN and infinities, which JSON does not have."""
    return number if math.isfinite(number) else None


def check_types(kind: Any, fields: dict[str, Any], source: str) -> None:
    """Raises UserError if `fields` has a name that dataclass `kind` does not have, or a value of
    the wrong type.

    `source` says in error messages where the values come from.
    """
    hints = typing.get_type_hints(kind)
    types = {field.name: hints[field.name] for field in dataclasses.fields(kind)}
    for name, value in fields.items():
        if name not in types:
            raise UserError(f"{source}: {unknown(f'field of {kind.__name__}', name, types)}")
        check_type(f"{source}: {name}", value, types[name])


def from_json(kind: type[T], text: str, source: str) -> T:
    """Returns an instance of dataclass `kind` from JSON that `to_json` wrote. Missing fields get
    their defaults.

    `source` is the name of the file. Raises UserError, which names it, if the JSON or a value in it
    is not valid.
    """
    return from_fields(kind, parse_json(text, source), source)


def from_fields(kind: type[T], fields: Any, source: str) -> T:
    """Returns an instance of dataclass `kind` from a parsed JSON object; see `from_json`."""
    if not isinstance(fields, dict):
        raise UserError(f"{source}: not a JSON object; restore the file")
    check_types(kind, fields, source)
    try:
        return kind(**fields)
    except TypeError as error:  # a field without default is missing
        raise UserError(f"{source}: {error}; restore the file") from None
    except UserError as error:
        raise UserError(f"{source}: {error}") from None
