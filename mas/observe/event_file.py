"""One file of TensorBoard events. Its import takes seconds, so it is imported where a run writes."""

import time
from collections.abc import Mapping
from pathlib import Path

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


class EventFile:
    """One TensorBoard file. TensorBoard's own writer has a thread, whose failures come late and beside the caller."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("xb")
        self._records = RecordWriter(self._file)
        try:
            self._add(Event(wall_time=time.time(), file_version="brain.Event:2"))
        except BaseException:  # the disk is full
            self.close()
            raise

    def add_values(self, step: int, values: Mapping[str, float | None]) -> None:
        """The flat metrics of a step; those that are None are left out."""
        found = [Summary.Value(tag=name, simple_value=value) for name, value in values.items() if value is not None]
        self._add(Event(wall_time=time.time(), step=step, summary=Summary(value=found)))

    def add_start(self, step: int) -> None:
        """From this step on TensorBoard hides what earlier files say."""
        self._add(Event(wall_time=time.time(), step=step, session_log=SessionLog(status=SessionLog.START)))

    def close(self) -> None:
        self._file.close()

    def _add(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
        self._records.flush()
