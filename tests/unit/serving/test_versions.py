"""Tests that versions of an exported model have numbers, appear only when complete, and never after
an error.
"""

from pathlib import Path

import pytest

from t2t_repro.serving.versions import new_version
from user_errors import user_error


def make_version(export_dir: Path) -> Path:
    with new_version(export_dir) as (temporary, version):
        (temporary / "model").touch()
        assert not version.exists()
    return version


def test_a_version_is_one_higher_than_the_highest(tmp_path: Path) -> None:
    export_dir = tmp_path / "new" / "export"
    assert [make_version(export_dir).name for _ in range(2)] == ["1", "2"]
    for name in ("10", "notes", "²", ".unfinished"):
        (export_dir / name).mkdir()
    version = make_version(export_dir)
    assert version == export_dir / "11" and (version / "model").is_file()
    assert {path.name for path in export_dir.iterdir()} == {"1", "2", "10", "11", "notes", "²"}


def test_an_error_leaves_nothing_behind_and_two_exports_at_once_are_refused(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt), new_version(tmp_path) as (temporary, _):
        (temporary / "model").touch()
        assert "another export is at work there" in user_error(make_version, tmp_path)
        assert temporary.is_dir()
        raise KeyboardInterrupt
    assert not list(tmp_path.iterdir())
