"""Tests that the codes of a language in different standards are one code with one tokenizer, and
names are refused.
"""

import pytest

from t2t_repro.metrics.languages import language_code, tokenizer
from user_errors import user_error


@pytest.mark.parametrize(
    ("code", "tokens", "codes"),
    [
        ("", "13a", [""]),
        (
            "zh",
            "zh",
            ["zh", "zh-CN", "zh_CN", "zh-Hant-TW", "ZHO", "cmn", "chi", "zho_Hans", "zh_TW.UTF-8"],
        ),
        ("yue", "zh", ["yue", "yue-HK"]),
        ("gan", "zh", ["gan"]),
        ("ja", "ja-mecab", ["ja", "jpn", " ja ", "ja-JP", "jpn_Jpan"]),
        ("ko", "ko-mecab", ["ko", "KOR", "kor_Hang"]),
        ("th", "", ["tha", "th-TH"]),
        ("my", "", ["my", "bur", "mya_Mymr"]),
        ("shn", "", ["shn"]),
        ("de", "13a", ["DE", "deu", "ger", "de_AT", "de_DE.UTF-8", "de_DE@euro"]),
        ("en", "13a", ["EN-gb", "eng_Latn", "en_US.UTF-8"]),
        ("he", "13a", ["iw", "he", "heb"]),
        ("sr", "13a", ["sr-Latn", "sr", "sh"]),
        ("kk", "13a", ["kk"]),
    ],
)
def test_codes_of_a_language_are_one_code(code: str, tokens: str, codes: list[str]) -> None:
    assert {language_code(name) for name in codes} == {code}
    assert {tokenizer(name, ["Haus"]) for name in codes} == {tokens}


@pytest.mark.parametrize(
    "name", ["german", "french", "xx", "d", "de,fr", "1", " ", "und", "C.UTF-8", "jp"]
)
def test_what_is_no_code_is_refused(name: str) -> None:
    message = user_error(lambda: language_code(name, "--languages"))
    assert message.startswith(f"--languages: {name!r}")
