"""Finds archives of text in a folder or downloads them, verifies them, and unpacks files from them.

Files may be gigabytes large, so no function loads a whole file into memory. An interrupted download or extraction
leaves no partial file under the final name.
"""

from __future__ import annotations

import functools
import hashlib
import http.client
import lzma
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from t2t_repro.console.progress import Progress, say
from t2t_repro.errors import UserError, first_line
from t2t_repro.files.output_files import whole_file

EXTRACTED = "extracted"
"""Name of the folder of unpacked files. It is a subfolder of the folder that holds the archives."""
READ_BYTES = 1 << 20
"""Number of bytes that a download or extraction reads at a time."""
TIMEOUT = 60
"""Seconds without an answer from the server after which a download fails."""
UNREADABLE = (OSError, EOFError, zlib.error, lzma.LZMAError, tarfile.TarError, http.client.HTTPException)
"""Exceptions that Python raises when an archive is damaged or a connection breaks."""


class MissingArchiveError(UserError):
    """Raised if an archive is not in the folder of archives and cannot be downloaded."""


@dataclass(frozen=True)
class Archive:
    """Address, size and checksum of a published archive.

    Args:
        url: address of the archive. Its last part is the file name.
        size: number of bytes, or None if unknown.
        checksum: "sha256:" or "md5:" with the hex digits, or "" if unknown.
    """

    url: str
    size: int | None = None
    checksum: str = ""

    @property
    def name(self) -> str:
        """File name of the archive."""
        return self.url.rpartition("/")[2]

    def __str__(self) -> str:
        """Returns the name, size and address of the archive, for error messages."""
        return f"{self.name} ({'' if self.size is None else f'{self.size:,} bytes, '}{self.url})"


def find(archives: Iterable[Archive], folder: str | Path, others: Iterable[Archive] = ()) -> list[Path]:
    """Returns the paths of archives in `folder`. Downloads the missing archives, and verifies all archives.

    Args:
        others: archives that the caller will need later. If a download fails, the message names these archives, too.

    Raises:
        MissingArchiveError: if missing archives cannot be downloaded. The message names all missing archives.
        UserError: if an archive's size or checksum differs from the published value, or the disk is full.
    """
    paths = {archive: Path(folder, archive.name) for archive in archives}
    missing = [archive for archive, path in paths.items() if not path.exists()]
    for archive, path in paths.items():
        if archive not in missing:
            _check(path, archive)
    for position, archive in enumerate(missing):
        to_error = functools.partial(_download_error, missing=missing[position:], folder=folder, others=others)
        _download(archive, paths[archive], to_error)
        try:
            _check(paths[archive], archive)
        except UserError:
            paths[archive].unlink()
            raise
    return list(paths.values())


def unpack(
    files: Mapping[Archive, Sequence[str]], folder: str | Path, others: Mapping[Archive, Sequence[str]] | None = None
) -> Path:
    """Unpacks files from tar archives. Skips files that are unpacked already, even if their archive is deleted.

    Args:
        files: paths of the files inside each archive.
        folder: folder that holds the archives. Missing archives are downloaded to this folder.
        others: files that the caller needs later, by archive. If a download fails, the message names these archives.

    Returns:
        The folder of the unpacked files. A file has the same path in this folder as in its archive.

    Raises:
        UserError: if `find` raises it for an archive, an archive is damaged or lacks one of the files, or one of the
            paths leads out of the folder or is not a regular file in its archive.
    """
    target = Path(folder, EXTRACTED)
    for archive, paths in files.items():
        for path in map(PurePosixPath, paths):
            if path.is_absolute() or ".." in path.parts:
                raise UserError(f"{archive.name}: {path} would be unpacked outside of {target}; use another archive")
    packed = _packed(files, target)
    archives = find(packed, folder, _packed(others or {}, target))
    for (archive, paths), archive_path in zip(packed.items(), archives, strict=True):
        say(f"unpacking {', '.join(paths)} from {archive_path}")
        reasons = _extract(archive_path, paths, target)
        if reasons:
            raise UserError(f"{archive_path}: {'; '.join(reasons)}; get it again from {archive.url}")
    return target


