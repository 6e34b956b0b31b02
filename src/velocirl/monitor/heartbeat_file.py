"""The heartbeat of a run: a small file that says how training stands at this moment, for whoever looks on."""

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
UNFINISHED = ".heartbeat.new"  # what is being written; only who holds the run writes it
MOST_BYTES = 64 * 1024
MOST_NAMES = 64  # phases or gauges
LONGEST_NAME = 64  # characters
MOST_SAMPLES = 120
LONGEST_REASON = 200  # characters of what is wrong with a file, which may quote it

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=LONGEST_NAME)]
Count = Annotated[int, msgspec.Meta(ge=0, le=10**18)]
Figure = Annotated[float, msgspec.Meta(ge=-1e300, le=1e300)]
Figures = Annotated[dict[Name, Figure], msgspec.Meta(max_length=MOST_NAMES)]


class DamagedHeartbeatError(ValueError):
    """A heartbeat that cannot be read; the message names file and fault."""


class Sample(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """One moment of the last minutes."""

    steps_per_second: Amount
    cpu_percent: Amount
    memory_bytes: Bytes


class HeartbeatState(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How training stands: the contents of heartbeat.json."""

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
    gauges: Figures  # what the machine says of itself: queues, drops, waiting
    history: Annotated[list[Sample], msgspec.Meta(max_length=MOST_SAMPLES)]
    compiling: bool = False  # training has not begun: what it needs is compiled, or loaded

    @property
    def progress(self) -> float:
        """The share that is done."""
        return min(max((self.steps - self.start) / max(self.total - self.start, 1), 0.0), 1.0)

    @property
    def seconds_left(self) -> float | None:
        """How long it will take by its speed of now; None where it does not move or has ended."""
        if self.status != "running" or self.steps_per_second <= 0.0:
            return None
        return max(self.total - self.steps, 0) / self.steps_per_second


def write_heartbeat(directory: Path | ConfinedPath, state: HeartbeatState) -> None:
    """Write a heartbeat whole: a reader finds the old one or the new one. It is not forced to the disk."""
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
    """The heartbeat of the run in a directory, None where there is none yet; anything else is refused."""
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
