"""Translates text into a corpus of pairs with one synthetic side, shard by shard: the work of t2t-augment.

A shard appears whole, and the translations of an unfinished shard are in its journal. So after a kill, no finished line
is translated again.
"""

from __future__ import annotations

import gzip
import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from t2t_repro.console.progress import Progress
from t2t_repro.corpora.augmented import FILE_NAME, Augmentation, read_augmentation, shard_path
from t2t_repro.data.vocabularies.text_rules import is_empty
from t2t_repro.decoding.journal import Journal, journal_path, translate_lines
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
    """Returns the content of the folder's augment.json; if the folder is new or empty, `augmentation`.

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


def augment(
    translator: Translator, problem: Problem, text: str, folder: Path, augmentation: Augmentation
) -> Augmentation:
    """Translates what is missing in `folder`. Returns the final content of augment.json.

    `problem` is that of the model, `text` the path of the text, and `augmentation` the content if the folder is new.
    """
    refusal = f"{folder}: another t2t-augment is writing there; wait for its end, or give another --corpus_dir"
    with locked(folder / ".lock", refusal):
        augmentation = resumed(folder, augmentation)
        write_file(folder / FILE_NAME, to_json(augmentation))
        settings, lines = augmentation.settings, read_lines(text)
        size, finished = settings["shard_lines"], augmentation.finished_shards
        progress = Progress("augmenting", settings["lines"], "lines", finished * size)
        for number in range(augmentation.shards):
            texts, path = list(itertools.islice(lines, size)), shard_path(folder, number)
            if number >= finished:
                with Journal(path, (settings, number), resume=True) as journal:
                    progress.advance(len(journal.done))
                    translations = translate_lines(
                        translator,
                        texts,
                        journal=journal,
                        progress=progress,
                        input_file=InputFile(text, range(number * size, number * size + len(texts))),
                        long_lines=settings["long_lines"],
                        target_language=settings["target_language"],
                    )
                refuse_diverged(translation.score for translation in translations)
                pairs = _pairs(texts, finish_translations(problem, texts, translations)[0], augmentation)
                write_file(path, gzip.compress("".join(pairs).encode(), mtime=0))
                augmentation = replace(
                    augmentation,
                    finished_shards=number + 1,
                    pairs=augmentation.pairs + len(pairs) - pairs.count(""),
                    dropped=augmentation.dropped + pairs.count(""),
                )
                write_file(folder / FILE_NAME, to_json(augmentation))
            journal_path(path).unlink(missing_ok=True)  # A kill may have left that of a finished shard.
        progress.close()
    return augmentation


def _pairs(texts: Sequence[str], translations: Sequence[Translation], augmentation: Augmentation) -> list[str]:
    """Returns a line for each hypothesis, or "" if a side is empty. As in training, white space is stripped."""
    pairs, tag = [], augmentation.train_tag and f"{augmentation.train_tag} "
    for text, translation in zip(texts, translations, strict=True):
        for hypothesis in translation.hypotheses:
            sides = [side.replace("\t", " ").strip() for side in (text, hypothesis.text)]
            source, target = sides if augmentation.settings["synthetic"] == "target" else reversed(sides)
            pairs.append("" if any(map(is_empty, sides)) else f"{tag}{source}\t{target}\n")
    return pairs
