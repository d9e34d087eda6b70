"""The journal, which stores finished translations on disk, so that an interrupted decode can
resume.
"""

from __future__ import annotations

import contextlib
import dataclasses
import hashlib
import json
import os
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from t2t_repro.console.progress import Progress
from t2t_repro.decoding.translation import UNKNOWN_FILE, Hypothesis, InputFile, Translation
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import UNFINISHED, named_errors, refuse_irregular

if TYPE_CHECKING:
    from t2t_repro.decoding.translator import Translator

HEAD_START = b'{"decode": "'
"""Bytes with which every journal begins. A file that begins differently belongs to another program.
"""


class Journal:
    """A file beside the output with a line for each finished translation: a checksum, then the
    translation as JSON.

    The file appears with the first translation.

    Args:
        output: the output file.
        settings: everything that the translations depend on. The journal stores a hash of
            `repr(settings)`.
        resume: true to read the translations in an existing journal, false to refuse a journal that
            has translations.

    Raises UserError if the journal is damaged, has other settings, or is another program's file, or
    if it has translations and `resume` is false.
    """

    def __init__(self, output: Path, settings: Any, resume: bool) -> None:
        self.path = output.with_name(f"{output.name}{UNFINISHED}")
        digest = hashlib.sha256(repr(settings).encode()).hexdigest()
        self._head = HEAD_START + digest.encode() + b'"}\n'
        self._file: IO[bytes] | None = None
        refuse_irregular(self.path)
        content = self._read(resume) if self.path.exists() else b""
        self.done = dict(self._translations(content))
        """The finished translations. A key is the number of a text, its value the text's
        translation.
        """
        if self.path.exists():
            os.truncate(self.path, len(content))

    def add(self, number: int, translation: Translation) -> None:
        """Appends the translation of text `number`. Raises UserError if the journal cannot be
        written.
        """
        entry = json.dumps([number, dataclasses.asdict(translation)]).encode()
        cure = "free space, then run the same command, t2t-decoder with --resume"
        with named_errors(self.path, cure):
            if not self._file:
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self._file = open(self.path, "ab")  # noqa: SIM115, closed by __exit__
            head = b"" if self._file.tell() else self._head
            self._file.write(b"%s%08x %s\n" % (head, zlib.crc32(entry), entry))
            self._file.flush()

    def delete(self) -> None:
        """Deletes the journal. Callers do this when the output file is complete, before they
        release its lock.
        """
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *error: object) -> None:
        with contextlib.suppress(OSError):  # after a failed `add`, which has raised UserError
            if self._file:
                self._file.close()

    def _read(self, resume: bool) -> bytes:
        """Returns the journal's lines, without an incomplete last line."""
        content = self.path.read_bytes()
        if not HEAD_START.startswith(content[: len(HEAD_START)]):
            raise UserError(
                f"{self.path} is not a journal of t2t-decoder; move it away or choose another "
                "output file"
            )
        # A killed process can leave an incomplete last line.
        content = content[: content.rfind(b"\n") + 1]
        if content.count(b"\n") < 2:  # no translation
            return b""
        if not content.startswith(self._head):
            raise UserError(
                f"{self.path} belongs to another input, model or decode_hparams; repeat the same "
                "command, or delete the file to start again"
            )
        if not resume:
            raise UserError(
                f"{self.path} has translations of an interrupted run; continue it with --resume, "
                "or delete the file to start again"
            )
        return content

    def _translations(self, content: bytes) -> Iterator[tuple[int, Translation]]:
        for line_number, line in enumerate(content.splitlines()[1:], 2):
            checksum, _, entry = line.partition(b" ")
            if checksum != b"%08x" % zlib.crc32(entry):
                raise UserError(
                    f"{self.path}:{line_number}: the line is damaged; delete the file to start "
                    "again"
                )
            number, fields = json.loads(entry, object_hook=_with_tuples)
            hypotheses = tuple(Hypothesis(**hypothesis) for hypothesis in fields.pop("hypotheses"))
            yield number, Translation(hypotheses, **fields)


def _with_tuples(fields: dict[str, Any]) -> dict[str, Any]:
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()
    }


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
        journal: holds earlier translations and stores each new one as soon as it is finished; None
            for no journal.
        label: label of the progress bar.
        options: other arguments of `Translator.stream`, of which translator, texts, prefixes and
            input_file are the first.
    """
    translations = dict(journal.done) if journal else {}
    missing = [number for number in range(len(texts)) if number not in translations]
    line_numbers = [input_file.line_numbers[number] for number in missing]
    progress = Progress(label, len(texts), "lines", done=len(translations))
    for index, translation in translator.stream(
        [texts[number] for number in missing],
        [prefixes[number] for number in missing] if prefixes else (),
        input_file=InputFile(input_file.name, line_numbers),
        **options,
    ):
        number = missing[index]
        translations[number] = translation
        if journal:
            journal.add(number, translation)
        progress.advance()
    progress.close()
    return [translations[number] for number in range(len(texts))]
