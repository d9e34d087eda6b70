"""Codes of languages, and sacreBLEU's tokenizers for languages that are written without spaces
between words.
"""

import contextlib
import re
from collections.abc import Iterable, Sequence

import langcodes
from langcodes.tag_parser import LanguageTagError

from t2t_repro.errors import UserError

TOKENIZERS = {"Hans": "zh", "Hant": "zh", "Jpan": "ja-mecab", "Kore": "ko-mecab"} | dict.fromkeys(
    ("Thai", "Laoo", "Khmr", "Mymr", "Tibt"), ""
)
"""sacreBLEU's tokenizers of scripts for whose words its default, "13a", is wrong; "" for scripts
without one.
"""
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of a script without spaces: Thai, Lao, Tibetan, Burmese, Khmer, Japanese and Chinese.
"""


def iso_code(language: str) -> str:
    """Returns the code of a language as `language_code` does, but "" for what is no code."""
    with contextlib.suppress(LanguageTagError):
        # A locale such as de_DE.UTF-8 also names its encoding.
        tag = langcodes.Language.get(re.split("[.@]", language.strip())[0]).prefer_macrolanguage()
        return str(tag.language or "") if tag.is_valid() else ""
    return ""


def language_code(language: str, flag: str = "--target_language") -> str:
    """Returns the code of a language in two letters if there is one, without region and script; ""
    for "".

    "zh-CN", "zh_Hant", "zho" and "cmn" are "zh", "DE" and "deu" are "de". Raises UserError, which
    names `flag`, for what is no code of a language.
    """
    code = iso_code(language)
    if language and not code:
        raise UserError(
            f"{flag}: {language!r} is no code of a language; give one of ISO 639, e.g. de, fr or zh"
        )
    return code


def tokenizer(language: str, texts: Sequence[str] = ()) -> str:
    """Returns the name of sacreBLEU's tokenizer for a language; "" if it has none.

    If the language is unknown, the script of `texts` decides.
    """
    if code := iso_code(language):
        return TOKENIZERS.get(langcodes.Language.get(code).maximize().script or "", "13a")
    return "" if is_unspaced(texts) else "13a"


def is_unspaced(texts: Iterable[str]) -> bool:
    """Returns True if most letters of the texts belong to scripts without spaces between words."""
    letters = "".join(filter(str.isalnum, "".join(texts)))
    return 2 * len(UNSPACED.findall(letters)) > len(letters)
