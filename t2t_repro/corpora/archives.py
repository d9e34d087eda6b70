"""Published archives: found in a folder or downloaded into it, checked, and the files that are wanted taken out.

Everything is streamed, since some have files of gigabytes, and appears whole or not at all.
"""

from __future__ import annotations

import hashlib
import http.client
import tarfile
import urllib.error
import urllib.request
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from t2t_repro.errors import UserError
from t2t_repro.progress import Progress, say
from t2t_repro.textfile import whole_file

EXTRACTED = "extracted"
"""Where files taken out of archives go, beside the archives."""
BLOCK = 1 << 20
"""Bytes that are read at a time."""
TIMEOUT = 60
"""Seconds without an answer after which a server counts as not there."""
UNREADABLE = (OSError, EOFError, zlib.error, tarfile.TarError, http.client.HTTPException)
"""What reading a damaged archive or a broken connection raises."""


class MissingArchiveError(UserError):
    """Archives are neither in the folder nor to be downloaded."""


@dataclass(frozen=True)
class Archive:
    """An archive as it was published.

    Args:
        url: where; its last part is the archive's name.
        size: bytes; None where that is not known.
        checksum: of all bytes, "sha256:..." or "md5:..." in hex digits; "" where it is not known.
    """

    url: str
    size: int | None = None
    checksum: str = ""

    @property
    def name(self) -> str:
        """What the file is called."""
        return self.url.rpartition("/")[2]

    def __str__(self) -> str:
        """Name, size and place, for errors."""
        return f"{self.name} ({'' if self.size is None else f'{self.size:,} bytes, '}{self.url})"


def find(archives: Iterable[Archive], folder: str | Path, others: Iterable[Archive] = ()) -> list[Path]:
    """Paths of archives in `folder`; those that are not there are downloaded.

    Args:
        others: what will be asked for another time; where downloading fails, the error names these too.

    Raises:
        MissingArchiveError: some can be had neither in the folder nor by network; the message names all of them.
        UserError: one is not what was published; sizes, or checksums where sizes agree, are told. Or the disk is full.
    """
    paths = {archive: Path(folder, archive.name) for archive in archives}
    absent = [archive for archive, path in paths.items() if not path.exists()]
    for archive, path in paths.items():
        if archive not in absent:
            _check(path, archive)
    for position, archive in enumerate(absent):
        failure = partial(_missing, absent=absent[position:], folder=folder, others=others)
        _download(archive, paths[archive], failure)
        try:
            _check(paths[archive], archive)
        except UserError:
            paths[archive].unlink()
            raise
    return list(paths.values())


def unpack(
    wanted: Mapping[Archive, Sequence[str]], folder: str | Path, others: Mapping[Archive, Sequence[str]] | None = None
) -> Path:
    """Takes files out of tar archives, where that has not been done; the archives are not needed again.

    Args:
        wanted: paths of files inside each archive.
        folder: where the archives are, or are downloaded to.
        others: as for `find`, with the paths of files inside.

    Returns:
        The folder under which the files have the paths that they had inside.

    Raises:
        UserError: as `find`, or an archive is damaged or lacks a file.
    """
    target = Path(folder, EXTRACTED)
    left = _not_in(target, wanted)
    for (archive, paths), path in zip(left.items(), find(left, folder, _not_in(target, others or {})), strict=True):
        say(f"unpacking {', '.join(paths)} from {path}")
        absent = _extract(path, paths, target)
        if absent:
            raise UserError(f"{path}: has no {', '.join(absent)}; get it again from {archive.url}")
    return target


def _not_in(target: Path, wanted: Mapping[Archive, Sequence[str]]) -> dict[Archive, list[str]]:
    """What is left to be taken out of each archive; archives with nothing left are not among them."""
    left = {archive: [path for path in paths if not (target / path).is_file()] for archive, paths in wanted.items()}
    return {archive: paths for archive, paths in left.items() if paths}


def _missing(
    error: Exception, absent: list[Archive], folder: str | Path, others: Iterable[Archive]
) -> MissingArchiveError:
    """The error for all that cannot be had, the first of `absent` having failed with `error`."""
    more = [str(other) for other in others if not Path(folder, other.name).exists()]
    return MissingArchiveError(
        f"cannot download {absent[0].url} ({getattr(error, 'reason', error)}); get by other means and put "
        f"into {folder}: {', '.join(map(str, absent))}{'; also needed: ' if more else ''}{', '.join(more)}"
    )


def _extract(archive: Path, paths: Iterable[str], target: Path) -> list[str]:
    """Writes the members `paths` under `target`; returns those that the archive does not have."""
    absent = list(paths)

    def damaged(error: Exception) -> UserError:
        return UserError(f"{archive}: not a whole tar archive ({error}); get it again")

    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                path = member.name.removeprefix("./")
                contents = tar.extractfile(member) if path in absent else None
                if contents is not None:
                    with whole_file(target / path) as file:
                        file.writelines(_blocks(contents.read, damaged))
                    absent.remove(path)
                if not absent:
                    break
    except UNREADABLE as error:
        raise damaged(error) from None
    return absent


def _download(archive: Archive, path: Path, failure: Callable[[Exception], UserError]) -> None:
    try:
        response = urllib.request.urlopen(archive.url, timeout=TIMEOUT)
    except UNREADABLE as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()  # it holds the connection
        raise failure(error) from None
    say(f"downloading {archive} to {path}")
    meter = Progress(archive.name, None if archive.size is None else -(-archive.size // BLOCK), "MiB")
    try:
        with response, whole_file(path) as file:
            for block in _blocks(response.read, failure):
                file.write(block)
                meter.advance()
            if getattr(response, "length", None):  # bytes that were promised and did not come
                raise failure(EOFError("the connection broke"))
    finally:
        meter.close()


def _blocks(read: Callable[[int], bytes], failure: Callable[[Exception], UserError]) -> Iterator[bytes]:
    """What `read` gives, to its end; its errors are told apart from those of writing."""
    try:
        while block := read(BLOCK):
            yield block
    except UNREADABLE as error:
        raise failure(error) from None


def _check(path: Path, archive: Archive) -> None:
    """Raises UserError where a file is not the archive that was published."""
    size = path.stat().st_size
    if archive.size not in (None, size):
        raise UserError(
            f"{path}: {size:,} bytes, but the published archive has {archive.size:,}; get it again from {archive.url}"
        )
    if archive.checksum:
        algorithm, _, expected = archive.checksum.partition(":")
        with open(path, "rb") as file:
            found = hashlib.file_digest(file, algorithm).hexdigest()
        if found != expected:
            raise UserError(
                f"{path}: {size:,} bytes with {algorithm} {found}, but the published archive has {expected}; "
                f"get it again from {archive.url}"
            )
