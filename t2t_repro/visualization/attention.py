"""Where the decoder looks as it predicts each token: attention over the source as a picture, one panel a head.

The paper's appendix has such pictures of three heads. Shapes: H heads, T target tokens, S source tokens.
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
"""Tokens on either side that a picture shows; of longer texts, the first."""
LONGEST_LABEL = 16
"""Characters of a token that a picture shows."""
COLUMNS = 4
"""Panels side by side."""
CELL = 0.16
"""Inches of a token, in which a label of `FONT_SIZE` has room."""
GAP = 0.15
"""Inches between panels side by side; twice as much, for their titles, between those one below the other."""
LEAST_PANEL = 0.5
"""Inches, for its title."""
FONT_SIZE = 7
"""Points."""
NO_GLYPH = "□"
"""Stands for what is no sign to look at, such as the end of a line."""


class Picture(NamedTuple):
    """A PNG, and its size in pixels."""

    png: bytes
    width: int
    height: int


def attention_of(model: DecodingModel, vocabulary: Vocabulary, inputs: np.ndarray, targets: np.ndarray) -> Picture:
    """Draws the attention over the source in the last decoder layer, for a pair of texts.

    Args:
        model: a model with attention.
        vocabulary: its vocabulary.
        inputs: source ids [S], ended by the end token; padding is left out.
        targets: target ids [T], the same. Each row of a panel is what the layer looks at to predict that token.
    """
    inputs, targets = (ids[ids != 0] for ids in (inputs, targets))
    weights: list[Any] = []
    model.decode(targets[None], model.encode(inputs[None]), save_weights_to=weights)
    source, target = (vocabulary.pieces(ids.tolist()) for ids in (inputs, targets))
    return attention_picture(np.asarray(weights[-1])[0], source, target)


def attention_picture(weights: np.ndarray, source: Sequence[str], target: Sequence[str]) -> Picture:
    """Draws attention weights: a panel a head, a row a target token, a column a source token, the darker the more.

    Args:
        weights: [H, T, S], 0 .. 1.
        source: S tokens in any alphabet. Where no font on this machine has a character, a box stands for it.
        target: T tokens, the same.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    heads, rows, columns = np.shape(weights[:, :MOST_TOKENS, :MOST_TOKENS])
    labels = [_label(token) for token in (*target[:rows], *source[:columns])]
    font: dict[str, Any] = {"family": _families(labels), "size": FONT_SIZE, "parse_math": False}
    across = min(heads, COLUMNS)
    down = -(-heads // across)
    width, height = max(CELL * columns, LEAST_PANEL), max(CELL * rows, LEAST_PANEL)
    figure = Figure((across * (width + GAP) - GAP, down * (height + 2 * GAP) - 2 * GAP))
    FigureCanvasAgg(figure)
    # The panels fill the figure. Saved with a tight box, it grows by the labels around them.
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1, wspace=GAP / width, hspace=2 * GAP / height)
    panels = figure.subplots(down, across, squeeze=False).flat
    for head in range(heads):
        panel = panels[head]
        image = panel.imshow(weights[head, :rows, :columns], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_title(f"head {head + 1}", size=FONT_SIZE + 1, pad=3)
        panel.set_xticks(range(columns), labels[rows:], rotation=90, **font)
        panel.set_yticks(range(rows), labels[:rows], **font)
        panel.tick_params(length=0, labelbottom=head + across >= heads, labelleft=head % across == 0)
        panel.spines[:].set(color="silver", linewidth=0.5)
    for panel in panels[heads:]:
        panel.remove()
    corner = panels[across * (down - 1)]
    corner.set_ylabel(_side("target", rows, len(target)), size=FONT_SIZE + 1)
    corner.set_xlabel(_side("source", columns, len(source)), size=FONT_SIZE + 1)
    scale = panels[across - 1].inset_axes((1 + GAP / width, 0, GAP / 2 / width, 1))
    figure.colorbar(image, scale, ticks=(0, 1)).ax.tick_params(length=0, labelsize=FONT_SIZE)
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # of characters without a font: their boxes say it
        figure.savefig(file, format="png", dpi=100, bbox_inches="tight", pad_inches=0.1)
    png = file.getvalue()
    return Picture(png, *struct.unpack(">II", png[16:24]))


def _side(name: str, shown: int, tokens: int) -> str:
    return name if shown == tokens else f"{name}, the first {shown} of {tokens} tokens"


def _label(token: str) -> str:
    return "".join(character if character.isprintable() else NO_GLYPH for character in token[:LONGEST_LABEL])


def _families(texts: Sequence[str]) -> list[str]:
    """Fonts that together have all characters of `texts` that any font on this machine has."""
    from matplotlib.font_manager import FontProperties, findfont, fontManager, get_font

    families, missing = [], set(map(ord, " ".join(texts)))
    regular = {font.name for font in fontManager.ttflist if (font.style, font.weight) == ("normal", 400)}
    for family in ["DejaVu Sans", *sorted(regular)]:  # Matplotlib brings the first one with it
        if not missing:
            break
        if family.startswith("Last Resort"):  # has a box for each character
            continue
        if found := missing.intersection(get_font(findfont(FontProperties(family=[family]))).get_charmap()):
            families.append(family)
            missing -= found
    return families
