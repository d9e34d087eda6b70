"""Prints the paper's Tables 2, 3 and 4, and beside each row that has an hparams set what this code makes of it.

    t2t-paper
    t2t-paper --table=3 --format=markdown
    t2t-paper --format=csv --output_dirs=M1,M2

Nothing is built or trained: parameters and operations come from the sets by formula. Operations are given "by time",
the paper's way (training time times GPUs times what a GPU is taken to sustain), and "by products" (those of all matrix
products, forward and backward, from their shapes). A model folder's own figures stand beside the row whose set and
problem it was trained with, a line for each folder; those of no row have a table of their own. How to read the tables:
docs/paper.md.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from absl import flags

from t2t_repro import registry
from t2t_repro.bin import program
from t2t_repro.checkpoint_reader import step_of
from t2t_repro.errors import UserError, unknown
from t2t_repro.hparam import HParams
from t2t_repro.model_folder import MAY_DIFFER, ModelFolder
from t2t_repro.models import size
from t2t_repro.paper import rows as paper
from t2t_repro.paper.results import of_training, read_results
from t2t_repro.paper.rows import Corpus, Row
from t2t_repro.tables import Column, Table, to_csv, to_markdown, to_text

TITLES = {
    2: "Table 2: BLEU on newstest2014 and training cost",
    3: "Table 3: variations on base, EN-DE, newstest2013",
    4: "Table 4: English constituency parsing, labelled F1 on section 23",
}
OF_NO_ROW = "Model folders of no row above"
Line = dict[str, Any]

FLAGS = flags.FlagValues()
flags.DEFINE_list("table", [str(number) for number in TITLES], "which tables", flag_values=FLAGS)
flags.DEFINE_enum("format", "text", ["text", "markdown", "csv"], "how they are printed", flag_values=FLAGS)
flags.DEFINE_list("output_dirs", [], "model folders whose figures stand beside their rows", flag_values=FLAGS)
flags.DEFINE_integer(
    "vocab_size",
    0,
    "entries of the vocabulary with which all rows are counted; 0: for each those that the paper's sizes imply",
    lower_bound=0,
    flag_values=FLAGS,
)
flags.DEFINE_list(
    "sustained_tflops",
    [],
    'operations a second that GPUs sustain, times 10^12, e.g. "V100=14", where the paper has none',
    flag_values=FLAGS,
)


def _decimal(digits: int) -> Callable[[float], str]:
    return lambda value: f"{value:.{digits}f}"


def _power(value: float) -> str:
    return f"{value:.1e}".replace("e+", "e")


def _count(value: int) -> str:
    return f"{value:,}"


COLUMNS = (
    Column("row", "row", is_key=True),
    Column("training", "training"),
    Column("hparams_set", "hparams_set", is_key=True),
    Column("hparams_set_enfr", "for EN-FR"),
    # What the paper prints.
    Column("paper_n", "N"),
    Column("paper_d_model", "d_model"),
    Column("paper_d_ff", "d_ff"),
    Column("paper_h", "h"),
    Column("paper_d_k", "d_k"),
    Column("paper_d_v", "d_v"),
    Column("paper_p_drop", "P_drop"),
    Column("paper_eps_ls", "ε_ls"),
    Column("paper_note", "other"),
    Column("paper_steps", "steps", _count),
    Column("paper_perplexity", "PPL dev", _decimal(2)),
    Column("paper_bleu_dev", "BLEU dev", _decimal(1)),
    Column("paper_parameters", "parameters in M", lambda value: f"{value / 1e6:.0f}"),
    Column("paper_bleu_ende", "BLEU EN-DE", "{:g}".format),
    Column("paper_bleu_enfr", "BLEU EN-FR", "{:g}".format),
    Column("paper_flops_ende", "FLOPs EN-DE", _power),
    Column("paper_flops_enfr", "FLOPs EN-FR", _power),
    Column("paper_f1", "F1", _decimal(1)),
    # What this code computes.
    Column("vocab_size", "vocabulary here", _count),
    Column("parameters", "parameters", _count),
    Column("paper_difference", "Δ paper in M", lambda value: f"{value / 1e6:+.0f}"),
    Column("difference", "Δ here in M", lambda value: f"{value / 1e6:+.1f}"),
    Column("target_tokens_per_step", "target tokens/step", _count),
    Column("source_tokens_per_step", "source tokens/step", _count),
    Column("train_steps", "steps here", _count),
    Column("step_flops_by_time", "FLOPs/step by time", _power),
    Column("flops_by_time", "FLOPs by time", _power),
    Column("step_flops_by_products", "FLOPs/step by products", _power),
    Column("flops_by_products", "FLOPs by products", _power),
    Column("parameters_enfr", "parameters EN-FR", _count),
    Column("flops_by_products_enfr", "FLOPs EN-FR by products", _power),
    # What was measured.
    Column("output_dir", "model folder"),
    Column("problem", "problem"),
    Column("measured_steps", "steps taken", _count),
    Column("measured_vocab_size", "its vocabulary", _count),
    Column("measured_parameters", "its parameters", _count),
    Column("measured_perplexity", "PPL dev, measured", _decimal(2)),
    Column("measured_bleu_dev", "BLEU dev, measured", _decimal(2)),
)
AFTER_TEST_SETS = (
    Column("measured_f1", "F1, measured", _decimal(2)),
    Column("train_seconds", "hours", lambda value: f"{value / 3600:.2f}"),
    Column("gpu_count", "devices"),
    Column("hardware", "hardware"),
    Column("measured_flops_by_time", "FLOPs by time, measured", _power),
)
BLEU = "measured_bleu:"
"""What the name of a test set's column begins with."""


