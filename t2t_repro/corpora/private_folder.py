"""The folder of downloads: its default place, and the check that no other user of the machine can
change its files.
"""

import grp
import os
import pwd
import stat
from pathlib import Path

from t2t_repro.errors import UserError


def default_folder() -> str:
    """Returns the folder of this project in the user's cache directory: $XDG_CACHE_HOME, or else
    ~/.cache.
    """
    cache = os.environ.get("XDG_CACHE_HOME", "")
    if not os.path.isabs(cache):  # The XDG specification says that a relative path must be ignored.
        cache = os.path.expanduser("~/.cache")
    if os.path.isabs(cache):
        return os.path.join(cache, "t2t_repro")
    # The user has no home directory.
    return os.path.join(os.environ.get("TMPDIR", "/tmp"), f"t2t_repro-{os.geteuid()}")


def make_private(folder: str | Path) -> None:
    """Creates a folder that only this user can read and write, or checks an existing folder.

    Raises UserError if the folder belongs to another user (except root), or others can write to it.
    """
    path = Path(folder)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = path.stat()
    if status.st_uid not in (0, os.geteuid()):
        raise UserError(
            f"--tmp_dir={folder}: belongs to user {status.st_uid}, who could change its files; "
            "give your own folder"
        )
    if status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and not _is_private_group(status.st_gid)
    ):
        cure = f"run chmod go-w {folder}, or give another folder"
        if status.st_mode & stat.S_ISVTX:  # A directory like /tmp is meant to be shared.
            cure = f"give a folder of your own, such as --tmp_dir={default_folder()}"
        raise UserError(
            f"--tmp_dir={folder}: other users can write there, and could change its files; {cure}"
        )


def _is_private_group(group_id: int) -> bool:
    """Returns True if a group is this user's private group: it has the user's name, and no other
    member.
    """
    try:
        group = grp.getgrgid(group_id)
        name = pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return False
    return group.gr_name == name and set(group.gr_mem) <= {name}
