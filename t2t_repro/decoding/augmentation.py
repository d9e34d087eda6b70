"""Translates text into a corpus of pairs with one synthetic side, shard by shard: the work of
t2t-augment.

After a kill, all lines of the unfinished shard are translated again. A journal of single lines
would change the corpus, because translations from other batches can be rounded differently.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_repro.console.progress import Progress
from t2t_repro.corpora.augmented import FILE_NAME, Augmentation, read_augmentation, shard_path
from t2t_repro.data.vocabularies.text_rules import is_empty
from t2t_repro.decoding.output import finish_translations, refuse_diverged
from t2t_repro.decoding.translation import InputFile, Translation
from t2t_repro.errors import UserError
from t2t_repro.files.json_file import to_json
from t2t_repro.files.output_files import locked, write_file
from t2t_repro.files.textfile import read_lines
from t2t_repro.problem import Problem

if TYPE_CHECKING:
    from t2t_repro.decoding.translator import Translator


def resumed(folder: Path, augmentation: Augmentation) -> Augmentation:
    """Returns the content of the folder's augment.json; if the folder is new or empty,
    `augmentation`.

    Raises UserError if the folder has files of others, or text that was made with other settings.
    """
    if not folder.exists() or all(path.name.startswith(".") for path in folder.iterdir()):
        return augmentation
    existing = read_augmentation(folder)
    for name, value in augmentation.settings.items():
        if (old := existing.settings.get(name)) != value:
            cure = "repeat the first command, or give another --corpus_dir"
            raise UserError(f"{folder}: made with {name}={old}, not {value}; {cure}")
    return existing


def writing(folder: Path) -> AbstractContextManager[None]:
    """Returns a context in which only this process writes to the folder of a corpus."""
    refusal = (
        f"{folder}: another t2t-augment is writing there; wait for its end, or give another "
        "--corpus_dir"
    )
    return locked(folder / ".lock", refusal)


def save(folder: Path, augmentation: Augmentation) -> None:
    """Writes augment.json."""
    write_file(folder / FILE_NAME, to_json(augmentation))


def augment(
    translator: Translator, problem: Problem, text: str, folder: Path, augmentation: Augmentation
) -> Augmentation:
    """Translates what is missing in `folder`. Returns the final content of augment.json.

    `problem` is that of the model, `text` the path of the text, and `augmentation` the content if
    the folder is new.
    """
    with writing(folder):
        augmentation = resumed(folder, augmentation)
        save(folder, augmentation)
        settings = augmentation.settings
        size = settings["shard_lines"]
        finished = augmentation.finished_shards
        progress = Progress("augmenting", settings["lines"], "lines", finished * size)
        lines = read_lines(text)
        for number in range(augmentation.shards):
            texts = list(itertools.islice(lines, size))
            if number < finished:
                continue
            start = number * size
            pairs, dropped = write_shard(
                shard_path(folder, number),
                translator,
                problem,
                texts,
                InputFile(text, range(start, start + len(texts))),
                settings,
                progress.advance,
            )
            augmentation = replace(
                augmentation,
                finished_shards=number + 1,
                pairs=augmentation.pairs + pairs,
                dropped=augmentation.dropped + dropped,
            )
            save(folder, augmentation)
        progress.close()
    return augmentation


def write_shard(
    path: Path,
    translator: Translator,
    problem: Problem,
    texts: Sequence[str],
    input_file: InputFile,
    settings: dict,
    advance: Callable[[int], None] = lambda count: None,
) -> tuple[int, int]:
    """Translates texts and writes their shard. Returns its number of pairs, and the number of
    pairs that were dropped because a side is empty.

    Args:
        path: the file of the shard.
        problem: the model's problem.
        input_file: the file of the text, and the numbers of these lines in it.
        settings: `Augmentation.settings`.
        advance: function that is called with the number of lines translated since the last call.
    """
    translations = translator.translate(
        texts,
        input_file=input_file,
        long_lines=settings["long_lines"],
        target_language=settings["target_language"],
        scores=False,
        advance=advance,
    )
    pairs = _pairs(problem, texts, translations, settings)
    write_file(path, gzip.compress("".join(pairs).encode(), mtime=0))
    return len(pairs) - pairs.count(""), pairs.count("")


def _pairs(
    problem: Problem, texts: Sequence[str], translations: list[Translation], settings: dict
) -> list[str]:
    """Returns a line for each hypothesis, or "" if a side is empty."""
    refuse_diverged(translation.score for translation in translations)
    translations, _ = finish_translations(problem, texts, translations)
    tag = f"{settings['train_tag']} " if settings["train_tag"] else ""
    pairs = []
    for text, translation in zip(texts, translations, strict=True):
        original = text.replace("\t", " ").strip()
        for hypothesis in translation.hypotheses:
            synthetic = hypothesis.text.replace("\t", " ").strip()
            if is_empty(original) or is_empty(synthetic):
                pairs.append("")
            elif settings["synthetic"] == "source":
                pairs.append(f"{tag}{synthetic}\t{original}\n")
            else:
                pairs.append(f"{tag}{original}\t{synthetic}\n")
    return pairs
