"""Prints the paper's Tables 2, 3 and 4 next to the figures of this code and of trained models.

    t2t-paper
    t2t-paper --table=3 --columns=hparams_set,paper_parameters,parameters
    t2t-paper --format=csv --output_dirs=M1,M2

By default, a table shows only the main figures; --columns=all and --format=csv print every column.
The header of the CSV output has the names that --columns accepts. Nothing is trained: parameters
and operations are counted in models without weights. A second table below Table 2 has the training
costs of its systems: operations in matrix products, and the paper's estimates by time.
--output_dirs adds the figures of trained models to the rows with the same hparams set and problem.
Models that fit no row get a separate table. docs/paper.md explains the columns.
"""

import sys
from dataclasses import dataclass, field
from typing import Literal

from absl import flags

from t2t_repro.bin import program
from t2t_repro.checkpoints.model_folder import folder_paths
from t2t_repro.console.tables import to_csv, to_markdown, to_text
from t2t_repro.console.terminal import width_of
from t2t_repro.errors import UserError


@dataclass(frozen=True)
class Flags:
    table: tuple[str, ...] = ("2", "3", "4")
    """Numbers of the tables."""
    format: Literal["text", "markdown", "csv"] = "text"
    """Format of the output."""
    columns: tuple[str, ...] = ()
    """Names of the columns to print, as in CSV's header, or "all"; default: the main figures; in
    CSV, all columns.
    """
    output_dirs: str = ""
    """Model folders to compare with the paper, separated by commas."""
    vocab_size: int = field(default=0, metadata={"upper_bound": 2**31 - 1})
    """Vocabulary size with which the parameters of all rows are counted; 0: for each row, the size
    that fits the paper.
    """
    sustained_tflops: tuple[str, ...] = ()
    """Sustained TFLOPS (10^12 operations per second) of a GPU, e.g. "V100=14"; overrides the
    paper's values.
    """


FLAGS = program.make_flags(Flags)


def main(values: flags.FlagValues) -> None:
    program.require(values, "table")
    tflops = dict(map(_read_tflops, values.sustained_tflops))
    folders = folder_paths(values.output_dirs, "--output_dirs") if values.output_dirs else []
    program.load_tensorflow(has_gpus=False)  # counting parameters needs none of their memory
    # Imported late, because it imports TensorFlow.
    from t2t_repro.paper.tables import (
        compare,
        select_columns,
    )

    tables = compare(values.table, list(dict.fromkeys(folders)), values.vocab_size, tflops)
    columns = select_columns(tables, values.columns or (["all"] if values.format == "csv" else []))
    if values.format == "text":
        text = to_text(
            tables, columns, width_of(sys.stdout) if sys.stdout.isatty() else sys.maxsize
        )
    else:
        text = {"markdown": to_markdown, "csv": to_csv}[values.format](tables, columns)
    program.write_lines([text.removesuffix("\n")])


def _read_tflops(text: str) -> tuple[str, float]:
    """Returns the GPU's name and the number in a value of --sustained_tflops, e.g. ("V100", 14.0)
    for "V100=14".
    """
    name, _, value = text.partition("=")
    try:
        if name.strip() and 0 < float(value) < float("inf"):
            return name.strip(), float(value)
    except ValueError:
        pass
    raise UserError(
        f"--sustained_tflops: cannot read {text!r}; write a GPU's name, = and a number above 0"
    )


run = program.entry_point(main, FLAGS, __doc__)
