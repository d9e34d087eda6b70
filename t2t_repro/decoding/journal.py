"""The journal, which stores finished translations on disk, so that an interrupted decode can resume."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from t2t_repro.console.progress import Progress
from t2t_repro.decoding.translation import Hypothesis, Translation
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import UNFINISHED, refuse_irregular

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
        strict: if a journal to resume has other settings, true to raise UserError, false to start with an empty one.

    Raises UserError if the journal is damaged or cannot be read or written, or if it has translations and `resume` is
    false. If `strict`, also if the journal has other settings or is another program's file.
    """

    def __init__(self, output: Path, settings: Any, resume: bool, strict: bool = True) -> None:
        self.path, self._strict = journal_path(output), strict
        head = json.dumps({"decode": hashlib.sha256(repr(settings).encode()).hexdigest()}).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._refuse_other_file()
            content = self._read(head, resume) if self.path.exists() else b""
            self.done = dict(self._translations(content))
            """The finished translations. A key is the number of a text, its value the text's translation."""
            self._file: IO[bytes] = open(self.path, "ab" if content else "wb")  # noqa: SIM115, closed by __exit__
            self._file.truncate(len(content))
            self._is_empty = not self.done
            if not content:
                self._file.write(head)
                self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from None

    def add(self, number: int, translation: Translation) -> None:
        """Appends the translation of text `number`. Raises UserError if the journal cannot be written."""
        try:
            self._file.write(json.dumps([number, dataclasses.asdict(translation)]).encode() + b"\n")
            self._file.flush()
            self._is_empty = False
        except OSError as error:
            raise self._unwritable(error) from None

    def delete(self) -> None:
        """Deletes the journal. Callers do this when the output file is complete, before they release its lock."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        """Closes the journal. Deletes it if an error ended the decode before its first translation."""
        if error is not None and self._is_empty:
            self.delete()
        try:
            self._file.close()
        except OSError as close_error:
            if error is None:
                raise self._unwritable(close_error) from None

    def _refuse_other_file(self) -> None:
        """Raises UserError if the journal's path is a link or folder or, if `strict`, another program's file."""
        refuse_irregular(self.path)
        if self._strict and self.path.exists():
            with open(self.path, "rb") as file:
                if HEAD_START.startswith(file.read(len(HEAD_START))):
                    return
            raise UserError(f"{self.path} is not a journal of t2t-decoder; move it away or choose another output file")

    def _read(self, head: bytes, resume: bool) -> bytes:
        """Returns the journal's lines, without an incomplete last line.

        If the first line is not `head`, the journal has other settings. Then this method returns b"" or, if `strict`,
        raises UserError. It also raises UserError if the journal has translations and `resume` is false.
        """
        content = self.path.read_bytes()
        content = content[: content.rfind(b"\n") + 1]  # drops the incomplete last line that a killed process can leave
        if not content or (content.count(b"\n") == 1 and not resume):  # killed before its first translation
            return b""
        if not content.startswith(head):
            if not self._strict:
                return b""
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

    def _unwritable(self, error: OSError) -> UserError:
        flag = " with --resume" if self._strict else ""
        return UserError(
            f"{self.path}: cannot be written ({error.strerror or error}); free space, then run the same command{flag}"
        )


def translate_all(
    count: int,
    stream: Callable[[Sequence[int]], Iterator[tuple[int, Translation]]],
    journal: Journal | None,
    label: str,
) -> list[Translation]:
    """Returns the translations of texts 0 to `count` - 1. Translates only texts that are not in the journal.

    Args:
        stream: function that translates the texts with the numbers in a list, and yields (index in the list,
            translation) in any order.
        journal: holds earlier translations and stores each new one as soon as it is finished; None for no journal.
        label: label of the progress bar.

    Raises UserError if the journal cannot be written.
    """
    translations = dict(journal.done) if journal else {}
    missing = [number for number in range(count) if number not in translations]
    progress = Progress(label, count, "lines", done=len(translations))
    for index, translation in stream(missing):
        translations[missing[index]] = translation
        if journal:
            journal.add(missing[index], translation)
        progress.advance()
    progress.close()
    return [translations[number] for number in range(count)]


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
