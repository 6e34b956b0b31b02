"""Metrics of a run as TensorBoard events, if the tensorboard package is installed; torch is not needed."""

from __future__ import annotations

import importlib.util
import os
import secrets
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from velocirl.engine.disk.confined import ConfinedPath
from velocirl.engine.disk.files import plain_handle

FILE_VERSION = "brain.Event:2"  # the first record that readers of event files expect


def available() -> bool:
    """Return whether the tensorboard package is installed."""
    return importlib.util.find_spec("tensorboard") is not None


class EventWriter:
    """New file of scalar events. If a run resumes at a step, readers drop later events of earlier files."""

    def __init__(self, directory: str | Path | ConfinedPath, resumed_at: int | None = None) -> None:
        if not available():
            raise ModuleNotFoundError("TensorBoard events need the tensorboard package: pip install tensorboard")
        # Imported here: it takes a third of a second.
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.record_writer import RecordWriter

        self._events: Any = event_pb2
        self._summaries: Any = summary_pb2
        place = ConfinedPath.of(directory)
        place.make_directory()
        # Readers read the files of a directory in the order of their names.
        file = place / f"events.out.tfevents.{time.time_ns():020d}.{secrets.token_hex(4)}"
        self.path = file.path
        handle = plain_handle(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        self._records = RecordWriter(open(handle, "wb"))  # noqa: PTH123, SIM115 - a descriptor, closed by close()
        self._write(file_version=FILE_VERSION)
        if resumed_at is not None:
            started = self._events.SessionLog(status=self._events.SessionLog.START)
            self._write(step=resumed_at + 1, session_log=started)
        self.flush()

    def add(self, step: int, row: Mapping[str, float | None]) -> None:
        """Write the metrics of a step; missing ones are omitted."""
        values = [
            self._summaries.Summary.Value(tag=name, simple_value=float(figure))
            for name, figure in row.items()
            if figure is not None
        ]
        self._write(step=step, summary=self._summaries.Summary(value=values))

    def flush(self) -> None:
        """Make the events written so far visible to readers."""
        self._records.flush()

    def close(self) -> None:
        """Write what is left and close the file."""
        self._records.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _write(self, **fields: Any) -> None:
        self._records.write(self._events.Event(wall_time=time.time(), **fields).SerializeToString())
