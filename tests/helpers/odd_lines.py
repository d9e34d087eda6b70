"""Lines of text on which programs that read text often disagree."""

import random
from collections.abc import Iterator

WORDS = (
    "the dog|Zwei Männer|garçon|don't|state-of-the-art|3,141.59|漢字かな|Привет "
    "мир|AT&T|a_b|“x”|…|--|👩‍👩‍👧|🏳️‍🌈|😀|🇩🇪|e\u0301|o\u0308\u0323|\u0301|가\u11a8|क्षि|\U0001f100|\U0001d54f|\ufb01|\ufb03|\ufb05|①|Ⅷ|㎏|½|\uff48\uff41\uff11|\uff8a\uff9f|\u1e9e|\u0130|ß|\u01c5|\u212b|\ufdfa|\0|\x01|\x1b[1m|\x7f|\x85|\t|\r|\v\f|\x1c|\u200b|\u200d|\ufeff|\xad|\u2060|\u202e|\u2066x\u2069|עברית|العربية|\u200f|\u2028|\u2029|\xa0|\u2003|\u3000|\u00b4|\u037a|\ufffd|\ufffe|\U0010ffff|\ue000|▁|▁▁the|the▁dog|⁇| "  # noqa: E501
    "⁇ "
    "|<s>|</s>|<unk>|<pad>|<0x41>|<0xE2>|>>de<<|<2de>|@@|##|<mask>|[UNK]|##ing|\\|\\u0041|&amp;|%s|'|<b>tag</b>|http://x.y/?z=1&w=%20"
)
PARTS = [*WORDS.split("|"), "a" * 70, "é" * 40, "…" * 9, " " * 17, "\u3000 " * 3]
"""Emoji, combining and control characters, spaces, right-to-left text, ligatures, half-width and
full-width forms, SentencePiece's own symbols, tags and escapes.
"""
EDGES = [
    "",
    " ",
    "  ",
    " " * 300,
    "▁",
    " ▁ ",
    "\0",
    "\t",
    "\ufeff",
    "\u3000",
    "\u0301",
    "</s>",
    "😀" * 200,
    "a" * 5000,
]


def odd_lines(count: int) -> Iterator[str]:
    """Yields `count` lines: `EDGES`, then mixtures of `PARTS`, spaces and characters from all of
    Unicode.
    """
    draw = random.Random(5)
    yield from EDGES[:count]
    for _ in range(count - len(EDGES)):
        parts = []
        for _ in range(draw.randrange(1, 9)):
            any_character = chr(
                draw.choice((draw.randrange(0xD800), draw.randrange(0xE000, 0x110000)))
            )
            parts += [draw.choice([*PARTS, any_character]), draw.choice(("", "", " ", "  "))]
        yield "".join(parts).replace("\n", "")
