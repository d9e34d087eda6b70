"""Tests pictures of attention weights by their pixels."""

from __future__ import annotations

import io
import itertools
import subprocess
import sys

import keras
import numpy as np
import pytest
from PIL import Image

from t2t_repro.data.vocabularies.vocabulary import Vocabulary
from t2t_repro.decoding.attention import Attention, attention_of
from t2t_repro.errors import UserError
from t2t_repro.hparam import HParams
from t2t_repro.models.transformer import Transformer
from t2t_repro.visualization.attention_picture import (
    MAX_HEADS,
    MAX_TOKENS,
    Picture,
    attention_picture,
    first_short,
    heat_maps,
    rendered,
)
from t2t_repro.visualization.labels import MAX_LABEL

DARKEST = (8, 48, 107)
"""The color of a cell whose weight is 1."""
SCRIPTS = (
    "Čeština ελληνικά русский հայերեն ქართული עברית العربية हिन्दी ไทย 中文 日本語 한국어 ភាសា አማርኛ 𓀀 😀 ▁ <0xE2> "
    r"$x^2$ $ $\frac$ \N{x} % # _ ^ { "
    "e\u0301 \u0301 \u200b a\u200db \xad \x00 \x07 \n \u2028 \ue000 \U0010fffd \ufffd"
)
"""Words in many alphabets, characters that are not letters, and strings that plotting libraries read as commands."""


def attention(weights: np.ndarray, source: list[str], target: list[str]) -> Attention:
    """Returns encoder-decoder attention of one layer, from weights [H, T, S]."""
    return Attention("cross", tuple(target), tuple(source), weights[None], (1,), tuple(range(1, len(weights) + 1)))


def picture_of(weights: np.ndarray, source: list[str], target: list[str]) -> Picture:
    return attention_picture(attention(weights, source, target))


def pixels(picture: Picture) -> np.ndarray:
    """Returns the picture's pixels, [height, width, 3], and checks its format and size."""
    image = Image.open(io.BytesIO(picture.png))
    assert image.format == "PNG"
    assert image.size == (picture.width, picture.height)
    return np.asarray(image.convert("RGB"))


def squares(picture: Picture) -> list[tuple[int, int]]:
    """Returns the (top, left) pixel of each cell that has the darkest color, row by row."""
    dark = (pixels(picture) == DARKEST).all(axis=2)
    size = 12
    is_square = np.lib.stride_tricks.sliding_window_view(dark, (size, size)).all(axis=(2, 3))
    corners: list[tuple[int, int]] = []
    for top, left in np.argwhere(is_square).tolist():
        if not any(abs(top - other[0]) < size and abs(left - other[1]) < size for other in corners):
            corners.append((top, left))
    return corners


def single_cell(heads: int, rows: int, columns: int, head: int, row: int, column: int) -> Picture:
    """Returns a picture of weights that are 1 in one cell of one head, and 0 in all other cells."""
    weights = np.zeros((heads, rows, columns), np.float32)
    weights[head, row, column] = 1
    return picture_of(weights, ["source"] * columns, ["target"] * rows)


def test_a_row_is_a_target_token_and_a_column_a_source_token() -> None:
    ((top, left),) = squares(single_cell(1, 5, 7, 0, 0, 0))
    ((lower, same),) = squares(single_cell(1, 5, 7, 0, 3, 0))
    cell = (lower - top) / 3
    assert cell == pytest.approx(16, abs=0.5)
    assert same == left
    for column in (1, 6):
        ((other, right),) = squares(single_cell(1, 5, 7, 0, 0, column))
        assert (other, right) == (top, pytest.approx(left + column * cell, abs=1))


def test_heads_have_panels_in_reading_order() -> None:
    corners = [squares(single_cell(6, 8, 9, head, 2, 3)) for head in (0, 1, 3, 4)]
    assert [len(corner) for corner in corners] == [1, 1, 1, 1]
    first, second, fourth, fifth = (corner[0] for corner in corners)
    assert first[0] == second[0] == fourth[0] < fifth[0] - 8 * 16
    assert first[1] == fifth[1] < second[1] - 9 * 16
    assert fourth[1] == pytest.approx(first[1] + 3 * (second[1] - first[1]), abs=1)
    assert (pixels(single_cell(6, 8, 9, 0, 2, 3))[fifth[0] - 16 : fifth[0] + 16, fourth[1] :] == 255).all()


