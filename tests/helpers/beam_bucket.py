"""A file system that only Beam can read."""

import gc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from apache_beam.io.filesystem import MatchResult
from apache_beam.io.localfilesystem import LocalFileSystem


@pytest.fixture
def bucket(tmp_path: Path) -> Iterator[Callable[[str], str]]:
    """Returns the URL of a name in a file system that only Beam can read, whose files are in the folder "bucket"."""
    root = tmp_path / "bucket"
    root.mkdir()

    class Bucket(LocalFileSystem):
        @classmethod
        def scheme(cls) -> str:
            return "bucket"

        def join(self, basepath: str, *paths: str) -> str:
            return "/".join([basepath.rstrip("/"), *paths])

        def split(self, path: str) -> tuple[str, str]:
            folder, _, name = path.rpartition("/")
            return folder, name

    def local(path: str) -> str:
        return path.replace("bucket://b", str(root))

    for name in ("exists", "checksum", "size", "last_updated", "create", "open", "mkdirs"):
        method = getattr(LocalFileSystem, name)
        setattr(
            Bucket,
            name,
            lambda self, path, *options, _method=method, **named: _method(self, local(path), *options, **named),
        )
    for name in ("rename", "copy"):
        method = getattr(LocalFileSystem, name)
        setattr(
            Bucket,
            name,
            lambda self, old, new, _method=method: _method(self, list(map(local, old)), list(map(local, new))),
        )
    Bucket.delete = lambda self, paths: LocalFileSystem.delete(self, list(map(local, paths)))  # type: ignore[method-assign]

    def found(self: Bucket, patterns: list[str], limits: list[int] | None = None) -> list[MatchResult]:
        results = LocalFileSystem.match(self, list(map(local, patterns)), limits)
        for result in results:
            for metadata in result.metadata_list:
                metadata.path = metadata.path.replace(str(root), "bucket://b")
        return results

    Bucket.match = found  # type: ignore[method-assign]
    yield lambda name: f"bucket://b/{name}"
    del Bucket
    gc.collect()
