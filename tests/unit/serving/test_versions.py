"""Tests that versions of an exported model have numbers, appear only when complete, and never after an error."""

from __future__ import annotations

from pathlib import Path

import pytest

from t2t_repro.errors import UserError
from t2t_repro.serving.versions import new_version


def make_version(export_dir: Path) -> Path:
    with new_version(export_dir) as (temporary, version):
        (temporary / "model").touch()
        assert not version.exists()
    return version


def test_a_version_is_one_higher_than_the_highest(tmp_path: Path) -> None:
    export_dir = tmp_path / "new" / "export"
    assert [make_version(export_dir).name for _ in range(2)] == ["1", "2"]
    for name in ("10", "notes", "²", "١٢"):
        (export_dir / name).mkdir()
    version = make_version(export_dir)
    assert version == export_dir / "11" and (version / "model").is_file()
    assert {path.name for path in export_dir.iterdir()} == {"1", "2", "10", "11", "notes", "²", "١٢"}


def test_an_error_leaves_nothing_behind(tmp_path: Path) -> None:
    for error in (OSError, KeyboardInterrupt):
        with pytest.raises(error), new_version(tmp_path) as (temporary, _):
            (temporary / "model").touch()
            raise error
        assert not list(tmp_path.iterdir())


def test_a_killed_export_is_deleted_and_two_at_once_are_refused(tmp_path: Path) -> None:
    (tmp_path / ".unfinished" / "variables").mkdir(parents=True)
    with new_version(tmp_path) as (temporary, version):
        assert not list(temporary.iterdir()) and not temporary.name.isdecimal()
        with pytest.raises(UserError, match="another export is at work there; wait"):
            make_version(tmp_path)
        assert temporary.is_dir()
    assert list(tmp_path.iterdir()) == [version]


def test_a_folder_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="not a folder"):
        make_version(tmp_path / "file")
