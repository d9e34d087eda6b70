"""Files in any file system that Beam can reach: lists, texts, whole files, and copies of model
folders.
"""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from apache_beam.io.filesystem import BeamIOError, CompressionTypes
from apache_beam.io.filesystems import FileSystems

from t2t_repro.checkpoints.model_folder import ModelFolder, split_paths
from t2t_repro.errors import UserError
from t2t_repro.files import textfile


def _open(path: str) -> Any:
    try:
        return FileSystems.open(path, compression_type=CompressionTypes.UNCOMPRESSED)
    except ValueError as error:  # Beam knows no file system for the path
        raise UserError(f"{path}: {error}") from None


textfile.url_opener = _open


def read_lines(path: str) -> Iterator[str]:
    """Yields the lines of a file as `textfile.read_lines` does, in any file system that Beam can
    read.
    """
    with _user_errors(f"{path}: cannot be read"):
        yield from textfile.read_lines(path)


def write(path: str, lines: Sequence[str]) -> None:
    """Writes lines to a file in any file system that Beam can write. If this fails, no partial file
    remains.
    """
    folder, name = FileSystems.split(path)
    temporary = FileSystems.join(folder, f".{name}.{uuid.uuid4().hex}")
    with _user_errors(f"{path}: cannot be written"):
        try:
            with FileSystems.create(
                temporary, compression_type=CompressionTypes.UNCOMPRESSED
            ) as file:
                file.write("".join(f"{line}\n" for line in lines).encode("utf-8"))
            FileSystems.rename([temporary], [path])
        except BaseException:
            with contextlib.suppress(OSError, BeamIOError):
                FileSystems.delete([temporary])
            raise


@contextlib.contextmanager
def _user_errors(problem: str) -> Iterator[None]:
    """Raises UserError in place of the errors of files, because only UserError is found in Beam's
    own errors.
    """
    try:
        yield
    # ValueError: Beam knows no file system for the path.
    except (OSError, BeamIOError, ValueError) as error:
        reason = str(getattr(error, "strerror", None) or error)
        raise UserError(f"{problem} ({' '.join(reason.split())})") from None


def match(pattern: str) -> list[str]:
    """Returns the sorted paths of the files that match a pattern such as "x-*.en".

    Raises UserError if Beam knows no file system for the pattern, e.g. for gs:// without the
    package apache-beam[gcp].
    """
    try:
        (result,) = FileSystems.match([pattern])
    except BeamIOError:
        return []
    except ValueError as error:
        raise UserError(f"{pattern}: {error}") from None
    return sorted(metadata.path for metadata in result.metadata_list)


def states(paths: Sequence[str]) -> list[tuple[Any, ...]]:
    """Returns for each file its path, and its size and time of change, or if it is not local, its
    checksum.
    """
    facts = list[tuple[Any, ...]]()
    for path in paths:
        with _user_errors(f"{path}: cannot be read"):
            if "://" in path:
                facts.append((path, FileSystems.checksum(path)))
            else:
                stat = os.stat(path)
                facts.append((path, stat.st_size, stat.st_mtime_ns))
    return facts


def code_hash(folder: str) -> str:
    """Returns a hash of the Python modules in a folder, "" if `folder` is ""."""
    if not folder:
        return ""
    digests = [
        (str(path.relative_to(folder)), hashlib.sha256(path.read_bytes()).hexdigest())
        for path in sorted(Path(folder).rglob("*.py"))
    ]
    return hashlib.sha256(repr(digests).encode()).hexdigest()


def local_models(output_dirs: str, checkpoint_paths: str) -> tuple[str, str]:
    """Returns the values of --output_dir and --checkpoint_path, with copies of model folders that
    are not local.

    A checkpoint of a copied folder is a path in the folder, such as "best". Raises UserError if a
    folder is missing.
    """
    if "://" not in output_dirs or Path(output_dirs).is_dir():
        return output_dirs, checkpoint_paths
    folders = [part.strip() for part in output_dirs.split(",")]
    checkpoints = split_paths(checkpoint_paths) if checkpoint_paths else [""] * len(folders)
    if len(checkpoints) != len(folders):
        return output_dirs, checkpoint_paths  # open_folders says what is wrong
    for place, (folder, checkpoint) in enumerate(zip(folders, checkpoints, strict=True)):
        if "://" in folder:
            folders[place], checkpoints[place] = _copied(folder, checkpoint)
    return ",".join(folders), ",".join(checkpoints)


