"""Figures 3 to 5 of the paper: encoder self-attention of layer 5 of 6 over the paper's
sentences.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from t2t_repro.visualization.attention import Attention
from t2t_repro.visualization.strokes import Panel, stroke_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LAW = (
    "The Law will never be perfect , but its application should be just - this is what we are "
    "missing , in my opinion ."
)
SOURCES = {
    3: "It is in this spirit that a majority of American governments have passed new laws since "
    "2009 making the registration or voting process more difficult .",
    4: LAW,
    5: LAW,
}
"""The sentence of each figure, by number."""
WORDS = {3: "making", 4: "its"}
"""The word whose strokes figures 3 and 4 show."""


def paper_figure(
    number: int,
    attention: Attention,
    word: str = "",
    layers: Sequence[int] = (),
    heads: Sequence[int] = (),
) -> Figure:
    """Returns figure 3, 4 or 5.

    Args:
        number: 3: all heads for one word. 4: the first of two heads for all words, and both heads
            for one word. 5: two heads for all words, side by side.
        attention: encoder self-attention, of words.
        word: the word of figures 3 and 4; by default, the paper's.
        layers: number of the layer; by default, the one before the last, like the paper's layer 5
            of 6.
        heads: numbers of the heads; by default, all heads in figure 3. In figures 4 and 5, heads 5
            and 6 as in the paper, or the last two heads of a model with fewer.
    """
    two_heads = (5, 6) if len(attention.heads) >= 6 else attention.heads[-2:]
    default_layer = max(attention.layers[-1] - 1, 1)
    default_heads = () if number == 3 else two_heads
    chosen = attention.select(layers or [default_layer], heads or default_heads)
    layer = f"layer {chosen.layers[0]}"
    word = word or WORDS.get(number, "")
    if number == 3:
        return stroke_figure([Panel(chosen, f'{layer}, "{word}"', chosen.query(word))])
    panels = [Panel(chosen.select(heads=[head]), f"{layer}, head {head}") for head in chosen.heads]
    if number == 4:
        names = " and ".join(map(str, chosen.heads))
        panels = [panels[0], Panel(chosen, f'{layer}, heads {names}, "{word}"', chosen.query(word))]
    return stroke_figure(panels, columns=len(panels) if number == 5 else 1)
