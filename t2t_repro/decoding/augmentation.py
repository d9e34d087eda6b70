"""Translates text into a corpus of pairs with one synthetic side, shard by shard: the work of t2t-augment.

A shard appears whole, and the translations of an unfinished shard are in its journal. So after a kill, no finished line
is translated again.
"""

from __future__ import annotations

import gzip
import hashlib
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

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

RESULTS = ("finished_shards", "pairs", "dropped")
"""The fields of `Augmentation` that change during a run."""


def fingerprint(texts: Iterable[str]) -> tuple[str, int]:
    """Returns a hash of lines of text, as hex digits, and the number of lines."""
    digest, count = hashlib.sha256(), 0
    for text in texts:
        digest.update(f"{text}\n".encode())
        count += 1
    return digest.hexdigest(), count


def with_results(settings: Augmentation, folder: Path) -> Augmentation:
    """Returns the settings with the results that an earlier run has in `folder`, if any.

    Raises UserError if the folder has files of others, or text that was made with other settings.
    """
    if not folder.exists() or all(path.name.startswith(".") for path in folder.iterdir()):
        return settings
    existing = read_augmentation(folder)
    old, new = _settings(existing), _settings(settings)
    for name in new:
        if old.get(name) != new[name]:
            raise UserError(
                f"{folder}: made with {name}={old.get(name)}, not {new[name]}; repeat the first command, or give "
                "another --corpus_dir"
            )
    return replace(settings, **{name: getattr(existing, name) for name in RESULTS})


def _settings(augmentation: Augmentation) -> dict[str, Any]:
    """Returns the values on which the corpus depends, by name."""
    fields = {**vars(augmentation), **augmentation.decode_hparams}
    return {name: value for name, value in fields.items() if name not in (*RESULTS, "decode_hparams")}


@dataclass(frozen=True)
class Augmenter:
    """Writes a folder of augmented text."""

    translator: Translator
    problem: Problem
    """The problem of the model, whose `finish` makes lines of its outputs."""
    text: str
    """Path of the text."""
    folder: Path
    target_language: str = ""
    """As for `Translator.translate`."""

    def run(self, settings: Augmentation) -> Augmentation:
        """Translates what is missing in the folder. Returns the settings with the results."""
        refusal = f"{self.folder}: another t2t-augment is writing there; wait for its end, or give another --corpus_dir"
        with locked(self.folder / ".lock", refusal):
            augmentation = with_results(settings, self.folder)
            write_file(self.folder / FILE_NAME, to_json(augmentation))
            lines, progress = read_lines(self.text), None
            for number in range(settings.shards):
                texts = list(itertools.islice(lines, settings.shard_lines))
                path = shard_path(self.folder, number)
                if number < augmentation.finished_shards:
                    journal_path(path).unlink(missing_ok=True)  # A kill may have left it just after the shard.
                    continue
                with Journal(path, (_settings(settings), number), resume=True) as journal:
                    start = number * settings.shard_lines
                    progress = progress or Progress("augmenting", settings.lines, "lines", start + len(journal.done))
                    translations = translate_lines(
                        self.translator,
                        texts,
                        journal=journal,
                        progress=progress,
                        input_file=InputFile(self.text, range(start, start + len(texts))),
                        long_lines=settings.long_lines,
                        target_language=self.target_language,
                    )
                    refuse_diverged(translation.score for translation in translations)
                    translations, _ = finish_translations(self.problem, texts, translations)
                    rows = _rows(texts, translations, settings)
                    pairs = [row for row in rows if not any(map(is_empty, row))]
                    write_file(path, _compressed(pairs, settings.train_tag))
                    augmentation = replace(
                        augmentation,
                        finished_shards=number + 1,
                        pairs=augmentation.pairs + len(pairs),
                        dropped=augmentation.dropped + len(rows) - len(pairs),
                    )
                    write_file(self.folder / FILE_NAME, to_json(augmentation))
                    journal.delete()
            if progress:
                progress.close()
        return augmentation


def _rows(texts: Sequence[str], translations: Sequence[Translation], settings: Augmentation) -> list[tuple[str, ...]]:
    """Returns a source and a target for each hypothesis. White space around a text is dropped, as in training."""
    step = -1 if settings.synthetic == "source" else 1
    return [
        tuple(side.replace("\t", " ").strip() for side in (text, hypothesis.text)[::step])
        for text, translation in zip(texts, translations, strict=True)
        for hypothesis in translation.hypotheses
    ]


def _compressed(pairs: Iterable[tuple[str, ...]], train_tag: str) -> bytes:
    tag = train_tag and f"{train_tag} "
    return gzip.compress("".join(f"{tag}{source}\t{target}\n" for source, target in pairs).encode(), mtime=0)
