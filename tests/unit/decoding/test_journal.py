"""Tests that a resumed decode finds in the journal all translations that the interrupted decode
finished.
"""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from disks import largest_file
from t2t_repro.decoding.journal import Journal, translate_lines
from t2t_repro.decoding.translation import EMPTY, Hypothesis, InputFile, Translation
from t2t_repro.errors import UserError
from user_errors import user_error

SETTINGS = (["a", "b"], 0, "model.ckpt-1", "beam_size=4")
DONE = {
    3: Translation(
        (
            Hypothesis('1\t"\\ \u2028\u0085\r\n漢\U0001f600', -1 / 3, (5, 6, 1)),
            Hypothesis("", -1e-9),
        ),
        (7, 1),
    ),
    0: EMPTY,
    12: Translation(
        (Hypothesis("x", -4.5, (9, 1), (-0.1, -4.4), (0, 1)),), (8, 1, 9, 1), segments=2
    ),
    1: Translation((Hypothesis("y", 0.0, (1,)),), (2, 1), is_truncated=True),
}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "new" / "x.de"


@pytest.fixture
def interrupted(output: Path) -> Path:
    """Writes the journal that an interrupted decode leaves, and returns the journal's path."""
    with Journal(output, SETTINGS, resume=False) as journal:
        assert not journal.path.exists()
        added = {}
        for number, translation in DONE.items():
            journal.add(number, translation)
            added[number] = translation
            assert reopen(output) == added  # it is on disk at once, as after a kill
    return output.with_name("x.de.unfinished")


def reopen(
    output: Path, settings: object = SETTINGS, resume: bool = True
) -> dict[int, Translation]:
    with Journal(output, settings, resume) as journal:
        return dict(journal.done)


@pytest.mark.parametrize("size", [1, 43])
def test_half_a_line_at_the_end_is_dropped(output: Path, interrupted: Path, size: int) -> None:
    content = interrupted.read_bytes()
    interrupted.write_bytes(content[:-size])
    *complete, last = DONE
    with Journal(output, SETTINGS, resume=True) as journal:
        assert journal.done == {number: DONE[number] for number in complete}
        journal.add(last, DONE[last])
    assert interrupted.read_bytes() == content
    journal.delete()
    assert list(output.parent.iterdir()) == []


@pytest.mark.parametrize("left", [b"", b'{"decode"', b'{"decode": "0"}\n'])
def test_a_journal_without_translations_starts_again(
    output: Path, interrupted: Path, left: bytes
) -> None:
    interrupted.write_bytes(left)
    with Journal(output, "others", resume=False) as journal:
        journal.add(0, EMPTY)
    assert reopen(output, "others") == {0: EMPTY}


def test_a_full_disk_loses_nothing_that_was_written(output: Path, interrupted: Path) -> None:
    with largest_file(interrupted.stat().st_size + 250), pytest.raises(UserError) as error:  # noqa: SIM117, one thing fails
        with Journal(output, SETTINGS, resume=True) as journal:
            for number in range(20, 30):
                journal.add(number, EMPTY)
    assert f"{interrupted}: cannot be written" in str(error.value)
    assert "--resume" in str(error.value)
    added = set(reopen(output)) - set(DONE)
    assert added == set(range(20, 20 + len(added))) and 0 < len(added) < 10


@pytest.mark.parametrize("kind", ["text", "json", "link", "pipe"])
def test_another_file_at_the_journals_path_is_kept(output: Path, kind: str) -> None:
    output.parent.mkdir()
    path = output.with_name("x.de.unfinished")
    contents = {"text": "a user's notes\n", "json": '{"name": 1}\n'}
    if kind == "link":
        path.symlink_to(output.with_name("notes"))
        output.with_name("notes").write_text('{"decode": ""}\n')
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(contents[kind])
    for resume in (False, True):
        assert f"{path} is not a " in user_error(Journal, output, SETTINGS, resume)
    assert kind not in contents or path.read_text() == contents[kind]


def test_only_missing_lines_are_translated_with_their_prefixes_and_line_numbers(
    output: Path,
) -> None:
    calls = []

    class Upper:
        def stream(
            self, texts: list[str], prefixes: list[str], *, input_file: InputFile, n: int
        ) -> Iterator[tuple[int, Translation]]:
            calls.append((texts, prefixes, input_file, n))
            for number in reversed(range(len(texts))):
                yield number, Translation((Hypothesis(texts[number].upper(), 0.0),))

    file = InputFile("x", range(10, 14))
    with Journal(output, SETTINGS, resume=False) as journal:
        journal.add(1, DONE[1])
    with Journal(output, SETTINGS, resume=True) as journal:
        options = {"journal": journal, "label": "decoding", "input_file": file, "n": 2}
        translations = translate_lines(Upper(), list("abcd"), list("pqrs"), **options)  # type: ignore[arg-type]
    assert [translation.text for translation in translations] == ["A", "y", "C", "D"]
    assert calls == [(["a", "c", "d"], ["p", "r", "s"], InputFile("x", [10, 12, 13]), 2)]
    assert reopen(output) == dict(enumerate(translations))
