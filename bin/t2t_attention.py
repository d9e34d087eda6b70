"""Draws what a model attends to: t2t-attention --output_dir=M --source="A man sleeps on a couch."
--out=figures

Without --target, the program translates the source first. It draws two pictures of each kind of
attention: the words on two lines joined by strokes, as in figures 3 to 5 of the paper, and heat
maps of each layer and head.

--figure=3 draws the paper's figure 3, over the paper's sentence. --format=npz,json,bertviz writes
the weights for other programs. Layers and heads are numbered from 1. Pictures need Matplotlib: pip
install "t2t_repro[figures]". docs/attention.md shows the pictures.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from absl import flags

from t2t_repro.bin import program
from t2t_repro.checkpoints.model_folder import open_folders, refuse_ensemble
from t2t_repro.console.progress import say
from t2t_repro.errors import UserError, refuse_unknown, require_extra, shortened
from t2t_repro.files.output_files import write_file
from t2t_repro.visualization.arrays import WRITERS
from t2t_repro.visualization.attention import KINDS, Attention, pair_attention
from t2t_repro.visualization.attention_picture import FORMATS, heat_maps, rendered
from t2t_repro.visualization.labels import fonts
from t2t_repro.visualization.paper_figures import SOURCES, paper_figure
from t2t_repro.visualization.strokes import layer_panels, stroke_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ("lines", "heatmap")


@dataclass(frozen=True)
class Flags:
    source: str = ""
    """The source text; with --figure, the paper's sentence by default. If the model has several
    target languages, it must begin with a tag, e.g. >>de<<.
    """
    target: str = ""
    """The target text; by default, the model's translation."""
    out: str = ""
    """Folder of the files to write."""
    word: str = ""
    """Draw only the strokes of this word: the first query with this name. A query is a token, or
    with --merge_subwords or --figure a word.
    """
    attention: tuple[str, ...] = ()
    """Kinds of attention: encoder, decoder, cross; default: all that the model has."""
    style: tuple[str, ...] = STYLES
    """Kinds of pictures: lines (words joined by strokes), heatmap."""
    layers: tuple[str, ...] = ()
    """Numbers of layers, from 1; default: all."""
    heads: tuple[str, ...] = ()
    """Numbers of heads, from 1; default: all."""
    format: tuple[str, ...] = ("png",)
    """Formats of the files: png, svg, pdf, npz, json, bertviz."""
    figure: Literal["", "3", "4", "5"] = ""
    """Draw only this figure of the paper."""
    merge_subwords: bool = False
    """Show words: weights are summed over keys and averaged over queries."""
    overwrite: bool = False
    """Replace files that exist."""


FLAGS = program.make_flags(Flags, "output_dir", "checkpoint_path")

USELESS = {"with --figure": ("attention", "style", "merge_subwords")}


def main(values: flags.FlagValues) -> None:
    check_flags(values)
    figure = int(values.figure or 0)
    source = values.source or (SOURCES[figure] if figure else "")
    if not source.strip():
        raise UserError("--source is empty; give the text to read")
    layers = numbers("layers", values.layers)
    heads = numbers("heads", values.heads)
    folders, checkpoints = open_folders(values.output_dir, values.checkpoint_path)

    program.load_tensorflow()
    from t2t_repro import devices
    from t2t_repro.decoding.translator import Translator

    devices.use_one_gpu(0)
    devices.share_cores()
    translator = Translator.from_folders(folders, checkpoints, folders[0].problem.decode_hparams)
    # Figures show only the encoder, so the source can stand in for a translation if both share a
    # vocabulary.
    target = source if figure and not translator.vocabulary.separate_source_size else values.target
    result = pair_attention(translator, source, target, values.merge_subwords or bool(figure))
    say(f"source: {result.source}")
    if figure:
        kinds = select(result.kinds, ["encoder"])
        drawings = {
            f"figure{figure}": paper_figure(figure, kinds["encoder"], values.word, layers, heads)
        }
    else:
        say(f"target: {result.target}")
        kinds = select(result.kinds, values.attention)
        kinds = {kind: attention.select(layers, heads) for kind, attention in kinds.items()}
        drawings = draw(kinds, values) if has_pictures(values) else {}
    if drawings:
        texts = []
        for attention in kinds.values():
            texts += [*attention.caption, *attention.queries, *attention.keys]
        _, characters = fonts(texts)
        if missing := shortened("".join(filter(str.isprintable, characters)), 20):
            say(
                f"no font here has {missing}; PNG and PDF show boxes.\nInstall a font, e.g. Noto "
                "Sans CJK"
            )
    files = {}
    for form in values.format:
        if form in WRITERS:
            name, writer = WRITERS[form]
            files[name] = writer(kinds)
    for name, drawing in drawings.items():
        for form in values.format:
            if form in FORMATS:
                files[f"{name}.{form}"] = rendered(drawing, form)
    write(Path(values.out), files, values.overwrite)


