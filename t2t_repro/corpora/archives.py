"""Finds archives of text in a folder or downloads them, verifies them, and unpacks files from them.

Files may be gigabytes large, so no function loads a whole file into memory. An interrupted download
or extraction leaves no partial file under the final name.
"""

import hashlib
import http.client
import lzma
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from t2t_repro.console.progress import progress, say
from t2t_repro.errors import UserError, first_line
from t2t_repro.files.output_files import whole_file

EXTRACTED = "extracted"
"""Name of the folder of unpacked files. It is a subfolder of the folder that holds the archives."""
READ_BYTES = 1 << 20
"""Number of bytes that a download or extraction reads at a time."""
TIMEOUT = 60
"""Seconds without an answer from the server after which a download fails."""
UNREADABLE = (
    OSError,
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    http.client.HTTPException,
)
"""Exceptions that Python raises when an archive is damaged or a connection breaks."""


class MissingArchiveError(UserError):
    """Raised if an archive is not in the folder of archives and cannot be downloaded."""


@dataclass(frozen=True)
class Archive:
    """Address, size and checksum of a published archive.

    The last part of `url` is the file name. `size` is the number of bytes, or None if unknown.
    `checksum` is "sha256:" or "md5:" with the hex digits, or "" if unknown.
    """

    url: str
    size: int | None = None
    checksum: str = ""

    @property
    def name(self) -> str:
        return self.url.rpartition("/")[2]

    def __str__(self) -> str:
        size = "" if self.size is None else f"{self.size:,} bytes, "
        return f"{self.name} ({size}{self.url})"


def find(archives: Iterable[Archive], folder: str | Path) -> list[Path]:
    """Returns the paths of archives in `folder`. Downloads the missing archives, and verifies all
    archives.

    Raises MissingArchiveError, which names all missing archives, if one cannot be downloaded, and
    UserError if an archive's size or checksum differs from the published value, or the disk is
    full.
    """
    paths = {archive: Path(folder, archive.name) for archive in archives}
    missing = [archive for archive, path in paths.items() if not path.exists()]
    for archive in paths.keys() - set(missing):
        _check(paths[archive], archive)
    for position, archive in enumerate(missing):
        try:
            _download(archive, paths[archive])
        except (*UNREADABLE, ValueError) as error:  # ValueError if archive.url is not a URL
            if isinstance(error, urllib.error.HTTPError):
                error.close()  # it is the server's answer, whose connection is open
            raise MissingArchiveError(
                f"cannot download {archive.url} ({getattr(error, 'reason', error)}); get these "
                f"files and put them into {folder}: {', '.join(map(str, missing[position:]))}"
            ) from None
        try:
            _check(paths[archive], archive)
        except UserError:
            paths[archive].unlink()
            raise
    return list(paths.values())


def unpack(files: Mapping[Archive, Sequence[str]], folder: str | Path) -> Path:
    """Unpacks files from tar archives in `folder`. Returns the folder of these files, which keep
    their paths in it.

    Skips files that are unpacked already, even if their archive is deleted. Downloads missing
    archives. Raises UserError if an archive is missing, damaged or not the published one, or has no
    regular file of that path.
    """
    target = Path(folder, EXTRACTED)
    packed = {}
    for archive, paths in files.items():
        if missing_files := {path for path in paths if not (target / path).is_file()}:
            packed[archive] = missing_files
    for archive, archive_path in zip(packed, find(packed, folder), strict=True):
        say(f"unpacking {', '.join(sorted(packed[archive]))} from {archive_path}")
        if missing := _extract(archive_path, packed[archive], target):
            names = ", ".join(sorted(missing))
            raise UserError(
                f"{archive_path}: has no regular file {names}; get it again from {archive.url}"
            )
    return target


def _extract(archive: Path, paths: set[str], target: Path) -> set[str]:
    """Unpacks the files `paths` to the folder `target`. Returns the paths that the archive does not
    have.
    """
    missing = set(paths)
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = member.name.removeprefix("./")
                # A link could lead to any file. A sparse file could fill the disk.
                if path not in missing or not member.isreg() or member.issparse():
                    continue
                contents = tar.extractfile(member)
                assert contents  # because it is a regular file
                with whole_file(target / path) as file:
                    file.writelines(_chunks(contents))
                missing.remove(path)
                if not missing:
                    break
    except UNREADABLE as error:
        # If the archive is of an unknown kind, the error also has a line for each kind that Python
        # tried.
        raise UserError(
            f"{archive}: cut off or damaged tar archive ({first_line(error).rstrip(':')}); get it "
            "again, or if it is an archive of another kind, such as zip, unpack it in "
            f"{archive.parent}"
        ) from None
    return missing


def _download(archive: Archive, path: Path) -> None:
    with urllib.request.urlopen(archive.url, timeout=TIMEOUT) as response:
        say(f"downloading {archive} to {path}")
        total = None if archive.size is None else -(-archive.size // READ_BYTES)
        with whole_file(path) as file:
            file.writelines(progress(_chunks(response), archive.name, total, "MiB"))


def _chunks(source: IO[bytes]) -> Iterator[bytes]:
    """Yields the contents of an open file. Raises EOFError if they cannot be read; a full disk
    raises OSError.
    """
    try:
        while data := source.read(READ_BYTES):
            yield data
        # Of a response, `length` is now the number of bytes that the server announced but did not
        # send.
        if getattr(source, "length", None):
            raise EOFError("the connection broke")
    except UNREADABLE as error:
        raise EOFError(str(error)) from None


def _check(path: Path, archive: Archive) -> None:
    size = path.stat().st_size
    found = f"{size:,} bytes"
    expected = f"{archive.size or size:,} bytes"
    if archive.checksum:
        algorithm, _, digest = archive.checksum.partition(":")
        with open(path, "rb") as file:
            found += f" with {algorithm} {hashlib.file_digest(file, algorithm).hexdigest()}"
        expected += f" with {algorithm} {digest}"
    if found != expected:
        raise UserError(
            f"{path}: {found}, but the published archive has {expected}; get it again from "
            f"{archive.url}"
        )
