"""The stages after training: average the checkpoints, decode the test sets, score them, and store
the results.

Each stage stores its finished work in the model folder. If a run is interrupted, the next run
continues from that work. Decoded outputs are stored in a file whose name contains a fingerprint of
the model, the source text and the settings of the search, so outputs of another model, text or
search are never reused.
"""

import functools
import hashlib
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from t2t_repro.checkpoints.averaging import average_checkpoints, averaged_count
from t2t_repro.checkpoints.model_folder import ModelFolder
from t2t_repro.checkpoints.reader import read_checkpoint, step_of
from t2t_repro.console.progress import say
from t2t_repro.data import test_set_files
from t2t_repro.decoding.journal import Journal, translate_lines
from t2t_repro.decoding.output import refuse_diverged
from t2t_repro.decoding.translator import Translator
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import finite
from t2t_repro.files.output_files import subfolder, write_file
from t2t_repro.files.textfile import read_lines
from t2t_repro.hparam import DecodeHParams
from t2t_repro.metrics.score import F1, PAPER_BLEU, Score
from t2t_repro.paper.results import Results, training_results, write_results
from t2t_repro.problem import Problem

Scores = dict[str, list[Score]]
"""The scores of a model on each test set, by name of the test set."""


def evaluate(
    folder: ModelFolder, data_dir: str, tmp_dir: str, decode_hparams: DecodeHParams
) -> tuple[Scores, Results]:
    """Returns the scores of a model's outputs on the test sets, and the model's results. Writes
    results.json.

    Averages the checkpoints and decodes the test sets, unless an earlier run has stored this work.
    Test sets that are missing in `data_dir`, which t2t-datagen filled, are extracted from the
    downloads in `tmp_dir`.

    Raises UserError if the folder has no checkpoint, another run is using it, or no test set is
    available.
    """
    defaults = vars(folder.problem.decode_hparams)
    changes = [
        f"{name}={value}"
        for name, value in vars(decode_hparams).items()
        if value != defaults[name] and name != "batch_size"  # which affects no output
    ]

    @functools.cache
    def translator(checkpoint: str) -> Translator:
        say(f"{checkpoint}: {decode_hparams}")
        return Translator.from_folders([folder], [checkpoint], decode_hparams)

    with ModelFolder.locked(folder.path):
        average = averaged(folder)
        scores: Scores = {}
        for test_set, paths in test_set_files.ensure(folder.problem, data_dir, tmp_dir).items():
            sources, references = (list(read_lines(str(path))) for path in paths)
            checkpoint = average
            name = f"{test_set.replace('/', '_')}-{step_of(average)}"
            if uses_last_checkpoint(folder.problem, test_set) and folder.checkpoints():
                checkpoint = folder.checkpoints()[-1]
                name += "-last"
            basis = repr((folder.identity(checkpoint), changes, sources)).encode()
            name += f"-{hashlib.sha256(basis).hexdigest()[:8]}.txt"
            path = subfolder(folder.path, "decoded") / name
            outputs = _whole_lines(path)
            if outputs is None or len(outputs) != len(sources):
                outputs = _decode(translator(checkpoint), folder.problem, test_set, sources, path)
            scores[test_set] = folder.problem.scores(outputs, references)
            say(f"{test_set}: {scores[test_set][0].label} {scores[test_set][0].score:.2f}")
        results = replace(
            _comparable(scores, folder),
            steps=step_of(average),
            search=",".join(changes),
        )
        write_results(folder.path, results)
        return scores, results


def _comparable(scores: Scores, folder: ModelFolder) -> Results:
    """Returns the results of the training, with the scores of the kinds that the paper has."""
    bleu = {}
    f1 = None
    signatures = []
    for test_set, test_set_scores in scores.items():
        for score in test_set_scores:
            if score.label == PAPER_BLEU:
                bleu[test_set] = score.score
            elif score.label == F1 and test_set == "test":
                f1 = finite(score.score)
            if score.label in (PAPER_BLEU, F1):
                signatures.append(f"{test_set}: {score.signature}")
    dev_bleu = bleu.pop(folder.problem.dev_set, None)
    training = training_results(folder.path)
    return replace(training, dev_bleu=dev_bleu, bleu=bleu, f1=f1, signatures=signatures)


def uses_last_checkpoint(problem: Problem, test_set: str) -> bool:
    """Returns True for the dev set of a problem with other test sets.

    The last checkpoint decodes it, as for the paper's Table 3; the average decodes the others.
    """
    return test_set == problem.dev_set and len(problem.test_sets) > 1


def averaged(folder: ModelFolder) -> str:
    """Returns the path of the average of the last checkpoints. Computes the average if it does not
    exist.
    """
    checkpoints = folder.checkpoints()
    if not checkpoints:
        return folder.checkpoint()
    path = str(folder.path / "averaged" / Path(checkpoints[-1]).name)
    averaged_checkpoints = 0
    with suppress(UserError):  # a damaged average is computed again
        read_checkpoint(path)
        averaged_checkpoints = averaged_count(path)
    # An average of more checkpoints than the folder still has is valid: users may have deleted
    # checkpoints since then.
    count = folder.hparams.num_last_checkpoints
    if not min(count, len(checkpoints)) <= averaged_checkpoints <= count:
        average_checkpoints(folder, 0)
    return path


def _whole_lines(path: Path) -> list[str] | None:
    """Returns the lines of a file of outputs; None if it is missing, not UTF-8 or cut off within a
    line.
    """
    with suppress(OSError, UnicodeDecodeError):
        *lines, rest = path.read_bytes().decode().split("\n")
        return None if rest else lines
    return None


def _decode(
    translator: Translator, problem: Problem, test_set: str, sources: list[str], path: Path
) -> list[str]:
    """Returns the outputs for a test set, and writes them to `path`.

    Continues from the journal of an interrupted process, if any.
    """
    # Without the batch size, a run with another one can resume.
    settings = (path.name, replace(translator.decode_hparams, batch_size=1))
    with Journal(path, settings, resume=True) as journal:
        translations = translate_lines(
            translator, sources, journal=journal, label=f"decoding {test_set}"
        )
        refuse_diverged(translation.score for translation in translations)
        lines, remark = problem.finish(sources, [translation.text for translation in translations])
        if remark:
            say(f"{test_set}: {remark}")
        write_file(path, "".join(f"{line}\n" for line in lines))
        journal.delete()
    return list(lines)
