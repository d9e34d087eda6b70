"""Tests that archives are found, downloaded, verified and unpacked."""

import functools
import hashlib
import http.server
import os
import socket
import struct
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from folders import contents
from t2t_repro.corpora.archives import EXTRACTED, Archive, find, unpack
from tars import write_tar
from user_errors import user_error

NOWHERE = "file:///no/such/folder"
FILES = {
    "training/a.en": b"one\ntwo\n" * 5000,
    "training/a.de": b"eins\nzwei\n" * 5000,
    "training/a.fr": b"un\n",
}


class Server(http.server.SimpleHTTPRequestHandler):
    """HTTP handler that sends the files of a folder, but only the first halves of cut.tgz and
    reset.tgz.
    """

    def copyfile(self, source: Any, outputfile: Any) -> None:
        contents = source.read()
        outputfile.write(
            contents[: len(contents) // 2] if self.path in ("/cut.tgz", "/reset.tgz") else contents
        )
        # Reset the connection, so that the client's next read raises an error.
        if self.path == "/reset.tgz":
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
    """Returns an Archive with the size and checksum of the file `path`. Its URL is `place`/NAME for
    a file NAME.
    """
    contents = path.read_bytes()
    checksum = f"{algorithm}:{hashlib.new(algorithm, contents).hexdigest()}"
    return Archive(f"{place}/{path.name}", len(contents), checksum)


def failure(*archives: Archive, folder: Path) -> str:
    return user_error(find, archives, folder)


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_an_archive_in_the_folder_is_found_and_verified(tmp_path: Path, algorithm: str) -> None:
    path = write_tar(tmp_path / "a.tgz", FILES)
    whole = path.read_bytes()
    archive = published(path, algorithm=algorithm)
    assert find([archive, Archive(f"{NOWHERE}/a.tgz")], tmp_path) == [path, path]
    for other in (whole[:-100], whole[:-1] + bytes([whole[-1] ^ 1])):
        path.write_bytes(other)
        message = failure(archive, folder=tmp_path)
        for data in (other, whole):
            assert (
                f"{len(data):,} bytes with {algorithm} {hashlib.new(algorithm, data).hexdigest()}"
                in message
            )
        assert message.startswith(f"{path}: ") and archive.url in message
        assert path.read_bytes() == other, "a user's file is not deleted"
    path.write_bytes(whole[:-100])
    for partly_known in (
        Archive(archive.url, len(whole)),
        Archive(archive.url, checksum=archive.checksum),
    ):
        assert f"{len(whole) - 100:,} bytes" in failure(partly_known, folder=tmp_path)


def test_an_archive_is_downloaded_once(
    tmp_path: Path, server: str, capsys: pytest.CaptureFixture[str]
) -> None:
    source = write_tar(tmp_path / "served" / "a.tgz", FILES)
    archive = published(source, server)
    folder = tmp_path / "tmp"
    assert find([archive], folder) == [folder / "a.tgz"]
    assert capsys.readouterr().err == f"downloading {archive} to {folder / 'a.tgz'}\n"
    assert (folder / "a.tgz").read_bytes() == source.read_bytes()
    source.write_bytes(b"<html>moved</html>")
    assert find([archive], folder) == [folder / "a.tgz"]
    (folder / "a.tgz").unlink()
    assert "18 bytes with" in failure(archive, folder=folder)
    assert contents(folder) == {}


@pytest.mark.parametrize(
    ("name", "reason"), [("cut", "the connection broke"), ("reset", "Connection reset by peer")]
)
def test_a_broken_connection_leaves_no_file(
    tmp_path: Path, server: str, name: str, reason: str
) -> None:
    write_tar(tmp_path / "served" / f"{name}.tgz", {"a": os.urandom(4_000_000)})
    message = failure(Archive(f"{server}/{name}.tgz"), folder=tmp_path / "tmp")
    assert (
        message.startswith(f"cannot download {server}/{name}.tgz (")
        and reason in message.partition(")")[0]
    )
    assert contents(tmp_path / "tmp") == {}


def test_all_missing_archives_are_named_together(tmp_path: Path, server: str) -> None:
    existing = published(write_tar(tmp_path / "tmp" / "existing.tgz", FILES))
    served = published(write_tar(tmp_path / "served" / "served.tgz", FILES), server)
    missing = [Archive(f"{server}/first.tgz", 1234567), Archive(f"{NOWHERE}/second.tar")]
    message = failure(existing, served, *missing, folder=tmp_path / "tmp")
    assert message == (
        f"cannot download {server}/first.tgz (File not found); get these files and put them into "
        f"{tmp_path / 'tmp'}: first.tgz (1,234,567 bytes, {server}/first.tgz), second.tar "
        f"({NOWHERE}/second.tar)"
    )
    assert contents(tmp_path / "tmp").keys() == {"existing.tgz", "served.tgz"}


@pytest.mark.parametrize(("name", "prefix"), [("a.tgz", ""), ("a.tar", "./")])
def test_only_the_requested_files_are_unpacked_and_only_once(
    tmp_path: Path, name: str, prefix: str
) -> None:
    path = write_tar(
        tmp_path / name, {prefix + inside: contents for inside, contents in FILES.items()}
    )
    files = {published(path): ["training/a.de", "training/a.en"]}
    folder = unpack(files, tmp_path)
    assert contents(folder) == {
        inside: FILES[inside] for inside in ("training/a.de", "training/a.en")
    }
    path.unlink()
    assert unpack(files, tmp_path) == folder
    (folder / "training/a.de").unlink()
    assert "cannot download" in user_error(unpack, files, tmp_path)


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE, b"S"]
)
def test_only_regular_files_are_unpacked(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "a.tgz"
    with tarfile.open(path, "w:gz") as tar:
        tar.addfile(tarfile.TarInfo("b"))
        member = tarfile.TarInfo("a")
        member.type = kind
        member.linkname = "b"
        tar.addfile(member)
    message = user_error(unpack, {Archive(f"{NOWHERE}/a.tgz"): ["a", "c", "b"]}, tmp_path)
    assert message == f"{path}: has no regular file a, c; get it again from {NOWHERE}/a.tgz"
    assert contents(tmp_path).keys() == {"a.tgz", "extracted/b"}


TAR_FILES = {"training/a.en": os.urandom(30_000), "training/a.de": os.urandom(30_000)}


@pytest.mark.parametrize(
    ("name", "share"), [("a.tgz", 0.0), ("a.tgz", 0.9), ("a.tar", 0.3), ("a.tar", 0.99)]
)
def test_a_damaged_archive_leaves_whole_files_only(tmp_path: Path, name: str, share: float) -> None:
    path = write_tar(tmp_path / name, TAR_FILES)
    path.write_bytes(path.read_bytes()[: int(share * 60_000)])
    message = user_error(unpack, {Archive(f"{NOWHERE}/{name}"): list(TAR_FILES)}, tmp_path)
    assert message.startswith(f"{path}: ") and "\n" not in message
    assert "cut off or damaged" in message or "has no regular file" in message
    assert contents(tmp_path / EXTRACTED).items() <= TAR_FILES.items()
