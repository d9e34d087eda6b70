"""Tests parts of the Beam pipeline: reading batches of lines, and naming and writing shards."""

import contextlib
import gzip
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from disks import largest_file
from t2t_repro.beam.pipeline import (
    BeamJob,
    LineBatch,
    input_files,
    read_batches,
    same_run,
    shard_name,
    shards,
    write,
)
from t2t_repro.hparam import DecodeHParams
from user_errors import user_error

LINES = ["one", "", "x\ry\u0085z\u2028w", " two ", "", "Übergröße \U0001f100", "last"]


@pytest.mark.parametrize("name", ["x.en", "x.en.gz"])
def test_only_newlines_end_lines_and_batches_know_their_line_numbers(
    tmp_path: Path, name: str
) -> None:
    # The file has a byte order mark, a line that ends with "\r\n", and no newline at its end.
    content = b"\xef\xbb\xbf" + "\n".join([*LINES[:4], "\r", *LINES[5:]]).encode()
    path = tmp_path / name
    path.write_bytes(gzip.compress(content) if name.endswith(".gz") else content)
    assert list(read_batches((2, str(path)), 3)) == [
        LineBatch(str(path), 2, start, LINES[start : start + 3]) for start in (0, 3, 6)
    ]
    assert list(read_batches((0, str(path)), 7)) == [LineBatch(str(path), 0, 0, LINES)]


def test_a_shard_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "x-0"
    write(str(path), ["one"])
    with largest_file(10):
        assert "x-0: cannot be written" in user_error(write, str(path), LINES)
    assert [shard.read_text() for shard in tmp_path.iterdir()] == ["one\n"]


def test_files_and_shards_are_found_by_pattern_in_the_order_of_their_names(tmp_path: Path) -> None:
    for name in ("x-2.en", "x-10.en", "x-1.en.gz", "a[1].en", "a1.en"):
        (tmp_path / name).touch()
    assert input_files(str(tmp_path / "x-*")) == [
        str(tmp_path / name) for name in ("x-1.en.gz", "x-10.en", "x-2.en")
    ]
    assert input_files(str(tmp_path / "a[1].en")) == [str(tmp_path / "a[1].en")]
    assert (
        input_files(str(tmp_path / "none*")) == input_files(str(tmp_path / "nowhere" / "x")) == []
    )
    positions = [(0, 0), (0, 90), (0, 1000), (2, 0), (2, 10**9), (10, 0)]
    names = [
        shard_name(f"{tmp_path}/y", LineBatch("", number, line, [])) for number, line in positions
    ]
    for name in (*reversed(names), f"{tmp_path}/y-old", f"{names[0]}.gz", f"{tmp_path}/y-1-2"):
        Path(name).touch()
    assert shards(f"{tmp_path}/y") == names


def test_segments_of_a_file_are_lines_and_a_line_without_end_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.sgm.gz"
    path.write_bytes(
        gzip.compress(b'<doc docid="a"><seg id="1">one\n two</seg> <SEG id="2">three</SEG></doc>')
    )
    assert list(read_batches((0, str(path)), 1)) == [
        LineBatch(str(path), 0, start, [text]) for start, text in enumerate(("one two", "three"))
    ]
    (tmp_path / "x").write_bytes(b"one\n" + b"a" * (1 << 20) + b"b\n")
    assert f"{tmp_path}/x:2: a line of more than" in user_error(
        list, read_batches((0, f"{tmp_path}/x"), 1)
    )


def test_a_run_resumes_only_with_the_same_input_model_and_settings(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("one\n")
    job = BeamJob("m", "m/model.ckpt-1", DecodeHParams(), f"{tmp_path}/y", resume=True)
    settings = tmp_path / "y.settings"
    shard = tmp_path / "y-00000-000000000000"
    models = [("model",)]

    def begin(
        job: BeamJob = job,
        batch_lines: int = 2,
        source: str = "x",
        models: Sequence[tuple] = models,
    ) -> None:
        """Begins a run that is interrupted at once."""
        with (
            contextlib.suppress(KeyboardInterrupt),
            same_run(job, models, [str(tmp_path / source)], batch_lines),
        ):
            raise KeyboardInterrupt

    def refused(words: str = "belongs to another run", **options: Any) -> None:
        assert words in user_error(begin, **options)

    begin()
    assert not settings.exists()  # no shard was written
    settings.write_text('{"decode": 1}\n')
    refused(f"{settings} exists")
    assert settings.read_text() == '{"decode": 1}\n'
    settings.unlink()
    shard.touch()
    refused()
    refused("is also an input (--decode_from_file)", source=shard.name)
    shard.unlink()
    with same_run(job, models, [f"{tmp_path}/x"], 2):
        shard.touch()
    begin(replace(job, decode_hparams=DecodeHParams(batch_size=9), output_dir="moved"))
    (tmp_path / "x").rename(tmp_path / "moved")
    begin(source="moved")
    refused("continue with --resume", job=replace(job, resume=False), source="moved")
    for changes in (
        {"precision": "bfloat16"},
        {"long_lines": "error"},
        {"decode_hparams": DecodeHParams(alpha=1)},
    ):
        refused(job=replace(job, **changes), source="moved")
    refused(batch_lines=3, source="moved")
    refused(models=[("other",)], source="moved")
    (tmp_path / "x").write_text("two\n")
    refused()