def main(values: flags.FlagValues) -> None:
    """Prints the tables.

    Raises:
        UserError: an unknown table, a folder that is no model folder or has nothing to show, or operations a second
            that cannot be read.
    """
    program.require(values, "table")
    known = [str(number) for number in TITLES]
    for given in values.table:
        if given not in known:
            raise unknown("table", given, known)
    given = dict(map(_read_tflops, values.sustained_tflops))
    closest_first = dict(sorted(given.items(), key=lambda item: -len(item[0])))
    # A union keeps the places of the left and the values of the right: what is given goes before the paper's in both.
    folders = [Measured(path, closest_first | paper.SUSTAINED_TFLOPS | given) for path in values.output_dirs]
    _refuse_unknown_hardware(given, folders)
    rows = [row for row in paper.ROWS if str(row.table) in values.table]
    found = [
        _table(number, list(of_table), values.vocab_size, folders)
        for number, of_table in itertools.groupby(rows, key=lambda row: row.table)
    ]
    others = [folder for folder in folders if not any(map(folder.is_of, rows))]
    if others:
        lines = [folder.line for folder in others]
        found.append(Table("", OF_NO_ROW, lines, [note for folder in others for note in folder.notes]))
    test_sets = dict.fromkeys(name for folder in folders for name in folder.line if name.startswith(BLEU))
    of_test_sets = [Column(name, f"BLEU {name.removeprefix(BLEU)}, measured", _decimal(2)) for name in test_sets]
    columns = [*COLUMNS, *of_test_sets, *AFTER_TEST_SETS]
    if values.format == "csv":
        print(to_csv(found, columns), end="")
    elif values.format == "markdown":
        print(to_markdown(found, columns), end="")
    else:
        width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
        print(to_text(found, columns, width), end="")


class Measured:
    """A model folder and what was measured of it.

    Args:
        path: the folder.
        tflops: what GPUs sustain, by name; the first that fits is taken.

    Raises:
        UserError: it is no model folder, its results cannot be read, or its training has not come to its end.
    """

    def __init__(self, path: str, tflops: dict[str, float]) -> None:
        self.folder, found = ModelFolder(path), read_results(path)
        steps, end = max(map(step_of, self.folder.checkpoints()), default=0), self.folder.hparams.train_steps
        if found and steps and found.steps != steps:
            found = None  # of a shorter training, which has gone on since
        results = found or of_training(path)
        if not found and steps < end:
            raise UserError(
                f"{path}: its training is at step {steps:,} of {end:,}; go on with its t2t-trainer command, or with "
                "t2t-reproduce where it was to stop early"
            )
        sustained = next((tflops[name] for name in tflops if _names(name, results.hardware)), 0)
        cost = None
        if results.train_seconds and results.gpu_count and sustained:
            cost = paper.flops_by_time(results.train_seconds, results.gpu_count, sustained)
        changed = " ".join(f"--{name}={value}" for name, value in self.folder.problem.changed_settings.items())
        self.of_row = [f"{path}: its data was made with {changed}"] if changed else []
        self.hardware, self.notes = results.hardware, [f"{path}: {signature}" for signature in results.signatures]
        origin = self.folder.origin
        if origin.precision != "float32":
            self.notes.append(f"{path}: trained in {origin.precision}")
        if origin.warm_start_from:
            self.notes.append(f"{path}: of no row, since it began with the weights of {origin.warm_start_from}")
        if results.search:
            self.notes.append(f"{path}: decoded with {results.search}")
        if results.hardware and not results.gpu_count:
            self.notes.append(f"{path}: no FLOPs by time, since it was trained in several places")
        elif results.hardware and not sustained:
            self.notes.append(
                f"{path}: no FLOPs by time, since the paper does not say what {results.hardware!r} sustains; "
                "--sustained_tflops can"
            )
        hparams, vocab_size = self.folder.hparams, self.folder.vocabulary.size
        self.line: Line = {
            "output_dir": path,
            "problem": self.folder.problem.name,
            "measured_steps": results.steps,
            "measured_vocab_size": vocab_size,
            "measured_parameters": size.parameters(hparams, vocab_size) if hparams.model == "transformer" else None,
            "measured_perplexity": results.dev_perplexity,
            "measured_bleu_dev": results.dev_bleu,
            **{f"{BLEU}{name}": score for name, score in results.bleu.items()},
            "measured_f1": results.f1,
            "train_seconds": results.train_seconds,
            "gpu_count": results.gpu_count,
            "hardware": results.hardware or None,
            "measured_flops_by_time": cost,
        }

    def is_of(self, row: Row) -> bool:
        """Whether the folder was trained with the row's set on its problem, from nothing."""
        experiments = [(row.hparams_set, row.corpus.problem), (row.hparams_set_enfr, paper.EN_FR.problem)]
        return not self.folder.origin.warm_start_from and any(
            name and problem == self.folder.problem.name and _learns_as(self.folder.hparams, registry.hparams(name))
            for name, problem in experiments
        )


