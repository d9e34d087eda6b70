"""The paper's Tables 2, 3 and 4 with the parameters and operations of our hparams sets, and with
trained models.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import ModelFolder, hparams_fingerprint
from t2t_repro.checkpoints.reader import step_of
from t2t_repro.console.tables import Column, Table
from t2t_repro.errors import counted, refuse_unknown
from t2t_repro.paper import rows, size
from t2t_repro.paper.results import Results, read_results, training_results
from t2t_repro.paper.rows import Experiment, Row

Line = dict[str, Any]
ALL = "all"
"""The value of --columns that shows every column."""
TEST_SET_PREFIX = "measured_bleu:"
"""Prefix of the name of a column with a test set's measured BLEU, for example
"measured_bleu:wmt14/full".
"""
_one_decimal = "{:.1f}".format
_two_decimals = "{:.2f}".format


def _power(value: float) -> str:
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


VARIATION = (
    Column("paper_n", "N"),
    Column("paper_d_model", "d_model"),
    Column("paper_d_ff", "d_ff"),
    Column("paper_h", "h"),
    Column("paper_d_k", "d_k"),
    Column("paper_d_v", "d_v"),
    Column("paper_p_drop", "P_drop"),
    Column("paper_eps_ls", "ε_ls"),
    Column("paper_note", "positions", lambda note: note.removesuffix(" positions")),
)
"""Columns that describe the variations in Table 3. By default, they are not shown beside model
folders.
"""
COLUMNS = (
    Column("row", "row"),
    Column("training", "training"),
    Column("pair", "pair"),
    Column("paper_f1", "F1", _one_decimal),
    Column("hparams_set", "hparams_set"),
    *VARIATION,
    Column("paper_perplexity", "PPL", _two_decimals),
    Column("paper_bleu_dev", "BLEU", _one_decimal),
    Column("paper_parameters", "params (M)", lambda value: f"{value / 1e6:.0f}"),
    Column("paper_bleu_ende", "BLEU EN-DE", "{:g}".format),
    Column("paper_bleu_enfr", "BLEU EN-FR", "{:g}".format),
    Column("paper_flops_ende", "FLOPs EN-DE", _power),
    Column("paper_flops_enfr", "FLOPs EN-FR", _power),
    Column("published_parameters", "params (M)", lambda value: f"{value / 1e6:,.0f}"),
    Column("parameters", "our params", "{:,}".format),
    Column("token_flops", "FLOPs/token", _power),
    Column("published_tokens", "tokens", _power),
    Column("published_flops_by_products", "products", _power),
    Column("paper_flops", "paper", _power),
    Column("share_of_products", "share", "{:.0%}".format),
)
"""Columns of the paper's tables. From "published_parameters" on, they belong to Table 2's training
costs.
"""
MEASURED = (
    Column("output_dir", "model folder"),
    Column("problem", "problem"),
    Column("measured_steps", "steps taken", "{:,}".format),
    Column("measured_perplexity", "PPL, measured", _two_decimals),
    Column("measured_bleu_dev", "BLEU dev, measured", _two_decimals),
    Column("measured_f1", "F1, measured", _two_decimals),
    Column("train_seconds", "hours", lambda value: f"{value / 3600:.2f}"),
    Column("measured_flops_by_time", "FLOPs by time, measured", _power),
)
"""Columns with a model folder's figures, besides those with the BLEU of test sets."""
TABLES = {
    "2": "Table 2: BLEU on newstest2014 and training cost",
    "3": "Table 3: variations on base, EN-DE, newstest2013",
    "4": "Table 4: English constituency parsing, labelled F1 on section 23",
}
"""Titles of the paper's tables."""
COST_TITLE = (
    "Training costs of the systems in Table 2, in FLOPs: by products, and by time as in the paper"
)
NO_ROW_TITLE = "Model folders that fit no row above"


