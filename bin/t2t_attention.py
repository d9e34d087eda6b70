"""Draws what a model attends to: t2t-attention --output_dir=M --source="A man sleeps on a couch." --out=figures

Without --target, the program translates the source first. It draws two pictures of each kind of attention: the words on
two lines joined by strokes, as in figures 3 to 5 of the paper, and heat maps of each layer and head.

--figure=3 draws the paper's figure 3, over the paper's sentence. --format=npz,json,bertviz writes the weights for other
programs. Layers and heads are numbered from 1. docs/attention.md shows the pictures.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from absl import flags

from t2t_repro.bin import program
from t2t_repro.checkpoints.model_folder import open_folders, refuse_ensemble
from t2t_repro.console.progress import say
from t2t_repro.errors import UserError, shortened, unknown
from t2t_repro.files.output_files import whole_file
from t2t_repro.visualization.arrays import WRITERS
from t2t_repro.visualization.attention import KINDS, Attention, pair_attention
from t2t_repro.visualization.attention_picture import FORMATS, heat_maps, rendered
from t2t_repro.visualization.labels import fonts
from t2t_repro.visualization.paper_figures import FIGURES, paper_figure
from t2t_repro.visualization.strokes import layer_panels, stroke_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure

STYLES = ("lines", "heatmap")

FLAGS = flags.FlagValues()
program.define_shared(FLAGS, "output_dir", "checkpoint_path")
for name, default, text in (
    ("source", "", "the source text; with --figure, the paper's sentence by default"),
    ("target", "", "the target text; by default, the model's translation"),
    ("out", "", "folder of the files to write"),
    ("word", "", "draw only the strokes of this word: the first word or token of the queries with this name"),
):
    flags.DEFINE_string(name, default, text, flag_values=FLAGS)
for name, values, text in (
    ("attention", list(KINDS), f"kinds of attention: {', '.join(KINDS)}"),
    ("style", list(STYLES), "kinds of pictures: lines (words joined by strokes), heatmap"),
    ("layers", [], "numbers of layers, from 1; default: all"),
    ("heads", [], "numbers of heads, from 1; default: all"),
    ("format", ["png"], f"formats of the files: {', '.join((*FORMATS, *WRITERS))}"),
):
    flags.DEFINE_list(name, values, text, flag_values=FLAGS)
flags.DEFINE_enum("figure", "", ["", *map(str, FIGURES)], "draw only this figure of the paper", flag_values=FLAGS)
flags.DEFINE_bool(
    "merge_subwords", False, "show words: weights are summed over keys and averaged over queries", flag_values=FLAGS
)
flags.DEFINE_bool("overwrite", False, "replace files that exist", flag_values=FLAGS)


def main(values: flags.FlagValues) -> None:
    """Computes the attention weights of one sentence pair and writes the files that the flags name."""
    program.require(values, "output_dir", "out")
    check_choices(values)
    layers, heads = numbers("layers", values.layers), numbers("heads", values.heads)
    figure = int(values.figure or 0)
    source = values.source or (FIGURES[figure].source if figure else "")
    if not source.strip():
        raise UserError("--source is empty; give the text to read")
    refuse_ensemble("output_dir", values.output_dir)
    folders, checkpoints = open_folders(values.output_dir, values.checkpoint_path)

    program.load_tensorflow()
    from t2t_repro import devices
    from t2t_repro.decoding.translator import Translator

    devices.use_one_gpu(0)
    devices.share_cores()
    translator = Translator.from_folders(folders, checkpoints, folders[0].problem.decode_hparams)
    # Figures show only the encoder, so the source can stand in for a translation if both share a vocabulary.
    target = source if figure and not translator.vocabulary.separate_source_size else values.target
    result = pair_attention(translator, source, target, values.merge_subwords or bool(figure))
    say(f"source: {result.source}")
    if figure:
        kinds = select(result.kinds, ["encoder"], "omit --figure")
        drawings = {f"figure{figure}": paper_figure(figure, kinds["encoder"], values.word, layers, heads)}
    else:
        say(f"target: {result.target}")
        chosen = values.attention if values["attention"].present else list(result.kinds)
        kinds = select(result.kinds, chosen, f"give --attention={','.join(result.kinds)}")
        kinds = {kind: attention.select(layers, heads) for kind, attention in kinds.items()}
        drawings = draw(kinds, values) if has_pictures(values) else {}
    report_missing_characters(kinds)
    files = {WRITERS[form][0]: WRITERS[form][1](kinds) for form in values.format if form in WRITERS}
    for name, drawing in drawings.items():
        files |= {f"{name}.{form}": rendered(drawing, form) for form in values.format if form in FORMATS}
    write(Path(values.out), files, values.overwrite)


def check_choices(values: flags.FlagValues) -> None:
    """Raises UserError if a list has an unknown name, or if a flag has no effect with others."""
    formats = FORMATS if values.figure else (*FORMATS, *WRITERS)
    for flag, names in (("format", formats), ("style", STYLES), ("attention", KINDS)):
        program.require(values, flag)
        for name in values[flag].value:
            if name not in names:
                raise unknown(f"--{flag}", name, names)
    for flag in ("attention", "style", "merge_subwords"):
        if values.figure and values[flag].present:
            raise UserError(f"--{flag} has no effect with --figure; omit one of them")
    if values.word and not values.figure and not (has_pictures(values) and "lines" in values.style):
        raise UserError("--word chooses strokes, which no file would show; omit it")
    if values.merge_subwords and "bertviz" in values.format:
        raise UserError(
            "--format=bertviz has the same tokens as queries and keys of the decoder; omit --merge_subwords"
        )


def has_pictures(values: flags.FlagValues) -> bool:
    """Returns True if --format has a format of pictures."""
    return any(form in FORMATS for form in values.format)


def numbers(flag: str, texts: Sequence[str]) -> list[int]:
    """Returns the numbers in a list. Raises UserError if one is not a number."""
    try:
        return [int(text) for text in texts]
    except ValueError:
        raise UserError(f"--{flag}={','.join(texts)}: give numbers from 1, separated by commas") from None


def select(kinds: Mapping[str, Attention], chosen: Sequence[str], cure: str) -> dict[str, Attention]:
    """Returns the chosen kinds of attention. Raises UserError, which ends with `cure`, if the model lacks one."""
    for kind in chosen:
        if kind not in kinds:
            raise UserError(f"this model saves no {KINDS[kind]}; {cure}")
    return {kind: kinds[kind] for kind in KINDS if kind in chosen}


def draw(kinds: Mapping[str, Attention], values: flags.FlagValues) -> dict[str, Figure]:
    """Returns the pictures of each kind in each style, by the names of their files without suffix.

    With --word, there are pictures with lines only of the kinds that have this word among their queries. Raises
    UserError if there are none.
    """
    has_word = [kind for kind in kinds if not values.word or kinds[kind].has_query(values.word)]
    if not has_word:
        hint = "" if values.merge_subwords else ", or give --merge_subwords if the word has several subwords"
        kinds[next(iter(kinds))].query(values.word, hint)  # raises the error
    drawings = {}
    for kind, attention in kinds.items():
        if "lines" in values.style and kind in has_word:
            drawings[f"{kind}_lines"] = stroke_figure(layer_panels(attention, values.word))
        if "heatmap" in values.style:
            drawings[f"{kind}_heatmap"] = heat_maps(attention)
    return drawings


def report_missing_characters(kinds: Mapping[str, Attention]) -> None:
    """Prints the characters of the labels that no installed font has."""
    missing = fonts([token for attention in kinds.values() for token in (*attention.queries, *attention.keys)])[1]
    if printable := "".join(character for character in missing if character.isprintable()):
        say(f"no font here has {shortened(printable)}; PNG and PDF show boxes. Install a font, e.g. Noto Sans CJK")


def write(folder: Path, files: Mapping[str, bytes], overwrite: bool) -> None:
    """Writes files by name. Raises UserError before the first one if one exists and `overwrite` is false."""
    for path in (folder / name for name in files):
        if os.path.lexists(path) and not overwrite:
            raise UserError(f"{path}: exists; choose another --out, or give --overwrite")
    for name, content in files.items():
        with whole_file(folder / name) as file:
            file.write(content)
        say(f"{folder / name}: written")


run = program.entry_point(main, FLAGS, __doc__)

if __name__ == "__main__":
    run()
