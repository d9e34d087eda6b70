"""Tests labels and the choice of fonts."""

from pathlib import Path

import matplotlib
import pytest
from matplotlib import font_manager

from t2t_repro.visualization.labels import MAX_LABEL, NO_GLYPH, fonts, labels, width


def test_labels_are_short_and_printable() -> None:
    assert labels(["a\nb", "x" * 99]) == [f"a{NO_GLYPH}b", "x" * MAX_LABEL]
    assert width("ab") == 2 and width("中a") == 3


def test_words_have_no_mark_and_are_joined_with_their_continuations() -> None:
    tokens = ["▁skate", "board", "ers", ".", "▁", "<0xC3>", "▁一个", "男人", "</s>"]
    assert labels(tokens) == ["skate", "‿board", "‿ers", ".", "␣", "<0xC3>", "一个", "男人", "</s>"]
    assert labels(["the", "dog_"]) == ["the", "dog_"]  # words, or pieces of another vocabulary


def test_characters_that_no_font_has_are_named() -> None:
    families, missing = fonts(["é жa", "\U0010fffd\U0010fffc"])
    assert families[0] == "DejaVu Sans" and missing == "\U0010fffc\U0010fffd"
    assert fonts(["abc"]) == (["DejaVu Sans"], "")


def test_a_font_that_was_installed_after_matplotlib_listed_the_fonts_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = Path(matplotlib.get_data_path(), "fonts", "ttf")
    listed_fonts = [font for font in font_manager.fontManager.ttflist if font.name == "DejaVu Sans"]
    monkeypatch.setattr(font_manager.fontManager, "ttflist", listed_fonts)
    damaged = tmp_path / "damaged.ttf"
    damaged.write_bytes(b"no font")
    new = [str(damaged), str(folder / "STIXGeneral.ttf")]
    monkeypatch.setattr(font_manager, "findSystemFonts", lambda: new)
    assert fonts(["a\u20d2"]) == (["DejaVu Sans", "STIXGeneral"], "")