def compare(
    tables: Sequence[str], output_dirs: Sequence[str], vocab_size: int, tflops: Mapping[str, float]
) -> list[Table]:
    """Returns the paper's tables with our figures in each row, and a table of the model folders
    that fit no row.

    A table with the training costs of single systems follows Table 2. Raises UserError if a table
    is unknown or a model folder is damaged.

    Args:
        tables: numbers of the tables.
        output_dirs: model folders. A model's figures appear in the row that has its hparams set and
            problem.
        vocab_size: vocabulary size for counting the parameters of every row; 0 means the row's own
            `vocab_size`.
        tflops: sustained TFLOPS (10^12 operations per second) by GPU name. They override the
            paper's values.
    """
    for number in tables:
        refuse_unknown("table", number, TABLES)
    models = [TrainedModel.read(path, tflops) for path in output_dirs]
    compared: list[Table] = []
    for number in sorted(set(tables)):
        table_rows = [row for row in rows.ROWS if str(row.table) == number]
        compared.append(_table(number, table_rows, vocab_size, models))
        if number == "2":
            costs = [
                _cost(row, experiment, vocab_size)
                for row in table_rows
                for experiment in row.experiments
            ]
            compared.append(Table("2 cost", COST_TITLE, costs))
    shown_rows = [row for row in rows.ROWS if str(row.table) in tables]
    rowless_models = [
        model for model in models if not any(model.reproduces(row) for row in shown_rows)
    ]
    if rowless_models:
        notes = [note for model in rowless_models for note in model.notes()]
        compared.append(Table("", NO_ROW_TITLE, [model.line() for model in rowless_models], notes))
    return compared


def select_columns(tables: Sequence[Table], names: Sequence[str]) -> list[Column]:
    """Returns the columns that `names` lists, in this order; all columns for "all"; the main
    columns for no names.
    """
    test_sets = dict.fromkeys(
        name for table in tables for line in table.lines for name in line if ":" in name
    )
    scores = [
        Column(name, f"BLEU {name.removeprefix(TEST_SET_PREFIX)}, measured", _two_decimals)
        for name in test_sets
    ]
    columns = {column.name: column for column in (*COLUMNS, *MEASURED, *scores)}
    for name in names:
        refuse_unknown("column", name, [ALL, *columns])
    if names and ALL not in names:
        return [columns[name] for name in names]
    has_models = any("output_dir" in line for table in tables for line in table.lines)
    return [
        column
        for column in columns.values()
        if ALL in names or not (has_models and column in VARIATION)
    ]


@dataclass(frozen=True)
class TrainedModel:
    """A model folder and the results of its model."""

    folder: ModelFolder
    results: Results
    """The content of results.json, or the figures in the training log if results.json is missing or
    older than the latest checkpoint.
    """
    tflops: float | None
    """Sustained TFLOPS of the GPU that trained the model; None if unknown."""

    @classmethod
    def read(cls, path: str, tflops: Mapping[str, float]) -> Self:
        """Returns the model in a model folder, with its results."""
        folder = ModelFolder(path)
        results = read_results(path)
        steps = max(map(step_of, folder.checkpoints()), default=0)
        # Training may have continued after results.json was written.
        if not results or (steps and results.steps != steps):
            results = training_results(path)
        return cls(folder, results, sustained_tflops(results.hardware, tflops))

    def reproduces(self, row: Row) -> bool:
        """Returns True if the model was trained from scratch with the row's hparams set on the
        row's problem.
        """
        if self.folder.origin.warm_start_from:
            return False
        fingerprints = [
            hparams_fingerprint(registry.hparams(experiment.hparams_set))
            for experiment in row.experiments
            if experiment.corpus.problem == self.folder.problem.name
        ]
        return hparams_fingerprint(self.folder.hparams) in fingerprints

    def line(self) -> Line:
        """Returns the cells that describe the model and its results, by column name."""
        results = self.results
        cost = None
        if results.train_seconds and results.gpu_count and self.tflops:
            cost = rows.flops_by_time(results.train_seconds, results.gpu_count, self.tflops)
        return {
            "output_dir": str(self.folder.path),
            "problem": self.folder.problem.name,
            "measured_steps": results.steps,
            "measured_perplexity": results.dev_perplexity,
            "measured_bleu_dev": results.dev_bleu,
            **{f"{TEST_SET_PREFIX}{name}": score for name, score in results.bleu.items()},
            "measured_f1": results.f1,
            "train_seconds": results.train_seconds,
            "measured_flops_by_time": cost,
        }

    def notes(self) -> list[str]:
        """Returns notes to print below the table: the scores' signatures, and facts that limit
        comparability.
        """
        results = self.results
        origin = self.folder.origin
        notes = list(results.signatures)
        train_steps = self.folder.hparams.train_steps
        if results.steps is not None and results.steps < train_steps:
            notes.append(f"trained for {results.steps:,} of {counted(train_steps, 'step')}")
        if origin.precision != "float32":
            notes.append(f"trained in {origin.precision}")
        if origin.warm_start_from:
            notes.append(
                f"fits no row, because it started with the weights of {origin.warm_start_from}"
            )
        if results.search:
            notes.append(f"decoded with {results.search}")
        if results.hardware and not results.gpu_count:
            notes.append("no FLOPs by time, because it was trained on several machines")
        elif results.hardware and not self.tflops:
            notes.append(
                "no FLOPs by time, because the paper gives no sustained rate for "
                f"{results.hardware!r}; give one with --sustained_tflops"
            )
        if settings := self.folder.problem.changed_settings:
            flags = " ".join(f"--{name}={value}" for name, value in settings.items())
            notes.append(f"its data was generated with {flags}")
        return [f"{self.folder.path}: {note}" for note in notes]


