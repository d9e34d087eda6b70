"""Tests labels and the choice of fonts."""

from __future__ import annotations

from t2t_repro.visualization.labels import LONGEST_LABEL, NO_GLYPH, fonts, label, width


def test_labels_are_short_and_printable() -> None:
    assert label("a\nb") == f"a{NO_GLYPH}b" and label("x" * 99) == "x" * LONGEST_LABEL
    assert width("ab") == 2 and width("中a") == 3


def test_characters_that_no_font_has_are_named() -> None:
    families, missing = fonts(["é жa", "\U0010fffd\U0010fffc"])
    assert families[0] == "DejaVu Sans" and missing == "\U0010fffc\U0010fffd"
    assert fonts(["abc"]) == (["DejaVu Sans"], "")
