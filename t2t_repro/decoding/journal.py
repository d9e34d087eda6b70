"""Translations as they come, kept on disk until all are there: what a long decode has done is never lost."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from t2t_repro.decoding.translator import Hypothesis, Translation
from t2t_repro.errors import UserError
from t2t_repro.progress import Progress


def unfinished(output: Path) -> Path:
    """Where the journal of an output is."""
    return output.with_name(f"{output.name}.unfinished")


class Journal:
    """A file beside the output, with a line for each text that is done; deleted when the output is whole.

    Args:
        output: where the output will be.
        settings: all that the translations depend on.
        resume: take over what is done; otherwise it is begun anew.
        strict: with `resume`, refuse what is there of other settings; otherwise it is begun anew.

    Raises:
        UserError: `resume` and `strict`, and what is there depends on other settings or is damaged; or it cannot be
            written.
    """

    def __init__(self, output: Path, settings: Any, resume: bool, strict: bool = True) -> None:
        self.path = unfinished(output)
        self._flag = " with --resume" if strict else ""
        self.done: dict[int, Translation] = {}
        head = json.dumps({"decode": hashlib.sha256(repr(settings).encode()).hexdigest()}) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            there = self.path.read_bytes() if resume and self.path.exists() else b""
            whole = there[: there.rfind(b"\n") + 1]  # the last line may have been cut off
            if whole and not whole.startswith(head.encode()):
                if strict:
                    raise UserError(
                        f"{self.path}: of another input, model or way to decode; give these again, or leave out "
                        "--resume to begin anew"
                    )
                whole = b""
            for place, line in enumerate(whole.splitlines()[1:], 2):
                try:
                    number, translation = json.loads(line)
                    self.done[number] = _translation(translation)
                except (ValueError, TypeError, KeyError):
                    cure = "leave out --resume" if strict else "delete it"
                    raise UserError(f"{self.path}:{place}: damaged; {cure} to begin anew") from None
            self._file: IO[bytes] = open(self.path, "ab" if whole else "wb")  # noqa: SIM115, open until it is closed
            self._file.truncate(len(whole))
            if not whole:
                self._file.write(head.encode())
                self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from None

    def add(self, number: int, translation: Translation) -> None:
        """Keeps the translation of text `number`.

        Raises:
            UserError: the disk is full.
        """
        try:
            self._file.write(json.dumps([number, dataclasses.asdict(translation)]).encode() + b"\n")
            self._file.flush()
        except OSError as error:
            raise self._unwritable(error) from None

    def delete(self) -> None:
        """To be called when the output is whole."""
        self.path.unlink(missing_ok=True)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self._file.close()
        except OSError as full:
            if error is None:
                raise self._unwritable(full) from None

    def _unwritable(self, error: OSError) -> UserError:
        return UserError(
            f"{self.path}: cannot be written ({error.strerror or error}); free space, and the same command"
            f"{self._flag} goes on"
        )


def translate_all(
    count: int,
    stream: Callable[[Sequence[int]], Iterator[tuple[int, Translation]]],
    journal: Journal | None,
    label: str,
) -> list[Translation]:
    """The translations of so many texts, without those again that the journal has.

    Args:
        count: how many texts there are.
        stream: given the numbers of texts, yields (place among these, translation) in any order.
        journal: keeps what is done; None keeps nothing.
        label: what the bar is called.

    Raises:
        UserError: the disk is full.
    """
    found = dict(journal.done) if journal else {}
    missing = [number for number in range(count) if number not in found]
    progress = Progress(label, count, "lines", done=len(found))
    for place, translation in stream(missing):
        found[missing[place]] = translation
        if journal:
            journal.add(missing[place], translation)
        progress.advance()
    progress.close()
    return [found[number] for number in range(count)]


def _translation(fields: dict[str, Any]) -> Translation:
    """What `dataclasses.asdict` made of a translation, back from JSON."""

    def tuples(values: dict[str, Any]) -> dict[str, Any]:
        return {name: tuple(value) if isinstance(value, list) else value for name, value in values.items()}

    hypotheses = tuple(Hypothesis(**tuples(each)) for each in fields.pop("hypotheses"))
    return Translation(hypotheses, **tuples(fields))