def _refuse_unknown_hardware(tflops: Iterable[str], folders: Sequence[Measured]) -> None:
    """Raises UserError where --sustained_tflops names what no model folder was trained on."""
    for name in tflops:
        if not any(_names(name, folder.hardware) for folder in folders):
            there = ", ".join(sorted({repr(folder.hardware) for folder in folders if folder.hardware})) or "none"
            raise UserError(
                f"--sustained_tflops: no model folder of --output_dirs was trained on {name!r}; their hardware: {there}"
            )


def _names(name: str, hardware: str) -> bool:
    """Whether a GPU's short name, such as "V100", is in the name that it gives itself."""
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", hardware))


def _learns_as(ours: HParams, other: HParams) -> bool:
    """Whether two sets differ in nothing but how long is trained and how often is saved."""
    same = {name: getattr(other, name) for name in MAY_DIFFER}
    return dataclasses.replace(ours, **same) == other


def _table(number: int, rows: Sequence[Row], vocab_size: int, folders: Sequence[Measured]) -> Table:
    lines, notes = [], []
    for row in rows:
        line = _printed(row) | _computed(row, vocab_size)
        own = [folder for folder in folders if folder.is_of(row)]
        lines += [line | folder.line for folder in own] or [line]
        notes += [note for folder in own for note in (*folder.notes, *folder.of_row) if note not in notes]
    return Table(str(number), TITLES[number], lines, notes)


def _printed(row: Row) -> Line:
    """What the paper has."""
    fields = dataclasses.asdict(row)
    own = {name: fields[name] or None for name in ("row", "training", "hparams_set", "hparams_set_enfr")}
    return own | {f"paper_{name}": value for name, value in fields.items() if name not in own}


def _computed(row: Row, vocab_size: int) -> Line:
    """What this code has without training, nothing for other systems."""
    if not row.hparams_set:
        return {}
    hparams, entries = registry.hparams(row.hparams_set), vocab_size or row.vocab_size
    parameters, step = size.parameters(hparams, entries), _step(hparams, entries, row.corpus)
    line: Line = {
        "vocab_size": entries,
        "parameters": parameters,
        "target_tokens_per_step": hparams.batch_size,
        "source_tokens_per_step": round(hparams.batch_size * row.corpus.source_length / row.corpus.target_length),
        "train_steps": hparams.train_steps,
        "step_flops_by_products": step,
        "flops_by_products": step * hparams.train_steps,
    }
    if row.hours:
        tflops = paper.SUSTAINED_TFLOPS[paper.HARDWARE]
        line["flops_by_time"] = paper.flops_by_time(row.hours * 3600, paper.GPU_COUNT, tflops)
        line["step_flops_by_time"] = line["flops_by_time"] / hparams.train_steps
    if row.hparams_set_enfr:
        enfr, entries = registry.hparams(row.hparams_set_enfr), vocab_size or paper.EN_FR_VOCABULARY
        line["parameters_enfr"] = size.parameters(enfr, entries)
        line["flops_by_products_enfr"] = _step(enfr, entries, paper.EN_FR) * enfr.train_steps
    if row.parameters and paper.BASE.parameters and row != paper.BASE:
        base = registry.hparams(paper.BASE.hparams_set)
        line["difference"] = parameters - size.parameters(base, vocab_size or paper.BASE.vocab_size)
        line["paper_difference"] = row.parameters - paper.BASE.parameters
    return line


def _step(hparams: HParams, vocab_size: int, corpus: Corpus) -> int:
    return size.step_flops(hparams, vocab_size, corpus.source_length, corpus.target_length)


def _read_tflops(text: str) -> tuple[str, float]:
    name, _, value = text.partition("=")
    try:
        if name.strip() and 0 < float(value) < float("inf"):
            return name.strip(), float(value)
    except ValueError:
        pass
    raise UserError(f"--sustained_tflops: cannot read {text!r}; write a GPU's name, = and a number above 0")


def run() -> None:
    """The program t2t-paper."""
    sys.exit(program.run(main, FLAGS, __doc__))


if __name__ == "__main__":
    run()
