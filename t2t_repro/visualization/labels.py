"""Labels of tokens in pictures, and fonts that have their characters."""

import contextlib
import unicodedata
from collections.abc import Iterator, Sequence

MAX_LABEL = 24
"""Maximum number of characters of a token in its label. The end of a longer token is cut off."""
NO_GLYPH = "□"
"""Character that stands for an unprintable character, such as the end of a line."""
JOINT = "‿"
SPACE = "␣"
"""Sign before a token that continues a word, and label of a token that is only a space."""


def labels(tokens: Sequence[str]) -> list[str]:
    """Returns the labels of a text's tokens, with at most `MAX_LABEL` of their characters.

    If "▁" marks the tokens that begin a word, as in SentencePiece's vocabularies, `JOINT` marks the
    others instead. Punctuation, special tokens such as </s>, and letters of scripts without spaces
    have no mark.
    """
    has_marks = any(token.startswith("▁") for token in tokens)
    texts: list[str] = []
    for token in tokens:
        text = token[:MAX_LABEL]
        continues = False
        if has_marks:
            text = text.replace("▁", " ").strip() or SPACE
            continues = token[0].isalnum() and width(token[0]) == 1 and bool(texts)
        texts.append(f"{JOINT if continues else ''}{printable(text)}")
    return texts


def printable(text: str) -> str:
    """Returns a text with `NO_GLYPH` for each unprintable character."""
    return "".join(character if character.isprintable() else NO_GLYPH for character in text)


def width(text: str) -> int:
    """Returns the width of a text in units of half an em. Chinese characters, for example, are
    twice as wide.
    """
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def fonts(texts: Sequence[str]) -> tuple[list[str], str]:
    """Returns names of fonts that together can draw `texts`, and the characters that no installed
    font has.
    """
    from matplotlib.font_manager import FontProperties, findfont, get_font

    families = []
    missing = set(map(ord, " ".join(texts)))
    for family in _families():
        if not missing:
            break
        characters = get_font(findfont(FontProperties(family=[family]))).get_charmap()
        if missing.intersection(characters):
            families.append(family)
            missing.difference_update(characters)
    return families, "".join(map(chr, sorted(missing)))


def _families() -> Iterator[str]:
    """Yields the names of the fonts that can be used: DejaVu Sans, those that Matplotlib knows,
    then new ones.
    """
    from matplotlib.font_manager import findSystemFonts, fontManager

    yield "DejaVu Sans"  # part of Matplotlib
    known = list(fontManager.ttflist)
    regular = {font.name for font in known if (font.style, font.weight) == ("normal", 400)}
    yield from sorted(name for name in regular if not name.startswith("Last Resort"))
    # Matplotlib keeps a list of fonts in a file, which lacks fonts that were installed later.
    for path in sorted(set(findSystemFonts()) - {font.fname for font in known}):
        # Damaged, or of a kind that Matplotlib cannot read.
        with contextlib.suppress(OSError, RuntimeError):
            fontManager.addfont(path)
            yield fontManager.ttflist[-1].name
