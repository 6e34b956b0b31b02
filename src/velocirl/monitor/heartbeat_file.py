"""Heartbeat file of a run: a small file with the current state of training, for monitoring programs."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from velocirl.engine.disk.confined import ConfinedPath
from velocirl.engine.disk.files import parse_json, plain_handle, read_plain
from velocirl.monitor.resource_use import Amount, Bytes, ResourceUse
from velocirl.monitor.words import printable

NAME = "heartbeat.json"
UNFINISHED = ".heartbeat.new"  # the file being written; only the process that holds the run writes it
MOST_BYTES = 64 * 1024
MOST_NAMES = 64  # phases or gauges
LONGEST_NAME = 64  # characters
MOST_SAMPLES = 120
LONGEST_REASON = 200  # characters of a file's problem, which may quote the file

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**18)]
Figure = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Figures = Annotated[dict[Name, Figure], msgspec.Meta(max_length=MOST_NAMES)]


class DamagedHeartbeatError(ValueError):
    """Error for a heartbeat that cannot be read; the message names file and fault."""


class Sample(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One sample of the last minutes."""

    steps_per_second: Amount
    cpu_percent: Amount
    memory_bytes: Bytes


class HeartbeatState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """State of training: the contents of heartbeat.json."""

    format: Literal[1] = 1
    time: Annotated[float, msgspec.Meta(ge=0.0, le=1e11)]  # seconds since 1970
    pid: Count
    status: Literal["running", "finished", "stopped", "failed"]
    steps: Count
    start: Count  # steps when this training began
    total: Count  # steps at its end
    steps_per_second: Amount  # of the last seconds
    mean_return: Figure | None = msgspec.field(name="return")
    phases: Figures  # shares of the time, by path: rollout, rollout/policy
    resources: ResourceUse
    gauges: Figures  # queues, drops, waiting
    history: Annotated[list[Sample], msgspec.Meta(max_length=MOST_SAMPLES)]
    compiling: bool = False  # before training begins, while code is compiled or loaded

    @property
    def progress(self) -> float:
        """The fraction that is done."""
        return min(max((self.steps - self.start) / max(self.total - self.start, 1), 0.0), 1.0)

    @property
    def seconds_left(self) -> float | None:
        """The remaining seconds at the current speed; None if the speed is 0 or the run is not running."""
        if self.status != "running" or self.steps_per_second <= 0.0:
            return None
        return max(self.total - self.steps, 0) / self.steps_per_second


def write_heartbeat(directory: Path | ConfinedPath, state: HeartbeatState) -> None:
    """Write a heartbeat atomically: a reader finds the old one or the new one. It is not synced to disk."""
    unfinished = ConfinedPath.of(directory) / UNFINISHED
    unfinished.remove()  # left by a kill
    handle = plain_handle(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
    try:
        content = memoryview(msgspec.json.encode(state))
        while content:
            content = content[os.write(handle, content) :]
        unfinished.rename(NAME)
    except BaseException:
        unfinished.remove()
        raise
    finally:
        os.close(handle)


def read_heartbeat(directory: Path | ConfinedPath) -> HeartbeatState | None:
    """Read the heartbeat of the run in a directory; None if there is none yet. Raises for anything else."""
    path = ConfinedPath.of(directory) / NAME
    try:
        return msgspec.convert(parse_json(read_plain(path, MOST_BYTES)), HeartbeatState)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedHeartbeatError(f"{path} cannot be read: {error.strerror}") from error
    except ValueError as error:
        reason = printable(str(error))[:LONGEST_REASON]
        raise DamagedHeartbeatError(f"{path} is no heartbeat of a run: {reason}") from error
