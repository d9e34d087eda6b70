"""The chain from data to a scored model: train, average, decode the test sets, score; each part once.

What is done is not done again: a training goes on from its last checkpoint, and a test set that was decoded with the
final checkpoint stays, unless its text has been written since. So an interrupted chain is taken up by the same call.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from t2t_repro.data.datagen import write_test_sets
from t2t_repro.errors import UserError
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import Score
from t2t_repro.model_folder import ModelFolder, step_of
from t2t_repro.progress import Progress, say
from t2t_repro.results import FILE, Results
from t2t_repro.textfile import read_lines, whole_file
from t2t_repro.training.checkpoint import average_checkpoints, averaged_count
from t2t_repro.training.metrics_log import read_metrics

COMPARABLE = ("BLEU, the paper's way", "F1")
"""Scores that are computed as the paper's; one of them is a model's result."""
Scores = dict[str, list[Score]]
"""By test set."""


def finish(
    folder: ModelFolder, data_dir: str, tmp_dir: str, search: DecodeHParams | None = None
) -> tuple[Scores, Results]:
    """Averages, decodes and scores a trained model; keeps the results in its folder.

    Args:
        data_dir: what t2t-datagen made, with the test sets as text.
        tmp_dir: folder of downloads, for test sets that are not in data_dir yet.
        search: how to decode; by default as the problem says.

    Raises:
        UserError: no checkpoint, or no test set at hand.
    """
    checkpoint = averaged(folder)
    found: Scores = {}
    sets = write_test_sets(folder.problem, data_dir, tmp_dir, again=False)
    if not sets:
        raise UserError(f"{data_dir}: no test set of problem {folder.problem.base_name} there; see docs/data.md")
    usual = folder.problem.decode_hparams
    search = search or usual
    changed = [f"-{name}={value}" for name, value in vars(search).items() if value != getattr(usual, name)]
    translate = _translator(folder, checkpoint, search)
    for name, paths in sets.items():
        sources, references = (list(read_lines(str(path))) for path in paths)
        written = max(path.stat().st_mtime_ns for path in paths)
        decoded = folder.path / "decoded" / f"{name.replace('/', '_')}-{step_of(checkpoint)}{''.join(changed)}.txt"
        if not decoded.exists() or decoded.stat().st_mtime_ns < written:
            lines = translate(name, sources)
            with whole_file(decoded, "w") as file:
                file.writelines(f"{line}\n" for line in lines)
        found[name] = folder.problem.scores(list(read_lines(str(decoded))), references)
        say(f"{name}: {found[name][0].label} {found[name][0].score:.2f}")

    measured = read_metrics(folder.path)
    training, evaluation = (
        next((line for line in reversed(measured) if name in line), dict[str, Any]())
        for name in ("seconds", "dev_perplexity")
    )
    of_paper = {name: score for name, scores in found.items() for score in scores if score.label in COMPARABLE}
    bleu = {name: score.score for name, score in of_paper.items() if score.label != "F1"}
    results = Results(
        steps=step_of(checkpoint),
        dev_perplexity=_figure(evaluation.get("dev_perplexity")),
        dev_bleu=bleu.pop(folder.problem.dev_set, None),
        bleu=bleu,
        f1=_figure(of_paper["test"].score) if "test" in of_paper and "test" not in bleu else None,
        train_seconds=training.get("seconds"),
        hardware=training.get("hardware", ""),
        gpu_count=training.get("gpu_count"),
        signatures=[f"{name}: {score.signature}" for name, score in of_paper.items()],
    )
    with whole_file(folder.path / FILE, "w") as file:
        file.write(json.dumps(asdict(results), indent=2) + "\n")
    return found, results


def _figure(value: float | None) -> float | None:
    """The value if it is one: a training that diverged has no perplexity, a parser without brackets no F1."""
    return value if value is not None and math.isfinite(value) else None


def averaged(folder: ModelFolder) -> str:
    """The path of the mean of the last checkpoints, which is made unless it is there.

    Raises:
        UserError: no checkpoint.
    """
    checkpoints, last = folder.checkpoints(), folder.hparams.num_last_checkpoints
    if not checkpoints:
        return folder.checkpoint()
    path, there = folder.path / "averaged" / Path(checkpoints[-1]).name, min(last, len(checkpoints))
    if not there <= averaged_count(str(path)) <= last:  # some that went in may have been deleted since
        for decoded in (folder.path / "decoded").glob(f"*-{step_of(str(path))}[-.]*"):
            decoded.unlink()
        average_checkpoints(folder, 0)
    return str(path)


def _translator(folder: ModelFolder, checkpoint: str, search: DecodeHParams) -> Callable[[str, list[str]], list[str]]:
    """What decodes a test set, given its name and its sources; the model is loaded when it is first called."""
    from t2t_repro.decoding.translator import Translator

    @functools.cache
    def translator() -> Translator:
        say(f"{checkpoint}: {search}")
        return Translator(folder.model(checkpoint), folder.vocabulary, search)

    def translate(name: str, sources: list[str]) -> list[str]:
        progress = Progress(f"decoding {name}", len(sources), "lines")
        outputs = [translation.text for translation in translator().translate(sources, advance=progress.advance)]
        progress.close()
        lines, said = folder.problem.finish(sources, outputs)
        if said:
            say(f"{name}: {said}")
        return lines

    return translate
