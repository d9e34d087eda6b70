"""Compares the paper's Tables 2, 3 and 4 with figures computed from our hparams sets and measured on trained models.

This module trains nothing: formulas give the number of parameters and operations of each hparams set.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from t2t_repro import registry
from t2t_repro.checkpoints.model_folder import MAY_DIFFER, ModelFolder
from t2t_repro.checkpoints.reader import step_of
from t2t_repro.console.tables import Table
from t2t_repro.errors import UserError, unknown
from t2t_repro.hparam import HParams
from t2t_repro.models import size
from t2t_repro.paper import rows
from t2t_repro.paper.columns import TEST_SET_PREFIX
from t2t_repro.paper.cost import cost_table
from t2t_repro.paper.results import Results, read_results, training_results
from t2t_repro.paper.rows import Corpus, Row

TITLES = {
    "2": "Table 2: BLEU on newstest2014 and training cost",
    "3": "Table 3: variations on base, EN-DE, newstest2013",
    "4": "Table 4: English constituency parsing, labelled F1 on section 23",
}
NO_ROW_TITLE = "Model folders that fit no row above"
Line = dict[str, Any]


def compare(
    tables: Sequence[str], output_dirs: Sequence[str], vocab_size: int, tflops: Mapping[str, float]
) -> list[Table]:
    """Returns the paper's tables with our figures in each row, and a table of the model folders that fit no row.

    A table with the training costs of single systems follows Table 2.

    Args:
        tables: numbers of the tables.
        output_dirs: model folders. A model's figures appear in the row that has its hparams set and problem.
        vocab_size: vocabulary size for counting the parameters of every row; 0 means the row's own `vocab_size`.
        tflops: sustained TFLOPS (10^12 operations per second) by GPU name. They override the paper's values.

    Raises UserError if a table is unknown, a path is not a model folder, results.json is damaged, a model was neither
    evaluated nor trained to the end, or `tflops` names a GPU that trained none of the models.
    """
    for number in tables:
        if number not in TITLES:
            raise unknown("table", number, TITLES)
    models = [TrainedModel.read(path, tflops) for path in output_dirs]
    _check_hardware(tflops, models)
    compared: list[Table] = []
    for number in TITLES:
        if number in tables:
            compared.append(_table(number, vocab_size, models))
            compared += [cost_table(vocab_size)] if number == "2" else []
    shown_rows = [row for row in rows.ROWS if str(row.table) in tables]
    rowless_models = [model for model in models if not any(model.reproduces(row) for row in shown_rows)]
    if rowless_models:
        notes = [note for model in rowless_models for note in model.notes()]
        compared.append(Table("", NO_ROW_TITLE, [model.line() for model in rowless_models], notes))
    return compared


@dataclass(frozen=True)
class TrainedModel:
    """A model folder and the results of its model.

    Attributes:
        path: path of the folder as the user wrote it.
        folder: the model folder.
        results: the content of results.json, or the figures in the training log if results.json is missing or older
            than the latest checkpoint.
        tflops: sustained TFLOPS of the GPU that trained the model; None if unknown.
    """

    path: str
    folder: ModelFolder
    results: Results
    tflops: float | None

    @classmethod
    def read(cls, path: str, tflops: Mapping[str, float]) -> TrainedModel:
        """Returns the model in a model folder, with its results.

        Raises UserError if the path is not a model folder, or results.json is damaged.
        """
        folder, results = ModelFolder(path), read_results(path)
        steps = max(map(step_of, folder.checkpoints()), default=0)
        if results and steps and results.steps != steps:
            results = None  # outdated: training continued after results.json was written
        results = results or training_results(path)
        return cls(path, folder, results, sustained_tflops(results.hardware, tflops))

    def reproduces(self, row: Row) -> bool:
        """Returns True if the model was trained from scratch with the row's hparams set on the row's problem."""
        return not self.folder.origin.warm_start_from and any(
            experiment.corpus.problem == self.folder.problem.name
            and _same_experiment(self.folder.hparams, registry.hparams(experiment.hparams_set))
            for experiment in row.experiments()
        )

    def line(self) -> Line:
        """Returns the cells that describe the model and its results, by column name."""
        results, hparams, vocab_size = self.results, self.folder.hparams, self.folder.vocabulary.size
        parameters = None
        if hparams.model in size.BUILT_IN:
            parameters = size.parameters(hparams, vocab_size, self.folder.vocabulary.separate_source_size)
        cost = None
        if results.train_seconds and results.gpu_count and self.tflops:
            cost = rows.flops_by_time(results.train_seconds, results.gpu_count, self.tflops)
        return {
            "output_dir": self.path,
            "problem": self.folder.problem.name,
            "measured_steps": results.steps,
            "measured_vocab_size": vocab_size,
            "measured_parameters": parameters,
            "measured_perplexity": results.dev_perplexity,
            "measured_bleu_dev": results.dev_bleu,
            **{f"{TEST_SET_PREFIX}{name}": score for name, score in results.bleu.items()},
            "measured_f1": results.f1,
            "train_seconds": results.train_seconds,
            "gpu_count": results.gpu_count,
            "hardware": results.hardware or None,
            "measured_flops_by_time": cost,
        }

    def notes(self) -> list[str]:
        """Returns notes to print below the table: the scores' signatures, and facts that limit comparability."""
        results, origin = self.results, self.folder.origin
        notes = list(results.signatures)
        if results.steps is not None and results.steps < (end := self.folder.hparams.train_steps):
            notes.append(f"trained for {results.steps:,} of {end:,} steps")
        if origin.precision != "float32":
            notes.append(f"trained in {origin.precision}")
        if origin.warm_start_from:
            notes.append(f"fits no row, because it started with the weights of {origin.warm_start_from}")
        if results.search:
            notes.append(f"decoded with {results.search}")
        if results.hardware and not results.gpu_count:
            notes.append("no FLOPs by time, because it was trained on several machines")
        elif results.hardware and not self.tflops:
            notes.append(
                f"no FLOPs by time, because the paper gives no sustained rate for {results.hardware!r}; "
                "give one with --sustained_tflops"
            )
        return [f"{self.path}: {note}" for note in notes]

    def data_notes(self) -> list[str]:
        """Returns one note with the problem's data settings that differ from their defaults, or no note if none do."""
        settings = " ".join(f"--{name}={value}" for name, value in self.folder.problem.changed_settings.items())
        return [f"{self.path}: its data was generated with {settings}"] if settings else []