def sustained_tflops(hardware: str, user_values: Mapping[str, float]) -> float | None:
    """Returns the sustained TFLOPS of a GPU, or None if unknown.

    The user's values override the paper's. If several GPU names occur in `hardware`, the longest
    name counts.
    """
    for values in (user_values, rows.SUSTAINED_TFLOPS):
        for name in sorted(values, key=len, reverse=True):
            if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", hardware):
                return values[name]
    return None


def _table(
    number: str, table_rows: Sequence[Row], vocab_size: int, models: Sequence[TrainedModel]
) -> Table:
    """Returns a table of the paper with our figures. A row that several models reproduce has one
    line per model.
    """
    lines: list[Line] = []
    notes: dict[str, None] = {}
    for row in table_rows:
        line: Line = {"row": row.name, "training": row.figures.get("training")}
        line |= {f"paper_{name}": figure for name, figure in row.figures.items()}
        if row.experiments:
            ours = row.experiments[0]
            line["hparams_set"] = ours.hparams_set
            line["parameters"] = size.parameters(
                registry.hparams(ours.hparams_set), vocab_size or ours.vocab_size
            )
        row_models = [model for model in models if model.reproduces(row)]
        lines += [line | model.line() for model in row_models] or [line]
        notes |= dict.fromkeys(note for model in row_models for note in model.notes())
    return Table(number, TABLES[number], lines, list(notes))


def _cost(row: Row, experiment: Experiment, vocab_size: int) -> Line:
    """Returns the line of a system in the table of training costs, for one language pair."""
    hparams = registry.hparams(experiment.hparams_set)
    corpus = experiment.corpus
    vocab_size = vocab_size or experiment.vocab_size
    step_flops = size.step_flops(hparams, vocab_size, corpus.source_length, corpus.target_length)
    token_flops = step_flops / hparams.batch_size
    products = experiment.tokens and token_flops * experiment.tokens
    pair = "EN-FR" if corpus == rows.EN_FR else "EN-DE"
    paper_flops = row.figures.get(f"flops_{corpus.problem.removeprefix('wmt_')}")
    return {
        "row": row.name,
        "pair": pair,
        "hparams_set": experiment.hparams_set,
        "published_parameters": experiment.parameters,
        "parameters": size.parameters(hparams, vocab_size),
        "token_flops": token_flops,
        "published_tokens": experiment.tokens,
        "published_flops_by_products": products,
        "paper_flops": paper_flops,
        "share_of_products": products and paper_flops and products / paper_flops,
    }
