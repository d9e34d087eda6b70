"""Tests that TensorBoard's own reader reads the event files."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.plugin_event_accumulator import EventAccumulator as PluginEventAccumulator
from tensorboard.util.tensor_util import make_ndarray

from disks import largest_file
from t2t_repro.training.tensorboard_log import FOLDER, TensorBoardLog
from user_errors import user_error


def png(shade: int) -> bytes:
    """Returns a grey PNG picture of 3 x 2 pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 3, 2, 8, 0, 0, 0, 0)
    rows = bytes([0, shade, shade, shade]) * 2
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def add(log: TensorBoardLog, step: int, loss: float) -> None:
    """Adds two numbers, a text and a picture of one step to the log."""
    log.scalars(step, {"train/loss": loss, "train/rate": loss / 8})
    log.text(step, "sample", f"**{loss}** | κόκκινο σπίτι")
    log.image(step, "attention", png(int(10 * loss)), 3, 2)


def read(folder: Path, reader: type = PluginEventAccumulator) -> EventAccumulator | PluginEventAccumulator:
    """Returns a TensorBoard reader that has read the event files of a model folder."""
    sizes = {"scalars": 0, "images": 0, "tensors": 0}
    return reader(str(folder / FOLDER), size_guidance=sizes, purge_orphaned_data=True).Reload()


def shown(folder: Path, tag: str = "train/loss") -> list[tuple[int, object]]:
    """Returns the step and value of each point of a tag, as TensorBoard's server would show them."""
    events = read(folder)
    if tag not in events.Tags()["tensors"]:
        return []
    values = [(event.step, make_ndarray(event.tensor_proto)) for event in events.Tensors(tag)]
    return [(step, value.item() if value.ndim == 0 else value.tolist()) for step, value in values]


def files(folder: Path) -> list[Path]:
    return sorted((folder / FOLDER).iterdir())


def test_tensorboard_shows_all_values(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path, 0)
    for step, loss in ((0, 4.5), (10, 4.0)):
        add(log, step, loss)
    log.scalars(10, {"dev/loss": 3.5})
    assert shown(tmp_path) == [(0, 4.5), (10, 4.0)]
    assert shown(tmp_path, "train/rate") == [(0, 0.5625), (10, 0.5)]
    assert shown(tmp_path, "dev/loss") == [(10, 3.5)]
    assert [(step, text.decode()) for step, text in shown(tmp_path, "sample")] == [
        (0, "**4.5** | κόκκινο σπίτι"),
        (10, "**4.0** | κόκκινο σπίτι"),
    ]
    assert shown(tmp_path, "attention") == [(0, [b"3", b"2", png(45)]), (10, [b"3", b"2", png(40)])]
    plugins = {tag: read(tmp_path).SummaryMetadata(tag).plugin_data.plugin_name for tag in ("sample", "train/loss")}
    assert plugins == {"sample": "text", "train/loss": "scalars"}
    assert read(tmp_path).SummaryMetadata("attention").plugin_data.plugin_name == "images"


@pytest.mark.parametrize(("start", "kept"), [(0, 0), (10, 2), (15, 2), (20, 3), (40, 4)])
def test_steps_after_the_last_checkpoint_are_not_shown(start: int, kept: int, tmp_path: Path) -> None:
    steps, log = [0, 10, 20, 30], TensorBoardLog(tmp_path, 0)
    for step in steps:
        add(log, step, 4.0)
    resumed = TensorBoardLog(tmp_path, start)
    expected = [(step, 4.0) for step in steps[:kept]]
    assert shown(tmp_path) == expected
    add(resumed, start + 1, 2.0)
    for tag in ("train/loss", "sample", "attention"):
        assert [step for step, _ in shown(tmp_path, tag)] == [*steps[:kept], start + 1]
    older = read(tmp_path, EventAccumulator)
    assert [point.step for point in older.Scalars("train/loss")] == [*steps[:kept], start + 1]
    assert [point.step for point in older.Images("attention")] == [*steps[:kept], start + 1]


def test_each_process_has_its_own_file_even_within_a_second(tmp_path: Path) -> None:
    for number in range(12):
        TensorBoardLog(tmp_path, number).scalars(number + 1, {"train/loss": float(number)})
    assert len(files(tmp_path)) == 12
    (tmp_path / FOLDER / "events.out.tfevents.1700000000.host.7.0.v2").touch()
    files(tmp_path)[0].unlink()
    TensorBoardLog(tmp_path, 12).scalars(13, {"train/loss": 12.0})
    assert shown(tmp_path) == [(number + 1, float(number)) for number in range(1, 13)]


def test_a_half_written_record_hides_no_other(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path, 0)
    for step in (10, 20):
        log.scalars(step, {"train/loss": 4.0})
    with open(files(tmp_path)[0], "r+b") as file:  # a kill cuts the file inside the last record
        file.truncate(files(tmp_path)[0].stat().st_size - 6)
    assert shown(tmp_path) == [(10, 4.0)]
    TensorBoardLog(tmp_path, 10).scalars(20, {"train/loss": 3.0})
    assert shown(tmp_path) == [(10, 4.0), (20, 3.0)]


def test_a_full_disk_is_reported_and_deletes_nothing(tmp_path: Path) -> None:
    log = TensorBoardLog(tmp_path, 0)
    log.scalars(10, {"train/loss": 4.0})
    path = files(tmp_path)[0]
    with largest_file(path.stat().st_size + 20):
        assert user_error(log.scalars, 20, {"train/loss": 3.0}).startswith(
            f"{path}: cannot be written (File too large)"
        )
    assert shown(tmp_path) == [(10, 4.0)]
    with largest_file(10):
        assert "cannot be written (File too large)" in user_error(TensorBoardLog, tmp_path, 10)
    TensorBoardLog(tmp_path, 10).scalars(20, {"train/loss": 2.0})
    assert shown(tmp_path) == [(10, 4.0), (20, 2.0)]
