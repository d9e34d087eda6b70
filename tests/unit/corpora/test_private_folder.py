"""Tests the default folder of downloads, and that a folder in which other users can write is
refused.
"""

import grp
import os
import pwd
import types
from pathlib import Path

import pytest

from t2t_repro.corpora.private_folder import default_folder, make_private
from user_errors import user_error


@pytest.mark.parametrize(
    ("cache", "home", "folder"),
    [
        ("/c", "/h", "/c/t2t_repro"),
        ("", "/h", "/h/.cache/t2t_repro"),
        ("relative", "/h", "/h/.cache/t2t_repro"),
        ("", "~", f"/t/t2t_repro-{os.geteuid()}"),
    ],
)
def test_the_default_folder(
    cache: str, home: str, folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", cache)
    monkeypatch.setenv("HOME", home)
    monkeypatch.setenv("TMPDIR", "/t")
    assert default_folder() == folder


@pytest.mark.parametrize(
    ("mode", "cure"),
    [
        *((mode, "") for mode in (0o700, 0o755, 0o1755)),
        *((mode, "run chmod go-w") for mode in (0o777, 0o775, 0o702)),
        (0o1777, "such as --tmp_dir="),
    ],
)
def test_only_a_folder_that_no_other_user_can_write_is_accepted(
    tmp_path: Path, mode: int, cure: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tmp_path.chmod(mode)
    name = pwd.getpwuid(os.geteuid()).pw_name
    for others in (["anna"], []):
        group = types.SimpleNamespace(gr_name=name, gr_mem=[name, *others])
        monkeypatch.setattr(grp, "getgrgid", lambda group_id: group)  # noqa: B023
        if cure and (others or mode & 0o002):
            message = user_error(make_private, tmp_path)
            assert (
                f"--tmp_dir={tmp_path}: other users can write there" in message and cure in message
            )
        else:  # the user's own group may write
            make_private(tmp_path)
    make_private(tmp_path / "new" / "folder")
    assert (tmp_path / "new" / "folder").stat().st_mode & 0o777 == 0o700


def test_a_folder_of_another_user_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = tmp_path.stat().st_uid or 12345
    os.chown(tmp_path, owner, -1)
    monkeypatch.setattr(os, "geteuid", lambda: owner)
    make_private(tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: owner + 1)
    assert f"belongs to user {owner}, who could change its files" in user_error(
        make_private, tmp_path
    )
