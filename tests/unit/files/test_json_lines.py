"""Tests that floats are rounded to eight digits in JSON lines, and that nothing else is changed."""

from __future__ import annotations

import json
import math

import numpy as np

from t2t_repro.files.json_file import rounded, to_json_line


def test_float32_measurements_have_eight_digits() -> None:
    assert rounded(float(np.float32(0.1))) == 0.1
    assert rounded(123456.7890123) == 123456.79
    assert rounded(-1.23456789012e-20) == -1.2345679e-20
    assert math.isnan(rounded(math.nan)) and rounded(-math.inf) == -math.inf


def test_only_floats_are_rounded_at_any_depth() -> None:
    fields = {"text": "0.1234567891", "count": 1234567891, "scores": [(0.1234567891, [1 / 3])], "is": True}
    expected = {"text": "0.1234567891", "count": 1234567891, "scores": [[0.12345679, [0.33333333]]], "is": True}
    assert rounded(fields) == expected
    assert json.loads(to_json_line(fields)) == expected
    assert "\n" not in to_json_line({"text": "a\u2028b\n\u0085"}) and "\u2028" not in to_json_line({"text": "a\u2028b"})