def model_paths(
    output_dirs: str, folders: Sequence[ModelFolder], checkpoints: Sequence[str]
) -> tuple[str, str]:
    """Returns paths of the model folders and the checkpoints, which all workers can give to
    `local_models`.

    `output_dirs` is the value of --output_dir, and the others are what `open_folders` returned for
    its local copies.
    """
    names = [str(folder.path) for folder in folders]
    if "://" in output_dirs:
        names = [name.strip() for name in output_dirs.split(",")]
    shared_folders = []
    shared_checkpoints = []
    for name, folder, checkpoint in zip(names, folders, checkpoints, strict=True):
        if "://" in name:
            shared_folders.append(name)
            shared_checkpoints.append(os.path.relpath(checkpoint, folder.path))
        else:
            shared_folders.append(os.path.abspath(name))
            shared_checkpoints.append(os.path.abspath(checkpoint))
    return ",".join(shared_folders), ",".join(shared_checkpoints)


def export_version(folder: str) -> tuple[str, str]:
    """Returns the path of the latest version in a folder of exports, or the folder if it is a
    version, and its hash.
    """
    folder = folder.rstrip("/")
    found = match(f"{folder}/saved_model.pb") or match(f"{folder}/*/saved_model.pb")
    visible = [path for path in found if "/." not in path.removeprefix(folder)]
    versions = [path.removesuffix("/saved_model.pb") for path in visible]
    if not versions:
        raise UserError(
            f"--export_dir={folder}: has no SavedModel; name a folder that t2t-exporter wrote"
        )
    version = max(versions, key=lambda path: (len(path), path))  # the names of versions are numbers
    with _user_errors(f"{version}: cannot be read"), _open(f"{version}/fingerprint.pb") as file:
        return version, hashlib.sha256(file.read()).hexdigest()


@functools.cache
def local_export(version: str) -> str:
    """Returns the path of a version, or of a local copy of it, which a process makes only once."""
    if "://" not in version:
        return version
    copy = _new_folder()
    _fetch(version, _names_in(version), copy)
    return str(copy)


@functools.cache
def _copied(folder: str, checkpoint: str) -> tuple[str, str]:
    """Returns the paths of a local copy of a model folder and of its checkpoint, which a process
    makes only once.
    """
    copy = _new_folder()
    names = _names_in(folder)
    if not names:
        raise UserError(f"--output_dir={folder}: no such folder; name a model folder")
    unneeded = re.compile(r"(tensorboard|export)/|.*\.data-")
    _fetch(folder, [name for name in names if not unneeded.match(name)], copy)
    path = Path(ModelFolder(str(copy)).checkpoint(checkpoint))
    if not path.is_relative_to(copy):
        raise UserError(
            f"--checkpoint_path={checkpoint}: give the path of a checkpoint in {folder}, such as "
            "best"
        )
    chosen = str(path.relative_to(copy))
    _fetch(folder, [name for name in names if name.startswith(f"{chosen}.data-")], copy)
    return str(copy), str(copy / chosen)


def _names_in(folder: str) -> list[str]:
    """Returns the paths of all files in a folder, relative to it."""
    start = f"{folder.rstrip('/')}/"
    return [path.removeprefix(start) for path in match(f"{start}**")]


def _fetch(folder: str, names: Sequence[str], copy: Path) -> None:
    """Copies files of a folder to a local folder."""
    for name in names:
        source = f"{folder.rstrip('/')}/{name}"
        target = copy / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            _user_errors(f"{source}: cannot be copied"),
            _open(source) as file,
            open(target, "wb") as local,
        ):
            shutil.copyfileobj(file, local)


def _new_folder() -> Path:
    return Path(tempfile.mkdtemp(dir=_temporary_folder().name))


@functools.cache
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    """Returns the folder of copies, which is deleted when the process ends."""
    return tempfile.TemporaryDirectory(prefix="t2t_models_")