def check_flags(values: flags.FlagValues) -> None:
    """Raises UserError if a flag is missing, has an unknown name, or has no effect with others."""
    program.require(values, "output_dir", "out", "style", "format")
    program.refuse_useless(values, USELESS)
    refuse_ensemble("output_dir", values.output_dir)
    formats = FORMATS if values.figure else (*FORMATS, *WRITERS)
    for flag, names in (("format", formats), ("style", STYLES), ("attention", KINDS)):
        for name in values[flag].value:
            refuse_unknown(f"--{flag}", name, names)
    if has_pictures(values):
        require_extra("figures", "matplotlib")
    if values.word and not values.figure and not (has_pictures(values) and "lines" in values.style):
        raise UserError("--word chooses strokes, which no file would show; omit it")
    if values.merge_subwords and "bertviz" in values.format:
        raise UserError(
            "--format=bertviz has the same tokens as queries and keys of the decoder; omit "
            "--merge_subwords"
        )


def has_pictures(values: flags.FlagValues) -> bool:
    return any(form in FORMATS for form in values.format)


def numbers(flag: str, texts: Sequence[str]) -> list[int]:
    """Returns the numbers in a list. Raises UserError if one is not a number."""
    try:
        return [int(text) for text in texts]
    except ValueError:
        raise UserError(
            f"--{flag}={','.join(texts)}: give numbers from 1, separated by commas"
        ) from None


def select(kinds: Mapping[str, Attention], chosen: Sequence[str]) -> dict[str, Attention]:
    """Returns the chosen kinds of attention; empty for all. Raises UserError if the model lacks
    one.
    """
    for kind in chosen:
        if kind not in kinds:
            raise UserError(f"this model saves no {KINDS[kind]}; it has only {', '.join(kinds)}")
    return {kind: kinds[kind] for kind in kinds if kind in (chosen or kinds)}


def draw(kinds: Mapping[str, Attention], values: flags.FlagValues) -> dict[str, Figure]:
    """Returns the pictures of each kind in each style, by the names of their files without suffix.

    With --word, there are pictures with lines only of the kinds that have this word among their
    queries. Raises UserError if there are none.
    """
    has_word = [kind for kind in kinds if not values.word or values.word in kinds[kind].names]
    if not has_word:
        kinds[next(iter(kinds))].query(values.word)  # raises the error
    drawings = {}
    for kind, attention in kinds.items():
        if "lines" in values.style and kind in has_word:
            drawings[f"{kind}_lines"] = stroke_figure(layer_panels(attention, values.word))
        if "heatmap" in values.style:
            drawings[f"{kind}_heatmap"] = heat_maps(attention)
    return drawings


def write(folder: Path, files: Mapping[str, bytes], overwrite: bool) -> None:
    """Writes files by name. Raises UserError before the first one if one exists and `overwrite` is
    false.
    """
    for path in (folder / name for name in files):
        if os.path.lexists(path) and not overwrite:
            raise UserError(f"{path}: exists; choose another --out, or give --overwrite")
    for name, content in files.items():
        write_file(folder / name, content)
        say(f"{folder / name}: written")


run = program.entry_point(main, FLAGS, __doc__)