def test_larger_weights_are_darker() -> None:
    weights = np.linspace(0, 1, 5, dtype=np.float32).reshape(1, 1, 5)
    picture = picture_of(weights, ["s"] * 5, ["t"])
    top, left = squares(picture)[0]
    brightness = pixels(picture)[top + 6].astype(int).sum(axis=1)
    cells = [int(brightness[left + 6 - 16 * back]) for back in range(4, -1, -1)]
    assert cells == sorted(cells, reverse=True)
    assert len(set(cells)) == 5
    assert cells[0] > 700


def ink(part: np.ndarray) -> int:
    """Returns the number of dark pixels in a part of a picture: the pixels of letters and of dark cells."""
    return int((part.max(axis=2) < 128).sum())


def test_labels_stand_beside_their_row_and_below_their_column() -> None:
    for wide in (0, 2):
        tokens = ["MMMMMMMM" if token == wide else "." for token in range(4)]
        weights = np.zeros((1, 4, 4), np.float32)
        weights[0, 0, 0] = 1
        picture = picture_of(weights, tokens, tokens)
        ((top, left),) = squares(picture)
        top, left, image = top - 2, left - 2, pixels(picture)
        beside = [ink(image[top + 16 * row : top + 16 * row + 16, 22 : left - 2]) for row in range(4)]
        below = [ink(image[top + 70 : -25, left + 16 * column : left + 16 * column + 16]) for column in range(4)]
        assert np.argmax(beside) == np.argmax(below) == wide
        assert sorted(beside)[-1] > 5 * sorted(beside)[-2]
        assert sorted(below)[-1] > 5 * sorted(below)[-2]


def test_labels_in_any_alphabet() -> None:
    tokens = SCRIPTS.split(" ")
    weights, blanks = np.zeros((1, 1, len(tokens))), [" "] * len(tokens)
    blank, written = (picture_of(weights, texts, ["t"]) for texts in (blanks, tokens))
    assert len(tokens) <= MAX_TOKENS
    assert ink(pixels(written)) > ink(pixels(blank)) + 10 * len(tokens)


def label(token: str) -> bytes:
    """Returns the PNG of a picture with one cell, whose source token is `token`."""
    return picture_of(np.ones((1, 1, 1)), [token], ["."]).png


def test_a_character_that_cannot_be_printed_is_a_box() -> None:
    assert label("a\u200bb\x00c\n") == label("a□b□c□")
    assert len({label(token) for token in ("a□", "a", "é", "ж", "ع", "▁a", "$a$")}) == 7


def test_a_character_that_the_default_font_lacks_comes_from_another_font() -> None:
    from matplotlib.font_manager import FontProperties, findfont, get_font

    default, other = (
        get_font(findfont(FontProperties(family=[name]))).get_charmap() for name in ("DejaVu Sans", "STIXGeneral")
    )
    lacking = [chr(code) for code in other if code not in default and chr(code).isalpha()]
    assert label(lacking[0]) != label(lacking[1])  # if both were drawn as empty boxes, the pictures would be equal


def test_only_the_first_tokens_of_long_texts_are_shown() -> None:
    weights = np.zeros((1, 300, 200))
    for row, column in ((0, 0), (39, 39), (40, 0), (0, 40), (299, 199)):
        weights[0, row, column] = 1
    picture = picture_of(weights, ["s" * 300] * 200, ["t" * 300] * 300)
    (top, left), (bottom, right) = squares(picture)
    assert bottom - top == right - left == pytest.approx(39 * 16, abs=1)
    cut = picture_of(weights[:, :40, :40], ["s" * MAX_LABEL] * 40, ["t" * MAX_LABEL] * 40)
    np.testing.assert_allclose(pixels(picture).shape, pixels(cut).shape, atol=5)
    assert ink(pixels(picture)) > ink(pixels(cut))  # only `picture` has axis titles with numbers of tokens


@pytest.mark.parametrize(("heads", "rows", "columns"), [(1, 1, 1), (2, 9, 1), (16, 1, 9), (5, 2, 1)])
def test_pictures_of_any_shape(heads: int, rows: int, columns: int) -> None:
    assert squares(single_cell(heads, rows, columns, heads - 1, rows - 1, columns - 1))


def test_only_the_first_of_many_heads_are_shown() -> None:
    """An evaluation draws this picture, so it must not fail for any model."""
    many, most = (picture_of(np.zeros((heads, 1, 1)), ["a"], ["b"]) for heads in (128, MAX_HEADS))
    assert many == most


