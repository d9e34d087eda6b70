"""The chain from data to a scored model: train, average, decode the test sets, score; each part once.

What is done is not done again: a training goes on from its last checkpoint, and outputs stay, under names that hold a
fingerprint of the weights and of the text that was decoded. So an interrupted chain is taken up by the same call.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

from t2t_repro.checkpoint_reader import step_of
from t2t_repro.data.datagen import test_sets_at_hand
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import Score
from t2t_repro.model_folder import ModelFolder
from t2t_repro.paper.results import FILE, Results, of_training
from t2t_repro.problem import Problem
from t2t_repro.progress import say
from t2t_repro.textfile import read_lines, whole_file
from t2t_repro.training.checkpoint import average_checkpoints, averaged_count

COMPARABLE = ("BLEU, the paper's way", "F1")
"""Scores that are computed as the paper's; one of them is a model's result."""
Scores = dict[str, list[Score]]
"""By test set."""


def finish(
    folder: ModelFolder, data_dir: str, tmp_dir: str, search: DecodeHParams | None = None
) -> tuple[Scores, Results]:
    """Averages, decodes and scores a trained model; keeps the results in its folder.

    A dev set that stands beside test sets is decoded with the last checkpoint alone, as in the paper's Table 3.

    Args:
        data_dir: what t2t-datagen made, with the test sets as text.
        tmp_dir: folder of downloads, for test sets that are not in data_dir yet.
        search: how to decode; by default as the problem says.

    Raises:
        UserError: no checkpoint, or no test set at hand.
    """
    checkpoint = averaged(folder)
    found: Scores = {}
    sets = test_sets_at_hand(folder.problem, data_dir, tmp_dir)
    usual = folder.problem.decode_hparams
    search = search or usual
    changed = [
        f"{name}={value}"
        for name, value in vars(search).items()
        if value != getattr(usual, name) and name != "batch_size"  # which changes no output
    ]
    from t2t_repro.decoding.journal import unfinished

    translate = _translator(folder, search)
    for name, paths in sets.items():
        sources, references = (list(read_lines(str(path))) for path in paths)
        used = last_checkpoint(folder) if is_apart(folder.problem, name) else checkpoint
        kind = "-last" if used != checkpoint else ""
        told = (f"{name.replace('/', '_')}-{step_of(checkpoint)}{kind}", *changed, _fingerprint(used, sources))
        decoded = folder.path / "decoded" / f"{'-'.join(told)}.txt"
        if not decoded.exists():
            translate(used, name, sources, decoded)
        else:
            unfinished(decoded).unlink(missing_ok=True)  # a process was killed between the two
        found[name] = folder.problem.scores(list(read_lines(str(decoded))), references)
        say(f"{name}: {found[name][0].label} {found[name][0].score:.2f}")

    of_paper = {name: score for name, scores in found.items() for score in scores if score.label in COMPARABLE}
    bleu = {name: score.score for name, score in of_paper.items() if score.label != "F1"}
    results = replace(
        of_training(folder.path),
        steps=step_of(checkpoint),
        dev_bleu=bleu.pop(folder.problem.dev_set, None),
        bleu=bleu,
        f1=_figure(of_paper["test"].score) if "test" in of_paper and "test" not in bleu else None,
        signatures=[f"{name}: {score.signature}" for name, score in of_paper.items()],
        search=",".join(changed),
    )
    with whole_file(folder.path / FILE, "w") as file:
        file.write(json.dumps(asdict(results), indent=2) + "\n")
    return found, results


def _fingerprint(checkpoint: str, sources: Sequence[str]) -> str:
    """Of what outputs are made from: weights, whose checksums are in the checkpoint's index, and text."""
    digest = hashlib.sha256(Path(f"{checkpoint}.index").read_bytes())
    digest.update("\n".join(sources).encode())
    return digest.hexdigest()[:8]


def _figure(value: float | None) -> float | None:
    """The value if it is one: a parser without brackets has no F1."""
    return value if value is not None and math.isfinite(value) else None


def is_apart(problem: Problem, test_set: str) -> bool:
    """Whether a test set is the dev set of a problem that has others."""
    return test_set == problem.dev_set and len(problem.test_sets) > 1


def last_checkpoint(folder: ModelFolder) -> str:
    """The path of the training's last checkpoint, or of what else the folder has.

    Raises:
        UserError: there is none.
    """
    return next(reversed(folder.checkpoints()), "") or folder.checkpoint()


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
        average_checkpoints(folder, 0)
    return str(path)


def _translator(folder: ModelFolder, search: DecodeHParams) -> Callable[[str, str, list[str], Path], None]:
    """What decodes a test set, given a checkpoint, the set's name, its sources and the file to write.

    Models are loaded when needed. What a decode that was killed has done is taken over.
    """
    from t2t_repro.decoding.journal import Journal, translate_all
    from t2t_repro.decoding.translator import Translator

    @functools.cache
    def translator(checkpoint: str) -> Translator:
        say(f"{checkpoint}: {search}")
        return Translator.from_folders([folder], [checkpoint], search)

    def translate(checkpoint: str, name: str, sources: list[str], output: Path) -> None:
        model = translator(checkpoint)
        same = replace(search, batch_size=1)  # less may be what memory asks for
        with Journal(output, (output.name, same), resume=True, strict=False) as journal:
            translations = translate_all(
                len(sources),
                lambda missing: model.stream([sources[number] for number in missing], numbers=missing),
                journal,
                f"decoding {name}",
            )
            lines, said = folder.problem.finish(sources, [translation.text for translation in translations])
            if said:
                say(f"{name}: {said}")
            with whole_file(output, "w") as file:
                file.writelines(f"{line}\n" for line in lines)
        journal.delete()

    return translate
