"""Tests that a resumed decode finds in the journal all translations that the interrupted decode finished."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from disks import largest_file
from t2t_repro.decoding.journal import Journal, journal_path
from t2t_repro.decoding.translation import EMPTY, Hypothesis, Translation
from t2t_repro.errors import UserError

SETTINGS = (["a", "b"], 0, "model.ckpt-1", "beam_size=4")
DONE = {
    3: Translation(
        (Hypothesis('1\t"\\ \u2028\u0085\r\n漢\U0001f600', -1 / 3, (5, 6, 1)), Hypothesis("", -1e-9)), (7, 1)
    ),
    0: EMPTY,
    12: Translation((Hypothesis("x", -4.5, (9, 1), (-0.1, -4.4), (0, 1)),), (8, 1, 9, 1), segments=2),
    1: Translation((Hypothesis("y", 0.0, (1,)),), (2, 1), is_truncated=True),
}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "new" / "x.de"


@pytest.fixture
def interrupted(output: Path) -> Path:
    """Writes the journal that an interrupted decode leaves, and returns the journal's path."""
    with Journal(output, SETTINGS, resume=False) as journal:
        assert journal.done == {}
        for number, translation in DONE.items():
            journal.add(number, translation)
    assert journal_path(output) == output.with_name("x.de.unfinished")
    return journal_path(output)


def reopen(output: Path, settings: object = SETTINGS, resume: bool = True) -> dict[int, Translation]:
    with Journal(output, settings, resume) as journal:
        return dict(journal.done)


def test_finished_translations_are_read_back(output: Path, interrupted: Path) -> None:
    assert [path.name for path in output.parent.iterdir()] == [interrupted.name]
    assert reopen(output) == DONE
    with Journal(output, SETTINGS, resume=True) as journal:
        journal.add(2, EMPTY)
    assert reopen(output) == DONE | {2: EMPTY}


def test_a_translation_is_on_disk_as_soon_as_it_is_added(output: Path) -> None:
    with Journal(output, SETTINGS, resume=False) as journal:
        for count, number in enumerate(DONE, 1):
            journal.add(number, DONE[number])
            assert reopen(output) == dict(list(DONE.items())[:count])  # the journal is not closed yet, as after a kill


@pytest.mark.parametrize("resume", [True, False])
def test_an_error_before_the_first_translation_leaves_no_journal(output: Path, resume: bool) -> None:
    with pytest.raises(ZeroDivisionError), Journal(output, SETTINGS, resume):
        raise ZeroDivisionError
    assert not journal_path(output).exists()


def test_an_error_keeps_the_journal_of_an_earlier_run(output: Path, interrupted: Path) -> None:
    with pytest.raises(ZeroDivisionError), Journal(output, SETTINGS, resume=True):
        raise ZeroDivisionError
    assert reopen(output) == DONE


def test_an_error_keeps_the_first_translation(output: Path) -> None:
    with pytest.raises(ZeroDivisionError), Journal(output, SETTINGS, resume=True) as journal:
        journal.add(0, EMPTY)
        raise ZeroDivisionError
    assert reopen(output) == {0: EMPTY}


@pytest.mark.parametrize("size", range(1, 60, 7))
def test_half_a_line_at_the_end_is_dropped(output: Path, interrupted: Path, size: int) -> None:
    content = interrupted.read_bytes()
    interrupted.write_bytes(content[:-size])
    *complete, last = DONE
    assert last == 1
    assert reopen(output) == {number: DONE[number] for number in complete}
    with Journal(output, SETTINGS, resume=True) as journal:
        journal.add(last, DONE[last])
    assert interrupted.read_bytes() == content


@pytest.mark.parametrize("left", [b"", b'{"decode"'])
def test_a_journal_without_a_whole_head_starts_again(output: Path, interrupted: Path, left: bytes) -> None:
    head = interrupted.read_bytes().split(b"\n")[0]
    interrupted.write_bytes(left)
    assert reopen(output) == {}
    assert interrupted.read_bytes() == head + b"\n"


def test_a_damaged_line_is_named(output: Path, interrupted: Path) -> None:
    lines = interrupted.read_bytes().splitlines(keepends=True)
    interrupted.write_bytes(b"".join([*lines[:2], b'[3, {"hypotheses": 1}]\n', *lines[3:]]))
    for strict in (True, False):
        with pytest.raises(UserError, match=f"{interrupted.name}:3: the line is damaged; delete the file"):
            Journal(output, SETTINGS, resume=True, strict=strict)


