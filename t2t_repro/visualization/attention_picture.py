"""Draws attention as heat maps: a panel for each layer and head, with a row per query and a column
per key.

Shapes: L layers, H heads, T target tokens, S source tokens.
"""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from t2t_repro.data.dataset import Data
from t2t_repro.errors import UserError
from t2t_repro.visualization.attention import Attention, attention_of
from t2t_repro.visualization.labels import fonts, labels, printable, width

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MAX_TOKENS = 40
"""Maximum number of source tokens, and of target tokens, in a picture for TensorBoard."""
MAX_HEADS = 32
"""Maximum number of heads in a picture for TensorBoard."""
COLUMNS = 4
"""Maximum number of panels in a row, if all panels are of one layer."""
CELL = 0.16
"""Width and height in inches of a cell, which shows one weight. A label of size `FONT_SIZE` fits
beside a cell.
"""
GAP = 0.25
"""Inches between panels in a row, enough for a name. The gap between rows is twice as large, for a
name and a title.
"""
MIN_SIDE = 1.1
"""Minimum width and height of a panel in inches, enough for its title and the names of its axes."""
FONT_SIZE = 7
"""Size of labels in points."""
MAX_INCHES = 160
"""Maximum width and height of a figure. 16 heads with 60 tokens need 158 inches."""
DPI = 100
"""Pixels per inch of PNG files."""
FORMATS = ("png", "svg", "pdf")
AXES = {
    "encoder": ("source", "source"),
    "decoder": ("target to predict", "target already read"),
    "cross": ("target", "source"),
}
"""Names of the queries and of the keys of each kind of attention."""


def dev_picture(model: Any, data: Data) -> bytes | None:
    """Returns a PNG picture of a model's encoder-decoder attention for the first short example of
    the dev split.

    Returns None if the model has no attention, or Matplotlib, which draws the picture, is not
    installed.
    """
    if not (model.has_attention and find_spec("matplotlib")):
        return None
    records = data.records["dev"]
    longer = records.lengths.max(axis=0)
    pair = records[int((longer <= max(MAX_TOKENS, longer.min())).argmax())]
    return attention_picture(attention_of(model, data.vocabulary, *pair)["cross"])


def attention_picture(attention: Attention) -> bytes:
    """Returns heat maps of the last layer for TensorBoard, as PNG: a panel for each of the first
    `MAX_HEADS` heads.

    A panel has the first `MAX_TOKENS` tokens of each side.
    """
    part = attention.select(attention.layers[-1:], attention.heads[:MAX_HEADS])
    part = replace(
        part,
        queries=part.queries[:MAX_TOKENS],
        keys=part.keys[:MAX_TOKENS],
        weights=part.weights[:, :, :MAX_TOKENS, :MAX_TOKENS],
    )
    return rendered(heat_maps(part), "png")


def heat_maps(attention: Attention) -> Figure:
    """Returns a figure with a panel for each head. A row of panels is a layer; a single layer may
    have several rows.

    In a panel, rows are queries and columns are keys. The darker a cell, the more the query attends
    to the key.

    A character that no installed font has is drawn as a box.

    Raises UserError if the figure is larger than `MAX_INCHES`.
    """
    layers, heads, rows, columns = attention.weights.shape
    queries = labels(attention.queries)
    keys = labels(attention.keys)
    font = font_for([*queries, *keys], FONT_SIZE)
    panel_columns = heads if layers > 1 else min(heads, COLUMNS)
    panel_rows = -(-layers * heads // panel_columns)
    wide = max(CELL * columns, MIN_SIDE)
    high = max(CELL * rows, MIN_SIDE)
    figure = new_figure(panel_columns * (wide + GAP) - GAP, panel_rows * (high + 2 * GAP) - 2 * GAP)
    # The panels fill the figure. With bbox_inches="tight", savefig enlarges the picture to include
    # the labels.
    figure.subplots_adjust(
        left=0, right=1, bottom=0, top=1, wspace=GAP / wide, hspace=2 * GAP / high
    )
    write_caption(figure, attention.caption, 0.25)
    panels = figure.subplots(panel_rows, panel_columns, squeeze=False).flat
    names = [(layer, head) for layer in attention.layers for head in attention.heads]
    weights = attention.weights.reshape(-1, rows, columns)
    for number, (panel, (layer, head)) in enumerate(zip(panels, names, strict=False)):
        image = panel.imshow(weights[number], cmap="Blues", vmin=0, vmax=1, aspect="auto")
        panel.set_title(f"layer {layer}, head {head}", size=FONT_SIZE + 1, pad=3)
        panel.set_ylabel(AXES[attention.kind][0], size=FONT_SIZE, labelpad=2)
        panel.set_xlabel(AXES[attention.kind][1], size=FONT_SIZE, labelpad=1)
        panel.set_xticks(range(columns), keys, rotation=90, **font)
        panel.set_yticks(range(rows), queries, **font)
        is_lowest = number + panel_columns >= len(names)
        panel.tick_params(length=0, labelbottom=is_lowest, labelleft=number % panel_columns == 0)
        panel.spines[:].set(color="silver", linewidth=0.5)
    for panel in panels[len(names) :]:
        panel.remove()
    scale_place = panels[panel_columns - 1].inset_axes((1 + GAP / 2 / wide, 0, GAP / 3 / wide, 1))
    # To the right of the upper right panel.
    scale = figure.colorbar(image, scale_place, ticks=(0, 1))
    scale.ax.tick_params(length=0, labelsize=FONT_SIZE)
    return figure


def new_figure(width: float, height: float) -> Figure:
    """Returns an empty figure of a size in inches. Raises UserError if it is larger than
    `MAX_INCHES`.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    if max(width, height) > MAX_INCHES:
        raise UserError(
            f"the picture would be {width:.0f} x {height:.0f} inches; choose fewer --layers and "
            "--heads"
        )
    figure = Figure((width, height))
    FigureCanvasAgg(figure)
    return figure


def font_for(texts: Sequence[str], size: float) -> dict[str, Any]:
    """Returns Matplotlib's arguments for texts of a size in points, in which "$" is itself."""
    families, _ = fonts(texts)
    return {"family": families, "size": size, "parse_math": False}


def write_caption(figure: Figure, caption: Sequence[str], distance: float) -> None:
    """Writes lines at a distance in inches above a figure. Longer lines are wrapped once, and then
    cut off.
    """
    columns = int(max(figure.get_size_inches()[0], 4) / 0.075)
    lines = []
    for line in map(printable, caption):
        line_columns = columns * len(line) // width(line)
        lines += textwrap.wrap(line, line_columns, max_lines=2, placeholder=" …")
    y = 1 + distance / figure.get_size_inches()[1]
    figure.text(0, y, "\n".join(lines), va="bottom", **font_for(lines, FONT_SIZE + 2))


def rendered(figure: Figure, format: str) -> bytes:
    """Returns a figure as a file of a format from `FORMATS`. The same figure always gives the same
    bytes.
    """
    import matplotlib

    file = io.BytesIO()
    # Text stays text in SVG and PDF, so that it can be searched, and other machines can draw it
    # with their fonts.
    options: Any = {"svg.fonttype": "none", "svg.hashsalt": "attention", "pdf.fonttype": 42}
    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(format)
    with matplotlib.rc_context(options), warnings.catch_warnings():
        # Matplotlib warns of characters that no font has.
        warnings.simplefilter("ignore", UserWarning)
        figure.savefig(
            file, format=format, dpi=DPI, bbox_inches="tight", pad_inches=0.1, metadata=undated
        )
    return file.getvalue()