def test_padding_does_not_change_the_picture(tiny_hparams: HParams, tiny_vocabulary: Vocabulary) -> None:
    keras.utils.set_random_seed(1)
    model = Transformer(HParams(**(vars(tiny_hparams) | {"num_hidden_layers": 2})), tiny_vocabulary.size)
    inputs, targets = (np.array(ids, np.int32) for ids in tiny_vocabulary.encode(["é", "\x00ж"]))
    picture = attention_picture(attention_of(model, tiny_vocabulary, inputs, targets)["cross"])
    saved: list[np.ndarray] = []
    model.decode(targets[None], model.encode(inputs[None]), save_weights_to=saved)
    first, last = (np.asarray(weights)[0] for weights in saved)
    source, target = ["▁", "<0xC3>", "<0xA9>", "</s>"], ["▁", "<0x00>", "<0xD0>", "<0xB6>", "</s>"]
    assert picture == picture_of(last, source, target) != picture_of(first, source, target)
    padded = attention_of(model, tiny_vocabulary, np.pad(inputs, (0, 3)), np.pad(targets, (0, 2)))
    assert attention_picture(padded["cross"]) == picture


def test_rows_of_panels_are_layers_and_columns_heads() -> None:
    weights = np.zeros((2, 5, 3, 4), np.float32)
    weights[1, 1, 2, 3] = 1
    figure = heat_maps(Attention("decoder", ("a", "b", "c"), ("w", "x", "y", "z"), weights, (3, 6), (1, 2, 3, 4, 8)))
    panels = figure.axes[:10]
    assert [panel.get_title() for panel in panels] == [f"layer {n}, head {h}" for n in (3, 6) for h in (1, 2, 3, 4, 8)]
    assert [float(panel.images[0].get_array().sum()) for panel in panels] == [0.0] * 6 + [1.0] + [0.0] * 3
    assert panels[6].images[0].get_array()[2, 3] == 1
    lower = panels[5]
    assert [text.get_text() for text in lower.get_xticklabels()] == ["w", "x", "y", "z"]
    assert [text.get_text() for text in lower.get_yticklabels()] == ["a", "b", "c"]
    assert (lower.get_ylabel(), lower.get_xlabel()) == ("target to predict", "target already read")
    boxes = [panel.get_position() for panel in panels]
    (single,) = heat_maps(Attention("decoder", ("a",), ("w",), np.ones((1, 1, 1, 1)), (5,), (2,))).axes
    assert single.get_title() == "layer 5, head 2"
    assert boxes[0].y0 == boxes[4].y0 > boxes[5].y1 and boxes[0].x1 < boxes[1].x0


def test_sixty_tokens_of_sixteen_heads_fit_and_their_labels_do_not_overlap() -> None:
    tokens = tuple(f"token{i}" for i in range(60))
    weights = np.full((1, 4, 60, 60), 1 / 60, np.float32)
    figure = heat_maps(Attention("encoder", tokens, tokens, weights, (1,), (1, 2, 3, 4)))
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [text.get_window_extent(renderer) for text in figure.axes[0].get_yticklabels()]
    assert all(lower.y1 < upper.y0 + 1 for upper, lower in itertools.pairwise(boxes))
    assert all(box.height > 8 for box in boxes)  # pixels
    with pytest.raises(UserError, match="choose fewer --layers"):
        heat_maps(Attention("encoder", tokens, tokens, np.ones((2, 20, 60, 60)), (1, 2), tuple(range(20))))


@pytest.mark.parametrize(("form", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_formats_are_the_same_in_every_run(form: str, start: bytes) -> None:
    figures = [heat_maps(attention(np.ones((1, 1, 2)), ["né", "中"], ["b"])) for _ in range(2)]
    contents = [rendered(figure, form) for figure in figures]
    assert contents[0] == contents[1] and contents[0].startswith(start)
    if form == "svg":  # text is text
        assert ">né<" in contents[0].decode() and ">中<" in contents[0].decode()


def test_matplotlib_is_imported_by_the_first_picture_and_pyplot_never() -> None:
    code = (
        "import sys, numpy\n"
        "from t2t_repro.decoding.attention import Attention\n"
        "from t2t_repro.visualization.attention_picture import attention_picture\n"
        "assert 'matplotlib' not in sys.modules and 'tensorflow' not in sys.modules\n"
        "attention_picture(Attention('cross', ('s',), ('t',), numpy.ones((1, 1, 1, 1)), (1,), (1,)))\n"
        "assert 'matplotlib.pyplot' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(("limit", "number"), [(9, 0), (5, 1), (4, 2), (3, 4), (2, 4)])
def test_the_attention_picture_is_of_the_first_short_example(limit: int, number: int) -> None:
    lengths = np.array([[9, 5, 4, 9, 1], [1, 2, 4, 9, 3]])
    assert first_short(lengths, limit) == number
