"""Codes of languages, and sacreBLEU's tokenizers for languages that are written without spaces between words."""

from __future__ import annotations

import re
from collections.abc import Iterable

import langcodes
from langcodes.tag_parser import LanguageTagError

from t2t_repro.errors import UserError

TOKENIZERS = {**dict.fromkeys(("zh", "yue", "wuu", "lzh", "nan", "hak"), "zh"), "ja": "ja-mecab", "ko": "ko-mecab"}
"""sacreBLEU's tokenizers of languages for whose words its default, "13a", is wrong."""
WITHOUT_TOKENIZER = ("th", "lo", "km", "my", "bo", "dz")
"""Codes of languages without spaces between words for which sacreBLEU has no tokenizer."""
UNSPACED = re.compile(
    "[\u0e00-\u0fff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff]"
)
"""A character of a script without spaces: Thai, Lao, Tibetan, Burmese, Khmer, Japanese and Chinese."""


def language_code(language: str, flag: str = "--target_language") -> str:
    """Returns the code of a language in two letters if there is one, without region and script; "" for "".

    "zh-CN", "zh_Hant", "zho" and "cmn" are "zh", "DE" and "deu" are "de". Raises UserError, which names `flag`, for
    what is no code of a language.
    """
    if not language:
        return ""
    try:
        tag = langcodes.Language.get(language.strip()).prefer_macrolanguage()
        if tag.is_valid():
            return str(tag.language)
    except LanguageTagError:
        pass
    raise UserError(f"{flag}: {language!r} is no code of a language; give one of ISO 639, e.g. de, fr or zh")


def is_unspaced(texts: Iterable[str]) -> bool:
    """Returns True if most letters of the texts belong to scripts without spaces between words."""
    letters = "".join(filter(str.isalnum, "".join(texts)))
    return 2 * len(UNSPACED.findall(letters)) > len(letters)
