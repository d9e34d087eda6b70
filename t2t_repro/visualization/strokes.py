"""Draws attention like figures 3 to 5 of the paper: words on two lines, joined by strokes.

The upper line has the queries and the lower line the keys. A stroke's color is its head, and its
opacity the weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from t2t_repro.visualization.attention import Attention
from t2t_repro.visualization.attention_picture import AXES, font_for, new_figure, write_caption
from t2t_repro.visualization.labels import labels, width

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CELL = 0.18
HEAD_CELL = 0.02
MAX_CELL = 0.36
"""Inches between neighboring words on a line: smallest distance, inches added for each head, and
largest distance. If one line has fewer words, its words are farther apart.
"""
MIN_WIDTH = 3.0
"""Minimum width of a panel in inches."""
FONT_SIZE = 8
"""Size of words in points."""
LETTER = 0.075
"""Inches that a letter of a word takes, for the space between panels."""
GAP = 0.7
"""Inches between panels, besides the words."""
MIN_WEIGHT = 0.02
"""Minimum weight that gets a stroke. Weaker strokes cannot be seen, but make files larger."""
COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#000000")
"""Colors that color-blind people can tell apart, by Okabe and Ito. Their yellow is too weak on
white.
"""
STYLES = ("solid", "dashed", "dotted")
"""Line styles: the first for heads 1 to 7, which have the colors above, the second for heads 8 to
14, and so on.
"""
MAX_THICKNESS = 2.0
"""Width in points of the stroke of a single head. With several heads, strokes are thinner and side
by side.
"""


@dataclass(frozen=True)
class Panel:
    """A panel of a figure: attention of one layer, drawn as strokes."""

    attention: Attention
    """Weights of one layer."""
    title: str
    query: int | None = None
    """Index of the only query whose strokes are drawn; None for all queries."""


def layer_panels(attention: Attention, word: str = "") -> list[Panel]:
    """Returns a panel for each layer. If there is a word, only the first query with this name has
    strokes.
    """
    query = attention.query(word) if word else None
    return [Panel(attention.select([layer]), f"layer {layer}", query) for layer in attention.layers]


def look(head: int) -> dict[str, Any]:
    """Returns the color and the style of the lines of a head, by its number from 1."""
    style, color = divmod(head - 1, len(COLORS))
    return {"color": COLORS[color], "linestyle": STYLES[style % len(STYLES)]}


def stroke_figure(panels: Sequence[Panel], columns: int = 1) -> Figure:
    """Returns a figure with the panels, `columns` in each row, and a legend of the colors of the
    heads.
    """
    from matplotlib.lines import Line2D

    attention = panels[0].attention
    cells = max(len(attention.queries), len(attention.keys))
    # Inches that the longest word above and the longest word below a panel take.
    above = max(map(width, labels(attention.queries))) * LETTER
    below = max(map(width, labels(attention.keys))) * LETTER
    most_heads = max(len(panel.attention.heads) for panel in panels)
    cell = min(CELL + HEAD_CELL * most_heads, MAX_CELL)
    panel_width = max(cell * cells, MIN_WIDTH)
    height = float(np.clip(panel_width / 5, 1.2, 3))
    rows = -(-len(panels) // columns)
    row_gap = above + below + GAP
    figure = new_figure(columns * (panel_width + GAP) - GAP, rows * (height + row_gap) - row_gap)
    figure.subplots_adjust(
        left=0, right=1, bottom=0, top=1, wspace=GAP / panel_width, hspace=row_gap / height
    )
    all_axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axes, panel in zip(all_axes, panels, strict=False):
        draw_panel(axes, panel, panel_width / cell)
        axes.set_title(panel.title, size=FONT_SIZE + 1, pad=72 * above + 10)
    for axes in all_axes[len(panels) :]:
        axes.remove()
    heads = sorted({head for panel in panels for head in panel.attention.heads})
    lines = [
        Line2D([], [], linewidth=MAX_THICKNESS, label=f"head {head}", **look(head))
        for head in heads
    ]
    legend_columns = min(len(heads), max(2, int(columns * panel_width / 0.72)))
    all_axes[0].legend(
        handles=lines,
        ncols=legend_columns,
        fontsize=FONT_SIZE,
        frameon=False,
        loc="lower left",
        bbox_to_anchor=(0, 1 + (above + 0.35) / height),
        borderaxespad=0,
    )
    legend_rows = -(-len(heads) // legend_columns)
    write_caption(figure, attention.caption, above + 0.5 + 0.2 * legend_rows)
    return figure


def draw_panel(axes: Axes, panel: Panel, span: float) -> None:
    """Draws the words and strokes of a panel that is `span` cells wide."""
    from matplotlib.collections import LineCollection

    attention = panel.attention
    top = _positions(len(attention.queries), span)
    bottom = _positions(len(attention.keys), span)
    count = len(attention.heads)
    for number, head in enumerate(attention.heads):
        weights = attention.weights[0, number]
        is_drawn = weights >= MIN_WEIGHT
        if panel.query is not None:
            is_drawn &= np.arange(len(weights))[:, None] == panel.query
        queries, keys = np.nonzero(is_drawn)
        # So that strokes of several heads lie side by side.
        shift = 0.8 * (number - (count - 1) / 2) / count
        lines = [
            ((top[query] + shift, 1), (bottom[key] + shift, 0))
            for query, key in zip(queries, keys, strict=True)
        ]
        opacity = np.minimum(weights[queries, keys], 1)
        thickness = max(MAX_THICKNESS / count**0.5, 0.8)
        axes.add_collection(
            LineCollection(lines, alpha=opacity, linewidths=thickness, **look(head))
        )
    _write_words(axes, panel, top, bottom)
    axes.set(xlim=(0, span), ylim=(0, 1))
    axes.set_axis_off()


def _positions(count: int, span: float) -> np.ndarray:
    """Returns the horizontal positions of words that share a line of `span` cells."""
    return (np.arange(count) + 0.5) * (span / count)


def _write_words(axes: Axes, panel: Panel, top: np.ndarray, bottom: np.ndarray) -> None:
    """Writes the words of a panel at their positions, and the names of its two lines."""
    queries = labels(panel.attention.queries)
    keys = labels(panel.attention.keys)
    font = font_for([*queries, *keys], FONT_SIZE)
    for number, (x, text) in enumerate(zip(top, queries, strict=True)):
        color = "black" if panel.query in (None, number) else "gray"
        weight = "bold" if number == panel.query else "normal"
        axes.text(
            x, 1.03, text, rotation=90, ha="center", va="bottom", color=color, weight=weight, **font
        )
    for x, text in zip(bottom, keys, strict=True):
        axes.text(x, -0.03, text, rotation=90, ha="center", va="top", **font)
    query_name, key_name = AXES[panel.attention.kind]
    for y, vertical, name in (
        (1, "bottom", f"queries:\n{query_name}"),
        (0, "top", f"keys:\n{key_name}"),
    ):
        axes.text(-0.3, y, name, ha="right", va=vertical, size=FONT_SIZE, color="dimgray")
