"""Tests that archives are found, downloaded, verified and unpacked."""

from __future__ import annotations

import functools
import gzip
import hashlib
import http.server
import os
import socket
import struct
import tarfile
import threading
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from t2t_repro.corpora.archives import EXTRACTED, Archive, MissingArchiveError, find, unpack
from t2t_repro.errors import UserError
from tars import write_tar
from user_errors import user_error

NOWHERE = "file:///no/such/folder"
FILES = {"training/a.en": b"one\ntwo\n" * 5000, "training/a.de": b"eins\nzwei\n" * 5000, "training/a.fr": b"un\n"}


class Server(http.server.SimpleHTTPRequestHandler):
    """HTTP handler that sends the files of a folder, but only the first halves of cut.tgz and reset.tgz."""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        contents = source.read()
        outputfile.write(contents[: len(contents) // 2] if self.path in ("/cut.tgz", "/reset.tgz") else contents)
        if self.path == "/reset.tgz":  # Reset the connection, so that the client's next read raises an error.
            outputfile.flush()
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.connection.close()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    """Runs an HTTP server for the files in tmp_path/served, and yields the server's address."""
    (tmp_path / "served").mkdir()
    handler = functools.partial(Server, directory=str(tmp_path / "served"))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{running.server_port}"
        running.shutdown()
        thread.join()


def published(path: Path, place: str = NOWHERE, algorithm: str = "sha256") -> Archive:
    """Returns an Archive with the size and checksum of the file `path`. Its URL is `place`/NAME for a file NAME."""
    contents = path.read_bytes()
    checksum = f"{algorithm}:{hashlib.new(algorithm, contents).hexdigest()}"
    return Archive(f"{place}/{path.name}", len(contents), checksum)


def files_in(folder: Path) -> list[str]:
    """Returns the relative paths of all files in a folder."""
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def failure(*archives: Archive, folder: Path, others: tuple[Archive, ...] = ()) -> str:
    return user_error(find, archives, folder, others)


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_an_archive_in_the_folder_is_found_and_verified(tmp_path: Path, algorithm: str) -> None:
    path = write_tar(tmp_path / "a.tgz", FILES)
    whole = path.read_bytes()
    archive = published(path, algorithm=algorithm)
    assert find([archive, Archive(f"{NOWHERE}/a.tgz")], tmp_path) == [path, path]
    path.write_bytes(whole[:-100])
    message = failure(archive, folder=tmp_path)
    assert message.startswith(f"{path}: {len(whole) - 100:,} bytes, but the published archive has {len(whole):,};")
    other = whole[:-1] + bytes([whole[-1] ^ 1])
    path.write_bytes(other)
    message = failure(archive, folder=tmp_path)
    assert all(hashlib.new(algorithm, contents).hexdigest() in message for contents in (other, whole))
    assert f"{path}: {len(whole):,} bytes" in message and f"get it again from {archive.url}" in message
    assert path.read_bytes() == other, "a user's file is not deleted"


def test_an_archive_is_downloaded_once(tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]) -> None:
    source = write_tar(tmp_path / "served" / "a.tgz", FILES)
    archive, folder = published(source, server), tmp_path / "tmp"
    assert find([archive], folder) == [folder / "a.tgz"]
    assert capsys.readouterr().err == f"downloading {archive} to {folder / 'a.tgz'}\n"
    assert (folder / "a.tgz").read_bytes() == source.read_bytes()
    source.write_bytes(b"<html>moved</html>")
    assert find([archive], folder) == [folder / "a.tgz"]
    (folder / "a.tgz").unlink()
    assert "18 bytes, but the published archive has" in failure(archive, folder=folder)
    assert files_in(folder) == []


@pytest.mark.parametrize(("name", "reason"), [("cut", "the connection broke"), ("reset", "Connection reset by peer")])
def test_a_broken_connection_leaves_no_file(tmp_path: Path, server: str, name: str, reason: str) -> None:
    write_tar(tmp_path / "served" / f"{name}.tgz", {"a": os.urandom(4_000_000)})
    message = failure(Archive(f"{server}/{name}.tgz"), folder=tmp_path / "tmp")
    assert message.startswith(f"cannot download {server}/{name}.tgz (") and reason in message.partition(")")[0]
    assert files_in(tmp_path / "tmp") == []


def test_all_missing_archives_are_named_together(tmp_path: Path, server: str) -> None:
    existing = write_tar(tmp_path / "tmp" / "existing.tgz", FILES)
    served = published(write_tar(tmp_path / "served" / "served.tgz", FILES), server)
    first, second = Archive(f"{server}/first.tgz", 1234567), Archive(f"{NOWHERE}/second.tar")
    others = (published(existing), Archive(f"{NOWHERE}/third.tgz", 3))
    with pytest.raises(MissingArchiveError) as error:
        find([published(existing), served, first, second], tmp_path / "tmp", others)
    assert str(error.value) == (
        f"cannot download {server}/first.tgz (File not found); get these files and put them into {tmp_path / 'tmp'}: "
        f"first.tgz (1,234,567 bytes, {server}/first.tgz), second.tar ({NOWHERE}/second.tar); "
        f"also needed: third.tgz (3 bytes, {NOWHERE}/third.tgz)"
    )
    assert files_in(tmp_path / "tmp") == ["existing.tgz", "served.tgz"]


@pytest.mark.parametrize(("name", "prefix"), [("a.tgz", ""), ("a.tar", "./")])
def test_only_the_requested_files_are_unpacked_and_only_once(tmp_path: Path, name: str, prefix: str) -> None:
    path = write_tar(tmp_path / name, {prefix + inside: contents for inside, contents in FILES.items()})
    files = {published(path): ["training/a.de", "training/a.en"]}
    folder = unpack(files, tmp_path)
    assert files_in(folder) == ["training/a.de", "training/a.en"]
    assert all((folder / inside).read_bytes() == FILES[inside] for inside in files_in(folder))

    path.unlink()
    assert unpack(files, tmp_path) == folder
    lost = {Archive(f"{NOWHERE}/lost.tgz"): ["x"]}
    assert "a.tgz" not in user_error(unpack, lost, tmp_path, files)
    (folder / "training/a.de").unlink()
    assert "also needed: lost.tgz" in user_error(unpack, files, tmp_path, lost)


@pytest.mark.parametrize(
    ("kind", "link"),
    [(tarfile.SYMTYPE, "/etc/passwd"), (tarfile.LNKTYPE, "b"), (tarfile.CHRTYPE, ""), (tarfile.FIFOTYPE, ""),
     (tarfile.DIRTYPE, ""), (tarfile.GNUTYPE_SPARSE, "")],
)  # fmt: skip
def test_only_regular_files_are_unpacked(tmp_path: Path, kind: bytes, link: str) -> None:
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("b"))
        member = tarfile.TarInfo("a")
        member.type, member.linkname = kind, link
        tar.addfile(member)
    message = user_error(unpack, {Archive(f"{NOWHERE}/a.tgz"): ["a", "c"]}, tmp_path)
    assert message == f"{path}: a is not a regular file there; has no c; get it again from {NOWHERE}/a.tgz"
    assert files_in(tmp_path) == ["a.tgz"]


