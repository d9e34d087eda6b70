"""Tests heat maps of attention weights by their panels, and the finished pictures by their
pixels.
"""

import io
import itertools

import numpy as np
import pytest
from PIL import Image

from t2t_repro.errors import UserError
from t2t_repro.visualization import attention_picture as attention_picture_module
from t2t_repro.visualization.attention import Attention
from t2t_repro.visualization.attention_picture import (
    MAX_TOKENS,
    attention_picture,
    heat_maps,
    rendered,
)

SCRIPTS = (
    "Čeština ελληνικά русский հայերեն ქართული עברית العربية हिन्दी ไทย 中文 日本語 한국어 ភាសា አማርኛ 𓀀 😀 ▁ "  # noqa: E501
    "<0xE2> "
    r"$x^2$ $ $\frac$ \N{x} % # _ ^ { "
    "e\u0301 \u0301 \u200b a\u200db \xad \x00 \x07 \n \u2028 \ue000 \U0010fffd \ufffd"
)
"""Words in many alphabets, characters that are not letters, and strings that plotting libraries
read as commands.
"""


def attention(weights: np.ndarray, source: list[str], target: list[str]) -> Attention:
    """Returns encoder-decoder attention from weights [L, H, T, S]."""
    layers, heads = (tuple(range(1, count + 1)) for count in weights.shape[:2])
    return Attention("cross", tuple(target), tuple(source), weights, layers, heads)


def pixels(picture: bytes) -> np.ndarray:
    """Returns the picture's pixels, [height, width, 3], and checks its format."""
    image = Image.open(io.BytesIO(picture))
    assert image.format == "PNG"
    return np.asarray(image.convert("RGB"))


def ink(picture: bytes) -> int:
    """Returns the number of dark pixels: those of letters and of dark cells."""
    return int((pixels(picture).max(axis=2) < 128).sum())


def test_rows_of_panels_are_layers_and_columns_heads() -> None:
    weights = np.zeros((2, 5, 3, 4), np.float32)
    weights[1, 1, 2, 3] = 1
    figure = heat_maps(
        Attention(
            "decoder", ("a", "b", "c"), ("w", "x", "y", "z"), weights, (3, 6), (1, 2, 3, 4, 8)
        )
    )
    panels = figure.axes[:10]
    assert [panel.get_title() for panel in panels] == [
        f"layer {n}, head {h}" for n in (3, 6) for h in (1, 2, 3, 4, 8)
    ]
    assert [float(panel.images[0].get_array().sum()) for panel in panels] == [0.0] * 6 + [1.0] + [
        0.0
    ] * 3
    assert panels[6].images[0].get_array()[2, 3] == 1  # a row is a query, a column is a key
    lower = panels[5]
    assert [text.get_text() for text in lower.get_xticklabels()] == ["w", "x", "y", "z"]
    assert [text.get_text() for text in lower.get_yticklabels()] == ["a", "b", "c"]
    assert {panel.get_ylabel() for panel in panels} == {"target to predict"}
    assert {panel.get_xlabel() for panel in panels} == {"target already read"}
    boxes = [panel.get_position() for panel in panels]
    assert boxes[0].y0 == boxes[4].y0 > boxes[5].y1 and boxes[0].x1 < boxes[1].x0
    colors = panels[0].images[0].to_rgba(np.linspace(0, 1, 5), bytes=True)[:, :3].astype(int)
    assert (np.diff(colors.sum(axis=1)) < 0).all()  # larger weights are darker
    assert colors[0].sum() > 700 and colors[-1].tolist() == [8, 48, 107]


def test_heads_of_a_single_layer_have_panels_in_reading_order() -> None:
    weights = np.arange(6.0).reshape(1, 6, 1, 1)
    panels = heat_maps(attention(weights, ["s"], ["t"])).axes[:6]
    assert [float(panel.images[0].get_array()[0, 0]) for panel in panels] == list(range(6))
    boxes = [panel.get_position() for panel in panels]
    assert [box.x0 for box in boxes[4:]] == [box.x0 for box in boxes[:2]]
    assert len({box.y0 for box in boxes[:4]}) == 1 and boxes[4].y1 < boxes[0].y0


def test_labels_in_any_alphabet() -> None:
    tokens = SCRIPTS.split(" ")
    assert len(tokens) <= MAX_TOKENS
    weights = np.zeros((1, 1, 1, len(tokens)))
    blank, written = (
        attention_picture(attention(weights, texts, ["t"]))
        for texts in ([" "] * len(tokens), tokens)
    )
    assert ink(written) > ink(blank) + 10 * len(tokens)


def test_the_picture_of_an_evaluation_has_the_first_heads_and_tokens_of_the_last_layer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An evaluation draws this picture, so it must not fail for any model."""
    monkeypatch.setattr(attention_picture_module, "MAX_HEADS", 2)
    monkeypatch.setattr(attention_picture_module, "MAX_TOKENS", 4)
    weights = np.random.default_rng(1).random((2, 3, 9, 7))
    picture = attention_picture(attention(weights, list("abcdefg"), list("123456789")))
    part = Attention("cross", tuple("1234"), tuple("abcd"), weights[1:, :2, :4, :4], (2,), (1, 2))
    assert picture == attention_picture(part)


def test_sixty_tokens_of_sixteen_heads_fit_and_their_labels_do_not_overlap() -> None:
    tokens = [f"token{i}" for i in range(60)]
    figure = heat_maps(attention(np.full((1, 1, 60, 60), 1 / 60, np.float32), tokens, tokens))
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].get_yticklabels()]
    assert all(lower.y1 < upper.y0 + 1 for upper, lower in itertools.pairwise(boxes))
    assert all(box.height > 8 for box in boxes)  # pixels
    with pytest.raises(UserError, match="choose fewer --layers"):
        heat_maps(attention(np.ones((2, 20, 60, 60)), tokens, tokens))


def test_the_same_figure_gives_the_same_svg_whose_text_is_text() -> None:
    contents = [
        rendered(heat_maps(attention(np.ones((1, 1, 1, 2)), ["né", "中"], ["b"])), "svg")
        for _ in range(2)
    ]
    assert (
        contents[0] == contents[1]
        and ">né<" in contents[0].decode()
        and ">中<" in contents[0].decode()
    )
