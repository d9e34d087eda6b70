"""Tests pictures of words joined by strokes by their strokes, colors and words."""

import itertools
from typing import Any

import numpy as np
from matplotlib.colors import to_rgb

from attentions import random_attention
from t2t_repro.visualization.attention import Attention
from t2t_repro.visualization.paper_figures import SOURCES, paper_figure
from t2t_repro.visualization.strokes import MIN_WEIGHT, layer_panels, look, stroke_figure


def attention(
    layers: int = 1, heads: int = 2, queries: str = "a b c", keys: str = "w x y z"
) -> Attention:
    """Returns attention with random weights."""
    numbers = (tuple(range(1, count + 1)) for count in (layers, heads))
    return random_attention("cross", queries, keys, *numbers)


def strokes(axes: Any) -> dict[int, dict[tuple[float, float], float]]:
    """Returns the strokes of a panel by the index of their head's collection: opacity by (x above,
    x below).
    """
    result = {}
    for number, collection in enumerate(axes.collections):
        colors = collection.get_colors()
        ends = [(float(line[0][0]), float(line[1][0])) for line in collection.get_segments()]
        assert all(line[0][1] == 1 and line[1][1] == 0 for line in collection.get_segments())
        result[number] = dict(zip(ends, colors[:, 3].tolist(), strict=True))
    return result


def words(axes: Any, rotation: float = 90) -> list[str]:
    return [text.get_text() for text in axes.texts if text.get_rotation() == rotation]


def test_each_stroke_joins_its_query_with_its_key_and_is_as_opaque_as_its_weight() -> None:
    drawn = attention()
    axes = stroke_figure(layer_panels(drawn)).axes[0]
    places = {text.get_text(): text.get_position()[0] for text in axes.texts}
    for head, lines in strokes(axes).items():
        weights = drawn.weights[0, head]
        expected = {(q, k): weights[q, k] for q, k in itertools.product(range(3), range(4))}
        expected = {pair: weight for pair, weight in expected.items() if weight >= MIN_WEIGHT}
        shift = next(iter(lines))[0] - min(places["abc"[q]] for q, _ in expected)
        assert abs(shift) < 0.5
        ends = [(places["abc"[q]] + shift, places["wxyz"[k]] + shift) for q, k in expected]
        np.testing.assert_allclose(sorted(lines), sorted(ends), atol=1e-6)
        np.testing.assert_allclose(list(lines.values()), list(expected.values()), rtol=1e-6)
    assert words(axes) == ["a", "b", "c", "w", "x", "y", "z"]
    assert words(axes, 0) == ["queries:\ntarget", "keys:\nsource"]


def test_each_head_has_its_own_look_also_in_the_legend() -> None:
    drawn = attention(heads=20).select(heads=[2, 7, 20])
    figure = stroke_figure(layer_panels(drawn))
    legend = figure.axes[0].get_legend()
    assert legend is not None
    heads = zip(
        (2, 7, 20), figure.axes[0].collections, legend.get_lines(), legend.get_texts(), strict=True
    )
    for head, strokes, line, text in heads:
        color = tuple(strokes.get_colors()[0, :3])
        assert color == to_rgb(look(head)["color"]) == to_rgb(line.get_color())
        assert (
            line.get_linestyle()
            == {"solid": "-", "dashed": "--", "dotted": ":"}[look(head)["linestyle"]]
        )
        assert text.get_text() == f"head {head}"
    assert len({tuple(look(head).values()) for head in range(1, 21)}) == 20


def test_a_chosen_word_alone_has_strokes_and_is_bold() -> None:
    drawn = attention(layers=2)
    figure = stroke_figure(layer_panels(drawn, "b"))
    for layer, axes in enumerate(figure.axes):
        assert axes.get_title() == f"layer {layer + 1}"
        for head, lines in strokes(axes).items():
            weights = drawn.weights[layer, head, 1]
            np.testing.assert_allclose(
                list(lines.values()), weights[weights >= MIN_WEIGHT], rtol=1e-6
            )
            assert len({above for above, _ in lines}) == 1
        assert [text.get_text() for text in axes.texts if text.get_weight() == "bold"] == ["b"]
        assert [text.get_text() for text in axes.texts if text.get_color() == "gray"] == ["a", "c"]


def test_sixty_words_do_not_overlap_and_lie_outside_the_strokes() -> None:
    text = " ".join(f"Wort{number}" for number in range(60))
    figure = stroke_figure(layer_panels(attention(layers=2, heads=1, queries=text, keys=text)))
    renderer = figure.canvas.get_renderer()  # type: ignore[attr-defined]
    upper, lower = figure.axes
    for axes in (upper, lower):
        boxes = [
            label.get_window_extent(renderer) for label in axes.texts if label.get_rotation() == 90
        ]
        for left, right in itertools.pairwise(boxes[:60]):
            assert left.x1 <= right.x0 and left.width > 8
        panel = axes.get_window_extent(renderer)
        assert all(box.y0 >= panel.y1 for box in boxes[:60]) and all(
            box.y1 <= panel.y0 for box in boxes[60:]
        )
    lowest = min(label.get_window_extent(renderer).y0 for label in upper.texts)
    assert lowest > lower.title.get_window_extent(renderer).y1


def paper_attention(layers: int, heads: int, number: int) -> Attention:
    """Returns attention over the sentence of a figure of the paper."""
    return attention(layers, heads, *[f"{SOURCES[number]} </s>"] * 2)


def test_figures_3_and_4_have_heads_of_layer_5() -> None:
    def counts(axes: Any) -> list[int]:
        return list(map(len, strokes(axes).values()))

    drawn = paper_attention(6, 8, 3)
    (axes,) = paper_figure(3, drawn).axes
    expected = (drawn.weights[4] >= MIN_WEIGHT).sum(axis=2)  # [heads, queries]
    assert counts(axes) == expected[:, drawn.queries.index("making")].tolist()
    assert axes.get_title() == 'layer 5, "making"'
    drawn = paper_attention(6, 8, 4)
    upper, lower = paper_figure(4, drawn).axes
    expected = (drawn.weights[4] >= MIN_WEIGHT).sum(axis=2)
    assert counts(upper) == [expected[4].sum()]
    assert counts(lower) == expected[4:6, drawn.queries.index("its")].tolist()
    assert upper.get_position().y0 > lower.get_position().y1


def test_figure_5_has_two_heads_side_by_side() -> None:
    # A small model: the layer before the last, and its last two heads.
    drawn = paper_attention(2, 4, 5)
    left, right = paper_figure(5, drawn).axes
    assert [axes.get_title() for axes in (left, right)] == ["layer 1, head 3", "layer 1, head 4"]
    assert (
        left.get_position().x1 < right.get_position().x0
        and left.get_position().y0 == right.get_position().y0
    )
    assert [axes.get_title() for axes in paper_figure(5, drawn, layers=[2], heads=[1]).axes] == [
        "layer 2, head 1"
    ]