@pytest.mark.parametrize("path", ["../a", "x/../../a", "/tmp/a"])
def test_a_path_out_of_the_folder_is_refused(tmp_path: Path, path: str) -> None:
    write_tar(tmp_path / "a.tgz", {path: b"text"})
    with pytest.raises(UserError, match=f"{path} would be unpacked outside of"):
        unpack({Archive(f"{NOWHERE}/a.tgz"): [path]}, tmp_path)
    assert files_in(tmp_path) == ["a.tgz"]


@pytest.mark.parametrize(
    ("name", "share"), [("a.tgz", 0.0), ("a.tgz", 0.3), ("a.tgz", 0.9), ("a.tar", 0.3), ("a.tar", 0.99)]
)
def test_a_damaged_archive_leaves_whole_files_only(tmp_path: Path, name: str, share: float) -> None:
    texts = {"training/a.en": os.urandom(30_000), "training/a.de": os.urandom(30_000)}
    path = write_tar(tmp_path / name, texts)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(share * 60_000)])
    files = {Archive(f"{NOWHERE}/{name}"): list(texts)}
    with pytest.raises(UserError, match=rf"{name}: (cut off or damaged tar archive \(|has no )"):
        unpack(files, tmp_path)
    for inside in files_in(tmp_path / EXTRACTED):
        assert (tmp_path / EXTRACTED / inside).read_bytes() == texts[inside]
    path.write_bytes(whole)
    folder = unpack(files, tmp_path)
    assert {inside: (folder / inside).read_bytes() for inside in files_in(folder)} == texts


GZIP = gzip.compress(b"text", mtime=0)  # with the time in it, the tests would have other names in each process


@pytest.mark.parametrize("contents", [b"", b"<html>", b"PK\x03\x04", GZIP, GZIP[:-9]])
def test_a_file_that_is_no_archive_is_an_error_of_one_line(tmp_path: Path, contents: bytes) -> None:
    path = tmp_path / "a.tgz"
    path.write_bytes(contents)
    message = user_error(unpack, {Archive(f"{NOWHERE}/a.tgz"): ["a"]}, tmp_path)
    assert message.startswith(f"{path}: cut off or damaged tar archive (") and "\n" not in message


def test_memory_does_not_grow_with_the_files(tmp_path: Path) -> None:
    archive = published(write_tar(tmp_path / "a.tgz", {"zeros": bytes(60_000_000)}))
    tracemalloc.start()
    try:
        unpack({archive: ["zeros"]}, tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 10_000_000
