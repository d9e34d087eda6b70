"""Shows text of unknown origin on a terminal, where control characters would be commands."""

from __future__ import annotations

import re

CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""The characters that `visible` replaces: C0 except tab and newline, DEL, C1, lone surrogates, and the characters that
reverse the direction of text (bidirectional embeddings, overrides and isolates)."""


def visible(text: str) -> str:
    """Returns a text with an escape sequence, e.g. "\\x1b", for each control character except tab and newline.

    Control characters move the cursor, hide or overwrite text, or change the terminal's settings.
    """
    return CONTROL.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)