@pytest.mark.parametrize(
    "settings", [(["a", "c"], *SETTINGS[1:]), (*SETTINGS[:3], "beam_size=5"), (SETTINGS[0], 1, *SETTINGS[2:])]
)
def test_a_journal_with_other_settings_is_refused(output: Path, interrupted: Path, settings: object) -> None:
    content = interrupted.read_bytes()
    with pytest.raises(UserError) as error:
        Journal(output, settings, resume=True)
    assert str(interrupted) in str(error.value) and "delete" in str(error.value) and "\n" not in str(error.value)
    assert interrupted.read_bytes() == content


def test_a_journal_that_is_not_strict_starts_again_with_other_settings(output: Path, interrupted: Path) -> None:
    with Journal(output, SETTINGS, resume=True, strict=False) as journal:
        assert journal.done == DONE
    with Journal(output, "others", resume=True, strict=False) as journal:
        assert journal.done == {}
        with largest_file(interrupted.stat().st_size), pytest.raises(UserError, match=r"run the same command$"):
            journal.add(0, EMPTY)
    assert reopen(output, "others").keys() <= {0}


@pytest.mark.parametrize(
    ("settings", "message"),
    [(SETTINGS, "has translations .*--resume, or delete the file"), ("others", "belongs to another input")],
)
def test_without_resume_the_translations_of_an_interrupted_run_are_kept(
    output: Path, interrupted: Path, settings: object, message: str
) -> None:
    with pytest.raises(UserError, match=f"{interrupted.name} {message}"):
        Journal(output, settings, resume=False)
    assert reopen(output) == DONE


def test_a_journal_without_translations_starts_again_with_other_settings(output: Path) -> None:
    Journal(output, SETTINGS, resume=False)  # the process is killed before its first translation
    assert reopen(output, "others", resume=False) == {}
    assert reopen(output, "others") == {}


def test_resume_without_a_journal_starts_one(output: Path) -> None:
    assert reopen(output, resume=True) == {}
    assert journal_path(output).exists()


def test_a_full_disk_loses_nothing_that_was_written(output: Path, interrupted: Path) -> None:
    with largest_file(interrupted.stat().st_size + 250), pytest.raises(UserError) as error:  # noqa: SIM117, one thing fails
        with Journal(output, SETTINGS, resume=True) as journal:
            for number in range(20, 30):
                journal.add(number, EMPTY)
    assert str(interrupted) in str(error.value) and "--resume" in str(error.value) and "\n" not in str(error.value)
    translations = reopen(output)
    added = set(translations) - set(DONE)
    assert added == set(range(20, 20 + len(added))) and 0 < len(added) < 10
    assert translations == DONE | dict.fromkeys(added, EMPTY)


def test_a_journal_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "y.unfinished").mkdir()
    for output, problem in ((tmp_path / "file" / "x", ": cannot be written"), (tmp_path / "y", " is not a regular")):
        with pytest.raises(UserError, match=f"{output}.unfinished{problem}"):
            Journal(output, SETTINGS, resume=False)
    with largest_file(10), pytest.raises(UserError, match="cannot be written"):
        Journal(tmp_path / "x", SETTINGS, resume=False)


@pytest.mark.parametrize("kind", ["text", "json", "link", "pipe"])
def test_another_file_at_the_journals_path_is_kept(output: Path, kind: str) -> None:
    output.parent.mkdir(exist_ok=True)
    path, contents = journal_path(output), {"text": "a user's notes\n", "json": '{"name": 1}\n'}
    if kind == "link":
        path.symlink_to(output.with_name("notes"))
        output.with_name("notes").write_text('{"decode": ""}\n')
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.write_text(contents[kind])
    for resume in (False, True):
        with pytest.raises(UserError, match=r"unfinished is not a (journal|regular file).*; move it away or choose"):
            Journal(output, SETTINGS, resume)
    if kind in contents:
        assert path.read_text() == contents[kind]
        Journal(output, SETTINGS, resume=True, strict=False).__exit__(None, None, None)


def test_the_journal_can_be_deleted_twice(output: Path, interrupted: Path) -> None:
    with Journal(output, SETTINGS, resume=True) as journal:
        pass
    journal.delete()
    assert list(output.parent.iterdir()) == []
    journal.delete()
