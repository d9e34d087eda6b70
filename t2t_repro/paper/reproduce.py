"""The stages after training: average the checkpoints, decode the test sets, score them, and store the results.

Each stage keeps what it has finished, so an interrupted run continues when it is called again. The name of a decoded
file contains a fingerprint of the weights and of the source text, so it is never taken for the output of another model.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from t2t_repro.checkpoint_reader import step_of
from t2t_repro.data import test_set_files
from t2t_repro.decoding.journal import Journal, journal_path, translate_all
from t2t_repro.decoding.translation import InputFile
from t2t_repro.decoding.translator import Translator
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import PAPER_BLEU, Score
from t2t_repro.model_folder import ModelFolder
from t2t_repro.paper.results import Results, finite, training_results, write_results
from t2t_repro.problem import Problem
from t2t_repro.progress import say
from t2t_repro.textfile import read_lines, whole_file
from t2t_repro.training.averaging import average_checkpoints, averaged_count

F1 = "F1"
"""Label of the parsing score that compares with the paper's."""
Scores = dict[str, list[Score]]
"""The scores of each test set, by its name."""


def evaluate(
    folder: ModelFolder, data_dir: str, tmp_dir: str, search: DecodeHParams | None = None
) -> tuple[Scores, Results]:
    """Averages the checkpoints, decodes and scores the test sets, and stores the results in the model folder.

    Args:
        folder: the model folder.
        data_dir: folder that t2t-datagen filled. It also holds the test sets as text.
        tmp_dir: folder of downloads, for test sets that are not in data_dir yet.
        search: settings of the beam search; default: the problem's decode_hparams.

    Raises UserError if there is no checkpoint or no test set.
    """
    decoder = _Decoder(folder, averaged(folder), search or folder.problem.decode_hparams)
    scores: Scores = {}
    for test_set, paths in test_set_files.ensure(folder.problem, data_dir, tmp_dir).items():
        sources, references = (list(read_lines(str(path))) for path in paths)
        scores[test_set] = folder.problem.scores(decoder.outputs(test_set, sources), references)
        say(f"{test_set}: {scores[test_set][0].label} {scores[test_set][0].score:.2f}")

    comparable = {name: score for name in scores for score in scores[name] if score.label in (PAPER_BLEU, F1)}
    bleu = {name: score.score for name, score in comparable.items() if score.label == PAPER_BLEU}
    f1 = {name: score.score for name, score in comparable.items() if score.label == F1}
    results = replace(
        training_results(folder.path),
        steps=step_of(decoder.averaged),
        dev_bleu=bleu.pop(folder.problem.dev_set, None),
        bleu=bleu,
        f1=finite(f1["test"]) if "test" in f1 else None,
        signatures=[f"{name}: {score.signature}" for name, score in comparable.items()],
        search=",".join(decoder.changes),
    )
    write_results(folder.path, results)
    return scores, results


def uses_last_checkpoint(problem: Problem, test_set: str) -> bool:
    """Returns True for a dev set that has test sets beside it: it is decoded without averaging, as in Table 3."""
    return test_set == problem.dev_set and len(problem.test_sets) > 1


def last_checkpoint(folder: ModelFolder) -> str:
    """Returns the path of the training's last checkpoint, or of the folder's only one.

    Raises UserError if the folder has no checkpoint.
    """
    return next(reversed(folder.checkpoints()), "") or folder.checkpoint()


def averaged(folder: ModelFolder) -> str:
    """Returns the path of the average of the last checkpoints. Computes the average unless it exists.

    Raises UserError if the folder has no checkpoint.
    """
    checkpoints, count = folder.checkpoints(), folder.hparams.num_last_checkpoints
    if not checkpoints:
        return folder.checkpoint()
    path = folder.path / "averaged" / Path(checkpoints[-1]).name
    # An average of more checkpoints than exist now is still valid: some may have been deleted since.
    if not min(count, len(checkpoints)) <= averaged_count(str(path)) <= count:
        average_checkpoints(folder, 0)
    return str(path)


class _Decoder:
    """Decodes the test sets of one model folder. Loads a model only if an output is missing.

    Attributes:
        averaged: path of the averaged checkpoint.
        changes: the decode_hparams that differ from the problem's own and change outputs, as "name=value".
    """

    def __init__(self, folder: ModelFolder, averaged: str, search: DecodeHParams) -> None:
        self.averaged, self._folder, self._search = averaged, folder, search
        defaults = folder.problem.decode_hparams
        self.changes = [
            f"{name}={value}"
            for name, value in vars(search).items()
            if value != getattr(defaults, name) and name != "batch_size"  # changes no output
        ]
        self._translator = functools.cache(self._load)

    def outputs(self, test_set: str, sources: list[str]) -> list[str]:
        """Returns the model's outputs for a test set, decoding it unless the file of outputs exists."""
        is_last = uses_last_checkpoint(self._folder.problem, test_set)
        checkpoint = last_checkpoint(self._folder) if is_last else self.averaged
        kind = "-last" if checkpoint != self.averaged else ""
        stem = f"{test_set.replace('/', '_')}-{step_of(checkpoint)}{kind}"
        name = "-".join([stem, *self.changes, _fingerprint(checkpoint, sources)])
        path = self._folder.path / "decoded" / f"{name}.txt"
        if path.exists():
            journal_path(path).unlink(missing_ok=True)  # left by a process that was killed just before deleting it
        else:
            self._decode(checkpoint, test_set, sources, path)
        return list(read_lines(str(path)))

    def _decode(self, checkpoint: str, test_set: str, sources: list[str], path: Path) -> None:
        """Writes a file of outputs. Continues from the journal of an earlier process if that was killed."""
        translator = self._translator(checkpoint)
        settings = (path.name, replace(self._search, batch_size=1))  # a journal stays valid with another batch size
        with Journal(path, settings, resume=True, strict=False) as journal:
            translations = translate_all(
                len(sources),
                lambda missing: translator.stream(
                    [sources[number] for number in missing], input_file=InputFile(line_numbers=missing)
                ),
                journal,
                f"decoding {test_set}",
            )
            lines, remark = self._folder.problem.finish(sources, [translation.text for translation in translations])
            if remark:
                say(f"{test_set}: {remark}")
            with whole_file(path, "w") as file:
                file.writelines(f"{line}\n" for line in lines)
        journal.delete()

    def _load(self, checkpoint: str) -> Translator:
        say(f"{checkpoint}: {self._search}")
        return Translator.from_folders([self._folder], [checkpoint], self._search)


def _fingerprint(checkpoint: str, sources: Sequence[str]) -> str:
    """Returns eight hex digits of the weights and the source text. A checkpoint's index has the weights' checksums."""
    digest = hashlib.sha256(Path(f"{checkpoint}.index").read_bytes())
    digest.update("\n".join(sources).encode())
    return digest.hexdigest()[:8]
