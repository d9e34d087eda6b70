"""Draws cross-attention as a picture with one panel for each head, like the pictures in the paper's appendix.

Shapes: H heads, T target tokens, S source tokens.
"""

from __future__ import annotations

import io
import struct
import warnings
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from t2t_repro.data.vocabulary import Vocabulary

if TYPE_CHECKING:
    from t2t_repro.models.model import DecodingModel

MOST_TOKENS = 40
"""Largest number of source tokens, and of target tokens, in a picture. The end of a longer text is not drawn."""
LONGEST_LABEL = 16
"""Largest number of characters in a token's label. The end of a longer token is cut off."""
COLUMNS = 4
"""Largest number of panels in a row."""
CELL = 0.16
"""Width and height in inches of a cell, which shows one weight. A label of size `FONT_SIZE` fits beside a cell."""
GAP = 0.15
"""Inches between panels in a row. The gap between rows is twice as large, because panels have titles."""
LEAST_PANEL = 0.5
"""Smallest width and height of a panel in inches, enough for its title."""
FONT_SIZE = 7
"""Size of labels in points."""
NO_GLYPH = "□"
"""Character in a label that stands for an unprintable character, such as the end of a line."""


class Picture(NamedTuple):
    """A PNG file's content, and its width and height in pixels."""

    png: bytes
    width: int
    height: int


def attention_of(model: DecodingModel, vocabulary: Vocabulary, inputs: np.ndarray, targets: np.ndarray) -> Picture:
    """Returns a picture of the last decoder layer's cross-attention for a source text and a target text.

    Args:
        model: a model whose `has_attention` is true.
        vocabulary: the model's vocabulary.
        inputs: source ids, including the end token. Padding is not drawn.
        targets: target ids, including the end token. Padding is not drawn.
    """
    inputs, targets = inputs[inputs != 0], targets[targets != 0]
    weights: list[Any] = []
    model.decode(targets[None], model.encode(inputs[None]), save_weights_to=weights)
    source, target = vocabulary.sources.pieces(inputs.tolist()), vocabulary.pieces(targets.tolist())
    return attention_picture(np.asarray(weights[-1])[0], source, target)


def attention_picture(weights: np.ndarray, source: Sequence[str], target: Sequence[str]) -> Picture:
    """Returns a picture with a panel for each head. Rows are target tokens, columns are source tokens.

    The darker a cell, the more the head attends to the source token when the model predicts the target token.

    Args:
        weights: attention weights [H, T, S], from 0 to 1.
        source: S source tokens in any alphabet. A character that no installed font has is drawn as a box.
        target: T target tokens in any alphabet.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    weights = weights[:, :MOST_TOKENS, :MOST_TOKENS]
    heads, rows, columns = np.shape(weights)
    labels = [_label(token) for token in (*target[:rows], *source[:columns])]
    font: dict[str, Any] = {"family": _families(labels), "size": FONT_SIZE, "parse_math": False}
    panel_columns = min(heads, COLUMNS)
    panel_rows = -(-heads // panel_columns)
    width, height = max(CELL * columns, LEAST_PANEL), max(CELL * rows, LEAST_PANEL)
    figure = Figure((panel_columns * (width + GAP) - GAP, panel_rows * (height + 2 * GAP) - 2 * GAP))
    FigureCanvasAgg(figure)
    # The panels fill the figure. With bbox_inches="tight", savefig enlarges the picture to include the labels.
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=GAP / width, hspace=2 * GAP / height)
    panels = figure.subplots(panel_rows, panel_columns, squeeze=False).flat
    for head, panel in enumerate(panels[:heads]):
        image = panel.imshow(weights[head], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_title(f"head {head + 1}", size=FONT_SIZE + 1, pad=3)
        panel.set_xticks(range(columns), labels[rows:], rotation=90, **font)
        panel.set_yticks(range(rows), labels[:rows], **font)
        panel.tick_params(length=0, labelbottom=head + panel_columns >= heads, labelleft=head % panel_columns == 0)
        panel.spines[:].set(color="silver", linewidth=0.5)
    for panel in panels[heads:]:
        panel.remove()
    corner_panel = panels[panel_columns * (panel_rows - 1)]
    corner_panel.set_ylabel(_axis_title("target", rows, len(target)), size=FONT_SIZE + 1)
    corner_panel.set_xlabel(_axis_title("source", columns, len(source)), size=FONT_SIZE + 1)
    color_scale = panels[panel_columns - 1].inset_axes((1 + GAP / width, 0, GAP / 2 / width, 1))
    figure.colorbar(image, color_scale, ticks=(0, 1)).ax.tick_params(length=0, labelsize=FONT_SIZE)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # Matplotlib warns of characters that no font has
        figure.savefig(file, format="png", dpi=100, bbox_inches="tight", pad_inches=0.1)
    png = file.getvalue()
    return Picture(png, *struct.unpack(">II", png[16:24]))


def _axis_title(side: str, shown: int, tokens: int) -> str:
    return side if shown == tokens else f"{side}, the first {shown} of {tokens} tokens"


def _label(token: str) -> str:
    return "".join(character if character.isprintable() else NO_GLYPH for character in token[:LONGEST_LABEL])


def _families(texts: Sequence[str]) -> list[str]:
    """Returns names of fonts that together can draw `texts`, except characters that no installed font has."""
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
    return families
