"""Tests that versions of an exported model have numbers, appear only when complete, and never after an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_repro.errors import UserError
from t2t_repro.serving.versions import CTRANSLATE2, SAVED_MODEL, new_version


def make_version(export_dir: Path) -> Path:
    with new_version(export_dir, SAVED_MODEL) as (temporary, version):
        (temporary / "model").touch()
    return version


def test_a_version_is_one_higher_than_the_highest(tmp_path: Path) -> None:
    export_dir = tmp_path / "new" / "export"
    assert [make_version(export_dir).name for _ in range(2)] == ["1", "2"]
    for name in ("10", "notes", "²", "١٢"):
        (export_dir / name).mkdir()
    version = make_version(export_dir)
    assert version == export_dir / "11"
    assert version.stat().st_mode & 0o777 == 0o755
    assert {path.name for path in export_dir.iterdir()} == {"1", "2", "10", "11", "notes", "²", "١٢"}
    assert (version / "model").is_file()


def test_a_server_sees_a_version_only_when_it_is_complete(tmp_path: Path) -> None:
    with new_version(tmp_path, SAVED_MODEL) as (_, version):
        assert not [path for path in tmp_path.iterdir() if path.name.isdecimal()]
    assert list(tmp_path.iterdir()) == [version] == [tmp_path / "1"]


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be written"), new_version(tmp_path, SAVED_MODEL):
        raise OSError("disk full")
    with pytest.raises(ZeroDivisionError), new_version(tmp_path, SAVED_MODEL):
        raise ZeroDivisionError
    assert not list(tmp_path.iterdir())


def test_a_killed_export_is_deleted_and_two_at_once_are_refused(tmp_path: Path) -> None:
    leftover, notes = tmp_path / ".unfinished", tmp_path / "writing-notes"
    for folder in (leftover / "variables", notes):
        folder.mkdir(parents=True)
    with new_version(tmp_path, SAVED_MODEL) as (temporary, version):
        assert list(temporary.iterdir()) == []
        with (
            pytest.raises(UserError, match="another export is at work there; wait"),
            new_version(tmp_path, SAVED_MODEL),
        ):
            pass
        assert temporary.is_dir()
    assert sorted(tmp_path.iterdir()) == [version, notes]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for name, reason in (("file", "not a folder"), ("file/below", "cannot be written")):
        with pytest.raises(UserError, match=reason), new_version(tmp_path / name, SAVED_MODEL):
            pass


@pytest.mark.parametrize("formats", [(SAVED_MODEL, CTRANSLATE2), (CTRANSLATE2, SAVED_MODEL)])
def test_versions_of_two_formats_are_not_mixed(tmp_path: Path, formats: tuple[str, str]) -> None:
    for _ in range(2):
        with new_version(tmp_path, formats[0]) as (temporary, _):
            (temporary / formats[0]).touch()
    with pytest.raises(UserError, match="version 1 has another --format; give"), new_version(tmp_path, formats[1]):
        pass
    with new_version(tmp_path, formats[0]) as (_, version):
        assert version.name == "3"
