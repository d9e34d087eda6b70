"""Tests that output goes into pipes and devices without replacing them, follows links, and spares
the input files.
"""

import errno
import fcntl
import os
import stat
from pathlib import Path
from typing import IO

import pytest

from disks import largest_file
from t2t_repro.errors import UserError
from t2t_repro.files.output_files import (
    is_stream,
    locked,
    only_writer,
    output_file,
    refuse_overwriting,
    unfinished_folder,
    whole_file,
    without_links,
)
from user_errors import user_error


def write(path: Path | str, text: str = "new\n") -> None:
    with output_file(Path(path)) as file:
        file.write(text.encode())


def test_a_named_pipe_is_written(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    descriptor = os.open(tmp_path / "fifo", os.O_RDONLY | os.O_NONBLOCK)
    write(tmp_path / "fifo")
    assert os.read(descriptor, 100) == b"new\n" and stat.S_ISFIFO(
        (tmp_path / "fifo").stat().st_mode
    )
    os.close(descriptor)


@pytest.mark.parametrize("folder", ["/dev/fd", "/proc/self/fd"])
def test_an_open_file_is_continued_and_a_pipe_without_a_reader_is_reported(
    tmp_path: Path, folder: str
) -> None:
    reading, writing = os.pipe()
    assert is_stream(f"{folder}/{writing}")
    write(f"{folder}/{writing}")
    assert os.read(reading, 100) == b"new\n"
    os.close(reading)
    with pytest.raises(BrokenPipeError):
        write(f"{folder}/{writing}")
    os.close(writing)
    # The shell opens such a file for `(echo first; t2t-decoder --decode_to_file=/dev/stdout; echo
    # last) > file`.
    with open(tmp_path / "file", "wb", buffering=0) as file:
        file.write(b"first\n")
        write(f"{folder}/{file.fileno()}")
        file.write(b"last\n")
    assert (tmp_path / "file").read_text() == "first\nnew\nlast\n"


@pytest.mark.parametrize(
    ("call", "number"), [("chmod", errno.EPERM), ("fsync", errno.EINVAL), ("fsync", errno.ENOSYS)]
)
def test_a_file_system_without_a_call_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, number: int
) -> None:
    def refuse(*arguments: object, **options: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, call, refuse)
    for text in ("first\n", "second\n"):
        write(tmp_path / "file", text)
    assert (tmp_path / "file").read_text() == "second\n"


@pytest.mark.parametrize("target", ["file", "folder/file", "missing"])
def test_the_target_of_a_link_is_replaced(tmp_path: Path, target: str) -> None:
    (tmp_path / "folder").mkdir()
    if target != "missing":
        (tmp_path / target).write_text("old")
    (tmp_path / "link").symlink_to(target)
    (tmp_path / "folder" / "link to a link").symlink_to("../link")
    write(tmp_path / "folder" / "link to a link")
    assert (tmp_path / "link").is_symlink() and (
        tmp_path / "folder" / "link to a link"
    ).is_symlink()
    assert (tmp_path / target).read_text() == "new\n"
    assert without_links(tmp_path / "folder" / "link to a link").samefile(tmp_path / target)
    assert str(without_links("x.de")) == "x.de"


def test_a_file_appears_only_when_it_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "new" / "file"
    for contents in ("Größe\n", "other\n"):
        old = path.read_bytes() if path.exists() else None
        with pytest.raises(ZeroDivisionError), whole_file(path) as file:
            file.write(b"half")
            assert (path.read_bytes() if path.exists() else None) == old
            raise ZeroDivisionError
        with (
            largest_file(1000),
            pytest.raises(UserError, match="file: cannot be written"),
            whole_file(path) as file,
        ):
            file.write(bytes(5000))
        assert (path.read_bytes() if path.exists() else None) == old
        write(path, contents)
        assert path.read_bytes() == contents.encode() and os.listdir(path.parent) == ["file"]


def test_a_new_file_has_the_permissions_of_the_umask_and_a_replaced_one_keeps_its_own(
    tmp_path: Path,
) -> None:
    (tmp_path / "secret").touch(0o600)
    umask = os.umask(0o027)
    try:
        with whole_file(tmp_path / "secret") as file:
            assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
            file.write(b"")
        write(tmp_path / "new")
    finally:
        os.umask(umask)
    assert [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("secret", "new")] == [
        0o600,
        0o640,
    ]


def test_a_path_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    for name in ("file/below", "folder"):
        assert f"{name}: cannot be written" in user_error(write, tmp_path / name)
        assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_the_error_of_something_else_is_not_blamed_on_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="no semaphore"), whole_file(tmp_path / "x"):
        raise OSError(28, "no semaphore")
    assert os.listdir(tmp_path) == []


def test_one_process_writes_a_file_at_a_time_and_the_lock_file_of_a_killed_one_does_not_matter(
    tmp_path: Path,
) -> None:
    (tmp_path / ".x.de.lock").touch()
    for output in (tmp_path / "x.de", tmp_path / "new" / "x.de"):
        with only_writer(output, "--to"):
            message = user_error(only_writer(output, "--to").__enter__)
            assert message.startswith(f"{output}: another process is writing") and message.endswith(
                "another --to"
            )
            with only_writer(tmp_path / "y.de", "--to"):
                pass
        assert not list(tmp_path.glob("**/*.lock"))
    assert not (tmp_path / "new").exists()
    with only_writer(tmp_path / "new" / "x.de", "--to"):
        (tmp_path / "new" / "x.de").touch()
    assert (tmp_path / "new" / "x.de").exists()


def test_a_lock_file_that_its_owner_deletes_at_the_last_moment_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "lock"
    flock = fcntl.flock
    calls = list[int]()

    def delete_first(file: IO[bytes], operation: int) -> None:
        calls.append(operation)
        if len(calls) == 1:
            path.unlink()
        flock(file, operation)

    monkeypatch.setattr(fcntl, "flock", delete_first)
    with locked(path, "locked"):
        assert len(calls) == 2 and path.exists()
        with pytest.raises(UserError, match="locked"):
            locked(path, "locked").__enter__()


def test_the_files_of_an_unfinished_folder_are_renamed_or_deleted(tmp_path: Path) -> None:
    (tmp_path / ".unfinished").mkdir()
    (tmp_path / ".unfinished" / "leftover").touch()
    with unfinished_folder(tmp_path) as folder:
        assert list(folder.iterdir()) == []
        (folder / "file").touch()
        (folder / "file").rename(tmp_path / "file")
        (folder / "other").touch()
    assert os.listdir(tmp_path) == ["file"]


def test_an_input_under_any_of_its_names_is_no_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("text", "other"):
        Path(name).write_text("text\n")
    Path("link").symlink_to("text")
    os.link("text", "hard link")
    os.mkfifo("pipe")
    inputs = [("--about=other", "other"), ("--from=text", "text"), ("--of", "pipe"), ("--by", "no")]
    for output in ("text", tmp_path / "text", "link", "hard link"):
        words = (
            f"{output} is also an input (--from=text) and would be overwritten; choose another --to"
        )
        assert words == user_error(refuse_overwriting, "--to", ["missing", output], inputs)
    with open("text", "ab") as file:
        words = user_error(
            refuse_overwriting, "--to", ["text"], [("standard input", file.fileno())]
        )
        assert "text is also an input (standard input)" in words
        assert "standard output is also an input" in user_error(
            refuse_overwriting, "--to", [file.fileno()], inputs
        )
    refuse_overwriting("--to", ["missing", "pipe"], inputs)
