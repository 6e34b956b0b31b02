"""Frame storage of a replay buffer on a device, and frame stacking; see `buffers.frames`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.frames import final_at, frame_at, step_at
from velocirl.buffers.frames_converted import edge_places, final_places, to_frames
from velocirl.buffers.records import GOES_ON, LOST, TRUNCATED, Frames
from velocirl.buffers.replay import FILLED, PLACE
from velocirl.engine.disk.saved import named, within
from velocirl.engine.targets.launching import Work
from velocirl.program.rows.frames import (
    NONE,
    Shown,
    Stacks,
    Store,
    drop,
    find_drawn,
    place_frames,
    room_of,
    see_ahead,
    see_now,
    strips_of,
    sum_dropped,
)  # fmt: skip
from velocirl.program.task import Task

AT_ONCE = 2**16  # frames sent to a device in one transfer


def make_stacks(device: Any, frames: Any, kind: Frames, table: Any, rows: int, copies: int, around: int) -> Stacks:
    """Allocate `Stacks` for `rows` observations; another function finds their frames."""
    newest, before, age = (device.zeros(rows, dtype=np.int64) for _ in range(3))
    return Stacks(frames, newest, before, age, device.put(table), kind.stack, copies, around)


class FrameMemory:
    """Frames of a ring of records: written at each step, looked up for sampled records."""

    def __init__(self, device: Any, task: Task) -> None:
        assert task.frames is not None  # noqa: S101 - only then it is made
        self.device, self.room = device, room_of(task.frames, task.source, task.config)
        self._table, self._factor = task.encoding.table, task.encoding.pixel_factor
        self._senders: tuple[Callable[[], None], ...] = ()
        self._always_whole = task.source.native is not None  # no record is ever lost
        zeros, copies, batch = device.zeros, self.room.copies, task.config.effective_batch_size
        frames = zeros(self.room.rows, self.room.size, dtype=np.uint8)
        into, ending, cuts, lost = (zeros(copies, dtype=np.int64) for _ in range(4))
        owners = zeros(copies, self.room.finals, dtype=np.int64)
        self._store = Store(frames, zeros(copies, dtype=np.int32), into, ending, cuts, owners, lost)
        self.inputs = zeros(copies, task.encoding.inputs)  # inputs of the acting network
        around = self.room.groups * copies
        self.now, self.after = (
            make_stacks(device, frames, task.frames, self._table, batch, copies, around) for _ in range(2)
        )
        self._forget()

    def finds(self, places: Any, drawn: Any) -> Work:
        """Return the work that finds the frames of a sampled record."""
        return Work(find_drawn, (places, drawn, self.now, self.after, self.room))

    def bind(self, places: Any, levels: range, observation: Any, final: Any, *, on_host: bool) -> None:
        """Bind the observation arrays that frames are read from; `levels` are those of the priority tree."""
        self._sources = observation, final
        if on_host:
            (observation, send), (final, send_final) = (self.device.mirror(one) for one in self._sources)
            self._senders = send, send_final
        self._shown = shown = Shown(observation, final, self.device.put(self._table), self.inputs)
        room, store, launch = self.room, self._store, self.device.launch
        strip = self.device.strip(room.size)
        strips = room.copies * room.stack * strips_of(room.size, strip)
        self._see_now = launch([Work(see_now, (shown, places, store, room, strip))], strips)
        self._place = launch([Work(place_frames, (places, store, room))], room.copies)
        self._see_ahead = launch([Work(see_ahead, (shown, store, room, strip))], strips)
        self._drop = []
        if not self._always_whole and len(levels) > 0:
            works = [(0, drop), *((level, sum_dropped) for level in levels)]
            self._drop = [(level, launch([Work(one, (places, store))], room.copies)) for level, one in works]

    def begin(self) -> None:
        """Read the observations before the first step of an iteration."""
        self._send()
        self._see_now(0)

    def keep(self) -> None:
        """Store the frames of a recorded step, before the ring's counts advance."""
        self._place(0)
        for level, run in self._drop:
            run(level)
        self._send()
        self._see_ahead(0)

    def break_off(self, which: slice) -> None:
        """Reset the frame age of some environments: their next observations follow no stored frame."""
        age = self.device.fetch(self._store.age)
        age[which] = 0
        self.device.store(self._store.age, age)

    def _send(self) -> None:
        """Send the observations of environments on the host to the device."""
        for send in self._senders:
            send()

    # Saved state ------------------------------------------------------------------------------------------------------

    def observations(self, counts: NDArray[np.int64], first: int, stop: int) -> NDArray[np.uint8]:
        """Return the newest frame of each record from `first` to `stop`."""
        places = np.arange(first, stop)
        rows = frame_at(self.room, step_at(counts, self.room, places), places % self.room.copies)
        return self.device.fetch_rows(self._store.frames, rows)

    def state(self, counts: NDArray[np.int64]) -> dict[str, NDArray[Any]]:
        """Return the frames outside of records: before the oldest, after the newest, and of truncated episodes."""
        cuts = self._count_cuts()
        return {
            "edges": self.device.fetch_rows(self._store.frames, edge_places(self.room, counts)),
            "finals": self.device.fetch_rows(self._store.frames, final_places(self.room, cuts)),
            "cuts": cuts,
        }

    def _count_cuts(self) -> NDArray[np.int64]:
        """Return the number of truncated episodes of each environment, (copies,)."""
        return self.device.fetch(self._store.cuts)

    def converted(self, state: Mapping[str, Any], kind: np.dtype[Any]) -> Mapping[str, Any]:
        """Return the state with frames; whole observations in its records are converted."""
        if "memory.edges" in state:
            return state
        return {**state, **named("memory", to_frames(within("memory", state), self.room, kind, self._factor))}

    def load(
        self, rows: NDArray[Any], counts: NDArray[np.int64], state: Mapping[str, NDArray[Any]], *, episodes_begin: bool
    ) -> None:
        """Continue from a saved state and its frames; with `episodes_begin`, unfinished episodes are truncated."""
        room, store, device = self.room, self._store, self.device
        if counts[FILLED] == 0:
            self._forget()
            return
        cuts = state["cuts"].copy()
        used = final_places(self.room, cuts)
        if len(state["finals"]) != len(used) or (rows["final"] >= room.finals).any():
            raise ValueError(
                "the memory of the state is of an environment with another time limit, whose last frames do not fit"
                " here: load it with the same environment"
            )
        device.store_rows(store.frames, used, state["finals"])
        device.store_rows(store.frames, edge_places(self.room, counts), state["edges"])
        places = np.arange(counts[FILLED])
        written = frame_at(room, step_at(counts, room, places), places % room.copies)
        for first in range(0, len(written), AT_ONCE):
            part = written[first : first + AT_ONCE]
            device.store_rows(store.frames, part, state["observation"][first : first + len(part)])
        owners = np.full((room.copies, room.finals), NONE, np.int64)
        whole = np.flatnonzero(rows["ended"][: counts[FILLED]] == TRUNCATED)
        owners[whole % room.copies, rows["final"][whole]] = whole
        newest = (counts[PLACE] - room.copies + np.arange(room.copies)) % room.capacity
        if episodes_begin:
            self._cut_off(rows, newest, owners, cuts, state["edges"][-room.copies :])
        age = np.minimum(rows["age"][newest] + 1, room.stack - 1)
        device.store(store.age, np.where(rows["ended"][newest] == GOES_ON, age, 0))
        device.store(store.cuts, cuts)
        device.store(store.owners, owners)

    def _cut_off(self, rows: Any, newest: Any, owners: Any, cuts: Any, seen: NDArray[np.uint8]) -> None:
        """Truncate the unfinished episodes; the frames seen last become their final frames."""
        for copy, place in enumerate(newest):
            if rows["ended"][place] != GOES_ON:
                continue
            final = int(cuts[copy] % self.room.finals)
            if (owner := owners[copy, final]) != NONE:
                rows["ended"][owner] = LOST
            rows["ended"][place], rows["final"][place] = TRUNCATED, final
            owners[copy, final] = place
            cuts[copy] += 1
            self.device.store_rows(
                self._store.frames, np.array([final_at(self.room, copy, final)]), seen[copy : copy + 1]
            )

    def _forget(self) -> None:
        """Reset to empty; the frames before the first step come with its observation."""
        store, device = self._store, self.device
        device.fill(store.age, self.room.stack - 1)
        device.fill(store.cuts, 0)
        device.fill(store.owners, NONE)