def sustained_tflops(hardware: str, user_values: Mapping[str, float]) -> float | None:
    """Returns the sustained TFLOPS of a GPU, or None if unknown.

    The user's values override the paper's. If several GPU names occur in `hardware`, the longest name counts.
    """
    for values in (user_values, rows.SUSTAINED_TFLOPS):
        for name in sorted(values, key=len, reverse=True):
            if _is_named(hardware, name):
                return values[name]
    return None


def _is_named(hardware: str, name: str) -> bool:
    """Returns True if a GPU's short name, such as "V100", is a word in the full name `hardware`."""
    return bool(re.search(rf"(?<!\w){re.escape(name)}(?!\w)", hardware))


def _check_hardware(tflops: Mapping[str, float], models: Sequence[TrainedModel]) -> None:
    """Raises UserError if the user gave TFLOPS for a GPU that trained none of the models."""
    for name in tflops:
        if not any(_is_named(model.results.hardware, name) for model in models):
            hardware = sorted({repr(model.results.hardware) for model in models if model.results.hardware})
            raise UserError(
                f"--sustained_tflops: no model folder of --output_dirs was trained on {name!r}; their hardware: "
                f"{', '.join(hardware) or 'none'}"
            )


def _same_experiment(hparams: HParams, other: HParams) -> bool:
    """Returns True if two hparams sets differ at most in train_steps, local_eval_frequency and num_last_checkpoints."""
    same = {name: getattr(other, name) for name in MAY_DIFFER}
    return dataclasses.replace(hparams, **same) == other


def _table(number: str, vocab_size: int, models: Sequence[TrainedModel]) -> Table:
    """Returns a table of the paper with our figures. A row that several models reproduce has one line per model."""
    lines: list[Line] = []
    notes: dict[str, None] = {}
    for row in rows.ROWS:
        if str(row.table) != number:
            continue
        line = _printed(row) | _computed(row, vocab_size)
        row_models = [model for model in models if model.reproduces(row)]
        lines += [line | model.line() for model in row_models] or [line]
        notes |= dict.fromkeys(note for model in row_models for note in (*model.notes(), *model.data_notes()))
    return Table(number, TITLES[number], lines, list(notes))


def _printed(row: Row) -> Line:
    """Returns the cells that the paper prints for a row, by column name."""
    cells = dataclasses.asdict(row)
    labels = {name: cells.pop(name) or None for name in ("row", "training", "hparams_set", "hparams_set_enfr")}
    return labels | {f"paper_{name}": value for name, value in cells.items()}


def _computed(row: Row, vocab_size: int) -> Line:
    """Returns the cells computed from a row's hparams set, by column name; no cells if the row has no hparams set."""
    if not row.hparams_set:
        return {}
    hparams, entries = registry.hparams(row.hparams_set), vocab_size or row.vocab_size
    parameters, step = size.parameters(hparams, entries), _step_flops(hparams, entries, row.corpus)
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
        tflops = rows.SUSTAINED_TFLOPS[rows.HARDWARE]
        line["flops_by_time"] = rows.flops_by_time(row.hours * 3600, rows.GPU_COUNT, tflops)
        line["step_flops_by_time"] = line["flops_by_time"] / hparams.train_steps
    if row.hparams_set_enfr:
        enfr, entries = registry.hparams(row.hparams_set_enfr), vocab_size or row.vocab_size_enfr
        line["parameters_enfr"] = size.parameters(enfr, entries)
        line["flops_by_products_enfr"] = _step_flops(enfr, entries, rows.EN_FR) * enfr.train_steps
    if row.parameters and rows.BASE.parameters and row != rows.BASE:
        base = registry.hparams(rows.BASE.hparams_set)
        line["difference"] = parameters - size.parameters(base, vocab_size or rows.BASE.vocab_size)
        line["paper_difference"] = row.parameters - rows.BASE.parameters
    return line


def _step_flops(hparams: HParams, vocab_size: int, corpus: Corpus) -> int:
    return size.step_flops(hparams, vocab_size, corpus.source_length, corpus.target_length)
