"""A file system that only Beam can read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from apache_beam.io.filesystem import MatchResult
from apache_beam.io.localfilesystem import LocalFileSystem


class Bucket(LocalFileSystem):
    """The file system of URLs bucket://b/NAME. Its files are those in the folder `root`."""

    root = ""

    @classmethod
    def scheme(cls) -> str:
        return "bucket"

    def join(self, basepath: str, *paths: str) -> str:
        return "/".join([basepath.rstrip("/"), *paths])

    def split(self, path: str) -> tuple[str, str]:
        folder, _, name = path.rpartition("/")
        return folder, name

    def match(self, patterns: list[str], limits: list[int] | None = None) -> list[MatchResult]:
        results = super().match(local(patterns), limits)
        for result in results:
            for metadata in result.metadata_list:
                metadata.path = metadata.path.replace(self.root, "bucket://b")
        return results


def local(value: Any) -> Any:
    """Returns local paths for one URL or several."""
    return (
        [local(path) for path in value]
        if isinstance(value, list)
        else value.replace("bucket://b", Bucket.root)
    )


def with_local_paths(name: str, paths: int) -> Callable[..., Any]:
    """Returns a method of `LocalFileSystem` that takes URLs as its first `paths` arguments."""
    method = getattr(LocalFileSystem, name)
    return lambda self, *arguments, **named: method(
        self, *map(local, arguments[:paths]), *arguments[paths:], **named
    )


for name in ("exists", "checksum", "size", "last_updated", "create", "open", "mkdirs", "delete"):
    setattr(Bucket, name, with_local_paths(name, 1))
for name in ("rename", "copy"):
    setattr(Bucket, name, with_local_paths(name, 2))


@pytest.fixture
def bucket(tmp_path: Path) -> Callable[[str], str]:
    """Returns the URL of a name in a file system that only Beam can read, whose files are in the
    folder "bucket".
    """
    Bucket.root = str(tmp_path / "bucket")
    Path(Bucket.root).mkdir()
    return lambda name: f"bucket://b/{name}"
