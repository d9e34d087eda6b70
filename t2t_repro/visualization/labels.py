"""Labels of tokens in pictures, and fonts that have their characters."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

LONGEST_LABEL = 24
"""Largest number of characters in a token's label. The end of a longer token is cut off."""
NO_GLYPH = "□"
"""Character in a label that stands for an unprintable character, such as the end of a line."""


def label(token: str) -> str:
    """Returns a token's label: at most `LONGEST_LABEL` characters, all of them printable."""
    return "".join(character if character.isprintable() else NO_GLYPH for character in token[:LONGEST_LABEL])


def width(text: str) -> int:
    """Returns the width of a text in units of half an em. Chinese characters, for example, are twice as wide."""
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def fonts(texts: Sequence[str]) -> tuple[list[str], str]:
    """Returns names of fonts that together can draw `texts`, and the characters that no installed font has."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    families, missing = [], set(map(ord, " ".join(texts)))
    regular = {font.name for font in fontManager.ttflist if (font.style, font.weight) == ("normal", 400)}
    for family in ["DejaVu Sans", *sorted(regular)]:  # DejaVu Sans is part of Matplotlib
        if not missing:
            break
        if family.startswith("Last Resort"):  # this font draws a box for every character
            continue
        characters = get_font(findfont(FontProperties(family=[family]))).get_charmap()
        if missing.intersection(characters):
            families.append(family)
            missing.difference_update(characters)
    return families, "".join(map(chr, sorted(missing)))