def _packed(files: Mapping[Archive, Sequence[str]], target: Path) -> dict[Archive, list[str]]:
    """Returns the files that the folder `target` lacks, by archive. Omits archives whose files all exist."""
    packed = {archive: [path for path in paths if not (target / path).is_file()] for archive, paths in files.items()}
    return {archive: paths for archive, paths in packed.items() if paths}


def _download_error(
    error: Exception, missing: list[Archive], folder: str | Path, others: Iterable[Archive]
) -> MissingArchiveError:
    """Returns the error for `missing` archives. `error` is the exception from downloading the first one."""
    later = [str(other) for other in others if not Path(folder, other.name).exists()]
    return MissingArchiveError(
        f"cannot download {missing[0].url} ({getattr(error, 'reason', error)}); get these files and put "
        f"them into {folder}: {', '.join(map(str, missing))}{'; also needed: ' if later else ''}{', '.join(later)}"
    )


def _extract(archive: Path, paths: Iterable[str], target: Path) -> list[str]:
    """Unpacks the files `paths` to the folder `target`. Returns a reason for each file that it could not unpack."""
    reasons = {path: f"has no {path}" for path in paths}

    def to_error(error: Exception) -> UserError:
        # If the archive is of an unknown kind, the error also has a line for each kind that Python tried.
        detail = first_line(error).rstrip(":")
        return UserError(
            f"{archive}: cut off or damaged tar archive ({detail}); get it again, or if it is an archive of another "
            f"kind, such as zip, unpack it in {archive.parent}"
        )

    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = member.name.removeprefix("./")
                if path not in reasons:
                    continue
                # A link could lead to any file. A sparse file could fill the disk.
                contents = tar.extractfile(member) if member.isreg() and not member.issparse() else None
                if contents is None:
                    reasons[path] = f"{path} is not a regular file there"
                    continue
                with whole_file(target / path) as file:
                    file.writelines(_read_all(contents.read, to_error))
                del reasons[path]
                if not reasons:
                    break
    except UNREADABLE as error:
        raise to_error(error) from None
    return list(reasons.values())


def _download(archive: Archive, path: Path, to_error: Callable[[Exception], UserError]) -> None:
    try:
        response = urllib.request.urlopen(archive.url, timeout=TIMEOUT)
    except (*UNREADABLE, ValueError) as error:  # ValueError if archive.url is not a URL
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # The HTTPError holds an open connection.
        raise to_error(error) from None
    say(f"downloading {archive} to {path}")
    meter = Progress(archive.name, None if archive.size is None else -(-archive.size // READ_BYTES), "MiB")
    try:
        with response, whole_file(path) as file:
            for data in _read_all(response.read, to_error):
                file.write(data)
                meter.advance()
            # After the last read, `length` is the number of bytes that the server announced but did not send.
            if getattr(response, "length", None):
                raise to_error(EOFError("the connection broke"))
    finally:
        meter.close()


def _read_all(read: Callable[[int], bytes], to_error: Callable[[Exception], UserError]) -> Iterator[bytes]:
    """Yields all data that `read` returns. If `read` raises an exception, raises `to_error(exception)` in its place."""
    try:
        while data := read(READ_BYTES):
            yield data
    except UNREADABLE as error:
        raise to_error(error) from None


def _check(path: Path, archive: Archive) -> None:
    """Raises UserError if the size or checksum of a file differs from the published value."""
    size = path.stat().st_size
    if archive.size not in (None, size):
        raise UserError(
            f"{path}: {size:,} bytes, but the published archive has {archive.size:,}; get it again from {archive.url}"
        )
    if archive.checksum:
        algorithm, _, expected = archive.checksum.partition(":")
        with open(path, "rb") as file:
            checksum = hashlib.file_digest(file, algorithm).hexdigest()
        if checksum != expected:
            raise UserError(
                f"{path}: {size:,} bytes with {algorithm} {checksum}, but the published archive has {expected}; "
                f"get it again from {archive.url}"
            )
