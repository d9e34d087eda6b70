"""Tests that the codes of a language in different standards are one code, and that names are refused."""

from __future__ import annotations

import pytest

from t2t_repro.metrics.languages import language_code
from user_errors import user_error


@pytest.mark.parametrize(
    ("code", "codes"),
    [
        ("", ["", ""]),
        ("zh", ["zh", "zh-CN", "zh_CN", "zh-Hant-TW", "ZHO", "cmn", "chi"]),
        ("ja", ["ja", "jpn", " ja "]),
        ("de", ["DE", "deu", "ger", "de_AT"]),
        ("yue", ["yue"]),
        ("th", ["tha"]),
    ],
)
def test_codes_of_a_language_are_one_code(code: str, codes: list[str]) -> None:
    assert {language_code(name) for name in codes} == {code}


@pytest.mark.parametrize("name", ["german", "french", "xx", "d", "de,fr", "1"])
def test_what_is_no_code_is_refused(name: str) -> None:
    message = user_error(lambda: language_code(name, "--languages"))
    assert message.startswith(f"--languages: {name!r}")
