"""What a decode has done is there again after whatever ended it."""

from __future__ import annotations

from pathlib import Path

import pytest

from disks import largest_file
from t2t_repro.decoding.journal import Journal
from t2t_repro.decoding.translator import EMPTY, Hypothesis, Translation
from t2t_repro.errors import UserError

SETTINGS = (["a", "b"], 0, "model.ckpt-1", "beam_size=4")
DONE = {
    3: Translation(
        (Hypothesis('1\t"\\ \u2028\u0085\r\n漢\U0001f600', -1 / 3, (5, 6, 1)), Hypothesis("", -1e-9)), (7, 1)
    ),
    0: EMPTY,
    12: Translation((Hypothesis("x", -4.5, (9, 1), (-0.1, -4.4), (0, 1)),), (8, 1, 9, 1), pieces=2),
    1: Translation((Hypothesis("y", 0.0, (1,)),), (2, 1), is_truncated=True),
}


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "made" / "x.de"


def unfinished(output: Path) -> Path:
    return output.with_name("x.de.unfinished")


def kept(output: Path, settings: object = SETTINGS, resume: bool = True) -> dict[int, Translation]:
    with Journal(output, settings, resume) as journal:
        return dict(journal.done)


@pytest.fixture
def begun(output: Path) -> Path:
    """The journal of a decode that has ended early."""
    with Journal(output, SETTINGS, resume=False) as journal:
        assert journal.done == {}
        for number, translation in DONE.items():
            journal.add(number, translation)
    return unfinished(output)


def test_what_was_added_comes_back(output: Path, begun: Path) -> None:
    assert [path.name for path in output.parent.iterdir()] == [begun.name]
    assert kept(output) == DONE
    with Journal(output, SETTINGS, resume=True) as journal:
        journal.add(2, EMPTY)
    assert kept(output) == DONE | {2: EMPTY}


def test_it_is_on_disk_at_once(output: Path) -> None:
    with Journal(output, SETTINGS, resume=False) as journal:
        for count, number in enumerate(DONE, 1):
            journal.add(number, DONE[number])
            assert kept(output) == dict(list(DONE.items())[:count])  # as after a kill


@pytest.mark.parametrize("size", range(1, 60, 7))
def test_a_line_that_was_cut_off_is_dropped_and_does_no_harm(output: Path, begun: Path, size: int) -> None:
    content = begun.read_bytes()
    begun.write_bytes(content[:-size])
    *most, last = DONE
    assert last == 1
    assert kept(output) == {number: DONE[number] for number in most}
    with Journal(output, SETTINGS, resume=True) as journal:
        journal.add(last, DONE[last])
    assert begun.read_bytes() == content


@pytest.mark.parametrize("left", [b"", b'{"decode"'])
def test_of_a_head_that_was_cut_off_there_is_nothing(output: Path, begun: Path, left: bytes) -> None:
    head = begun.read_bytes().split(b"\n")[0]
    begun.write_bytes(left)
    assert kept(output) == {}
    assert begun.read_bytes() == head + b"\n"


@pytest.mark.parametrize(
    "settings", [(["a", "c"], *SETTINGS[1:]), (*SETTINGS[:3], "beam_size=5"), (SETTINGS[0], 1, *SETTINGS[2:])]
)
def test_another_decode_is_refused_or_begun_anew(output: Path, begun: Path, settings: object) -> None:
    content = begun.read_bytes()
    with pytest.raises(UserError) as error:
        Journal(output, settings, resume=True)
    assert str(begun) in str(error.value) and "--resume" in str(error.value) and "\n" not in str(error.value)
    assert begun.read_bytes() == content
    assert kept(output, settings, resume=False) == {}
    assert kept(output, settings) == {}
    with pytest.raises(UserError):
        Journal(output, SETTINGS, resume=True)


def test_where_nobody_asked_for_it_another_decode_is_begun_anew(output: Path, begun: Path) -> None:
    with Journal(output, SETTINGS, resume=True, strict=False) as journal:
        assert journal.done == DONE
    with Journal(output, "others", resume=True, strict=False) as journal:
        assert journal.done == {}
        with largest_file(begun.stat().st_size), pytest.raises(UserError, match="and the same command goes on"):
            journal.add(0, EMPTY)
    assert kept(output, "others").keys() <= {0}


def test_without_resume_even_the_same_is_begun_anew(output: Path, begun: Path) -> None:
    assert kept(output, resume=False) == {}
    assert begun.read_bytes().count(b"\n") == 1


def test_nothing_to_resume_is_a_beginning(output: Path) -> None:
    assert kept(output, resume=True) == {}
    assert unfinished(output).exists()


def test_a_full_disk_keeps_what_is_there(output: Path, begun: Path) -> None:
    with largest_file(begun.stat().st_size + 250), pytest.raises(UserError) as error:  # noqa: SIM117, one thing fails
        with Journal(output, SETTINGS, resume=True) as journal:
            for number in range(20, 30):
                journal.add(number, EMPTY)
    assert str(begun) in str(error.value) and "--resume" in str(error.value) and "\n" not in str(error.value)
    found = kept(output)
    later = set(found) - set(DONE)
    assert later == set(range(20, 20 + len(later))) and 0 < len(later) < 10
    assert found == DONE | dict.fromkeys(later, EMPTY)


def test_no_place_for_it(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "y.unfinished").mkdir()
    for output in (tmp_path / "file" / "x", tmp_path / "y"):
        with pytest.raises(UserError, match=f"{output}.unfinished: cannot be written"):
            Journal(output, SETTINGS, resume=False)
    with largest_file(10), pytest.raises(UserError, match="cannot be written"):
        Journal(tmp_path / "x", SETTINGS, resume=False)


def test_it_is_gone_when_the_output_is_whole(output: Path, begun: Path) -> None:
    with Journal(output, SETTINGS, resume=True) as journal:
        pass
    journal.delete()
    assert list(output.parent.iterdir()) == []
    journal.delete()
