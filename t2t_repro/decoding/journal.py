"""The journal, which stores finished translations on disk, so that an interrupted decode can resume."""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from t2t_repro.console.progress import Progress
from t2t_repro.decoding.translation import UNKNOWN_FILE, Hypothesis, InputFile, Translation
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import UNFINISHED, refuse_irregular

if TYPE_CHECKING:
    from t2t_repro.decoding.translator import Translator

HEAD_START = b'{"decode": "'
"""Bytes with which every journal begins. A file that begins differently belongs to another program."""


def journal_path(output: Path) -> Path:
    """Returns the path of the journal of an output file: the output's path with `UNFINISHED` at its end."""
    return output.with_name(f"{output.name}{UNFINISHED}")


class Journal:
    """A file beside the output with a line for each finished translation.

    Args:
        output: the output file.
        settings: everything that the translations depend on. The journal stores a hash of `repr(settings)`.
        resume: true to read the translations in an existing journal, false to refuse a journal that has translations.

    Raises UserError if the journal is damaged, has other settings, is another program's file, or cannot be written, or
    if it has translations and `resume` is false.
    """

    def __init__(self, output: Path, settings: Any, resume: bool) -> None:
        self.path = journal_path(output)
        head = json.dumps({"decode": hashlib.sha256(repr(settings).encode()).hexdigest()}).encode() + b"\n"
        with self._writing():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            refuse_irregular(self.path)
            content = self._read(head, resume) if self.path.exists() else b""
            self.done = dict(self._translations(content))
            """The finished translations. A key is the number of a text, its value the text's translation."""
            self._file: IO[bytes] = open(self.path, "ab" if content else "wb")  # noqa: SIM115, closed by __exit__
            self._file.truncate(len(content))
            self._is_empty = not self.done
            if not content:
                self._file.write(head)
                self._file.flush()

    def add(self, number: int, translation: Translation) -> None:
        """Appends the translation of text `number`. Raises UserError if the journal cannot be written."""
        with self._writing():
            self._file.write(json.dumps([number, dataclasses.asdict(translation)]).encode() + b"\n")
            self._file.flush()
            self._is_empty = False

    def delete(self) -> None:
        """Deletes the journal. Callers do this when the output file is complete, before they release its lock."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Closes the journal. Deletes it if an error ended the decode before its first translation."""
        if error is not None and self._is_empty:
            self.delete()
        with contextlib.suppress(OSError):  # after a failed `add`, which has raised UserError
            self._file.close()

    def _read(self, head: bytes, resume: bool) -> bytes:
        """Returns the journal's lines, without an incomplete last line."""
        content = self.path.read_bytes()
        if not HEAD_START.startswith(content[: len(HEAD_START)]):
            raise UserError(f"{self.path} is not a journal of t2t-decoder; move it away or choose another output file")
        content = content[: content.rfind(b"\n") + 1]  # drops the incomplete last line that a killed process can leave
        if not content or (content.count(b"\n") == 1 and not resume):  # killed before its first translation
            return b""
        if not content.startswith(head):
            raise UserError(
                f"{self.path} belongs to another input, model or decode_hparams; repeat the same command, or delete "
                "the file to start again"
            )
        if not resume:
            raise UserError(
                f"{self.path} has translations of an interrupted run; continue it with --resume, or delete the file to "
                "start again"
            )
        return content

    def _translations(self, content: bytes) -> Iterator[tuple[int, Translation]]:
        for line_number, line in enumerate(content.splitlines()[1:], 2):
            try:
                number, fields = json.loads(line)
                if not _are_counts([number]):
                    raise ValueError("no number of a text")
                translation = _translation(fields)
            except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
                raise UserError(
                    f"{self.path}:{line_number}: the line is damaged; delete the file to start again"
                ) from None
            yield number, translation

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UserError(
                f"{self.path}: cannot be written ({error.strerror or error}); free space, then run the same command, "
                "t2t-decoder with --resume"
            ) from None


def translate_lines(
    translator: Translator,
    texts: Sequence[str],
    prefixes: Sequence[str] = (),
    *,
    journal: Journal | None,
    label: str,
    input_file: InputFile = UNKNOWN_FILE,
    **options: Any,
) -> list[Translation]:
    """Returns the translation of each text. Translates only texts that are not in the journal.

    Args:
        journal: holds earlier translations and stores each new one as soon as it is finished; None for no journal.
        label: label of the progress bar.
        translator, texts, prefixes, input_file, options: as for `Translator.stream`.

    Raises UserError as `Translator.stream` does, or if the journal cannot be written.
    """
    translations = dict(journal.done) if journal else {}
    missing = [number for number in range(len(texts)) if number not in translations]
    progress = Progress(label, len(texts), "lines", done=len(translations))
    for index, translation in translator.stream(
        [texts[number] for number in missing],
        [prefixes[number] for number in missing] if prefixes else (),
        input_file=InputFile(input_file.name, [input_file.line_number(number) for number in missing]),
        **options,
    ):
        translations[missing[index]] = translation
        if journal:
            journal.add(missing[index], translation)
        progress.advance()
    progress.close()
    return [translations[number] for number in range(len(texts))]


def _translation(fields: dict[str, Any]) -> Translation:
    """Returns the translation that `Journal.add` wrote as `fields`.

    Raises ValueError, TypeError, KeyError or AttributeError if `fields` is damaged.
    """

    def with_tuples(values: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

    hypotheses = tuple(Hypothesis(**with_tuples(hypothesis)) for hypothesis in fields.pop("hypotheses"))
    translation = Translation(hypotheses, **with_tuples(fields))
    for hypothesis in hypotheses:
        hypothesis.text.encode("utf-8")  # raises UnicodeEncodeError, a ValueError, for half a surrogate pair
        scores = [hypothesis.score, *hypothesis.token_scores]
        if not all(isinstance(score, float | int) for score in scores):
            raise ValueError("wrong scores")
        if not _are_counts(hypothesis.ids + hypothesis.attention):
            raise ValueError("wrong ids")
    if not hypotheses or not _are_counts((translation.segments, *translation.source_ids)):
        raise ValueError("no hypotheses, or wrong ids of the source")
    if not isinstance(translation.is_truncated, bool):
        raise ValueError("wrong is_truncated")
    return translation


def _are_counts(values: Any) -> bool:
    """Returns True if all `values` are integers of at most 31 bits, 0 or more."""
    return all(type(value) is int and 0 <= value < 1 << 31 for value in values)
