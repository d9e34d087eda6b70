"""The log for TensorBoard: event files in the model folder's subfolder tensorboard/, one file for each process.

This module does not use tf.summary, because that needs the package tensorboard, which TensorFlow no longer installs.
Event files are TFRecord files of `Event` messages. TensorFlow can write them without that package.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import tensorflow as tf
from tensorflow.compat.v1 import Event, SessionLog, Summary, SummaryMetadata

from t2t_repro.errors import UserError

FOLDER = "tensorboard"
PREFIX = "events.out.tfevents."
"""Prefix of the event files' names. TensorBoard reads all files with "tfevents" in the name, sorted by name."""


class TensorBoardLog:
    """Writes events for TensorBoard, which can read each event as soon as it is written.

    Args:
        folder: model folder.
        start: step from which the run continues. TensorBoard no longer shows the later steps that an earlier process
            logged. If `start` is 0, TensorBoard shows nothing that was logged before.

    Raises:
        UserError: if the file cannot be written. Every method raises it too.
    """

    def __init__(self, folder: str | Path, start: int) -> None:
        subfolder = Path(folder) / FOLDER
        numbers = [int(path.suffix[1:]) for path in subfolder.glob(PREFIX + "[0-9]" * 5)]
        self._path = subfolder / f"{PREFIX}{max(numbers, default=0) + 1:05d}"
        try:
            subfolder.mkdir(parents=True, exist_ok=True)
            self._writer = tf.io.TFRecordWriter(str(self._path))
        except (OSError, tf.errors.OpError) as error:
            raise self._unwritable(error) from None
        self._write(Event(file_version="brain.Event:2"))
        # When TensorBoard reads a START event, it drops all points of that event's step and of later steps.
        # TensorBoard's faster reader ignores START. With that reader, each new point drops the points of the same tag
        # that have the same step or a later one.
        self._write(Event(step=start + 1 if start else 0, session_log=SessionLog(status=SessionLog.START)))

    def scalars(self, step: int, values: Mapping[str, float]) -> None:
        """Adds a point at `step` to the curve of each name in `values`, e.g. {"train_loss": 1.2}."""
        self._write_values(step, [Summary.Value(tag=tag, simple_value=value) for tag, value in values.items()])

    def text(self, step: int, tag: str, markdown: str) -> None:
        """Logs a Markdown text under the name `tag`."""
        metadata = SummaryMetadata(plugin_data=SummaryMetadata.PluginData(plugin_name="text"))
        self._write_values(step, [Summary.Value(tag=tag, metadata=metadata, tensor=tf.make_tensor_proto(markdown))])

    def image(self, step: int, tag: str, png: bytes, width: int, height: int) -> None:
        """Logs a PNG picture of `width` x `height` pixels under the name `tag`."""
        image = Summary.Image(encoded_image_string=png, width=width, height=height)
        self._write_values(step, [Summary.Value(tag=tag, image=image)])

    def _write_values(self, step: int, values: list[Summary.Value]) -> None:
        self._write(Event(step=step, summary=Summary(value=values)))

    def _write(self, event: Event) -> None:
        event.wall_time = time.time()
        try:
            self._writer.write(event.SerializeToString())
            self._writer.flush()
        except tf.errors.OpError as error:
            raise self._unwritable(error) from None

    def _unwritable(self, error: Exception) -> UserError:
        # TensorFlow's message is "PATH; REASON".
        reason = getattr(error, "strerror", None) or str(error).rpartition("; ")[2]
        return UserError(f"{self._path}: cannot be written ({reason}); free space, then run the same command again")
