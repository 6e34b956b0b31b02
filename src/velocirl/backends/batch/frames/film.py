"""Frames of a rollout on a device: stored step by step, stacked for the network; see `program.rows.frames`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.frames.frames import make_stacks
from velocirl.backends.batch.lowering import Bound
from velocirl.buffers.frames import frame_of
from velocirl.buffers.records import Frames
from velocirl.engine.targets.launching import Work
from velocirl.program.rows.frames import (
    Film,
    Shown,
    begin_age,
    cut_film,
    find_cut,
    grow_older,
    load_strip,
    see_first,
    see_next_frame,
    strips_of,
)  # fmt: skip
from velocirl.program.rows.recording import Cuts, Rollout
from velocirl.program.task import Task


def make_film(device: Any, frames: Frames, horizon: int, copies: int, cuts: int) -> Film:
    """Allocate the frames of a rollout, and the final frames of up to `cuts` truncated episodes."""
    steps = (frames.stack + horizon) * copies
    return Film(device.zeros(steps + cuts, frames.size, dtype=np.uint8), frames.stack, copies, steps)


class Filming:
    """Operations on frames during a rollout."""

    def __init__(
        self, task: Task, device: Any, film: Film, shown: Shown, final_mask: Any, rollout: Rollout, cuts: Cuts
    ) -> None:
        assert task.frames is not None  # noqa: S101 - only then it is made
        self._device, self._film, self._factor = device, film, float(task.encoding.pixel_factor)
        places = cuts.time.shape[0] * cuts.time.shape[1]
        strip = device.strip(task.frames.size)
        strips = task.frames.stack * strips_of(task.frames.size, strip)  # strips per observation
        count = film.copies * strips
        see_frames = device.launch([Work(see_first, (shown, film, strip))], count)
        see_next_frames = device.launch([Work(see_next_frame, (shown, rollout, cuts, film, strip))], count)
        self.at_first: Bound = [Work(begin_age, (rollout, film)), see_frames]
        self.after_a_step: Bound = [Work(grow_older, (rollout, film)), see_next_frames]
        self.at_the_end: Bound = [Work(cut_film, (final_mask, rollout, cuts))] if places else []
        if places:
            table = task.encoding.table
            self._stacks = stacks = make_stacks(
                device, film.frames, task.frames, table, places, film.copies, film.cuts_from
            )
            self._find_cuts = device.launch([Work(find_cut, (rollout, cuts, film, stacks))], places)
            if len(cuts.inputs) > 0:
                load = Work(load_strip, (stacks, cuts.inputs, 0, 1, strip))
                self._load_cuts = device.launch([load], places * strips)

    def load_cuts(self) -> None:
        """Load the network inputs of the final observations for all possible truncations."""
        self._find_cuts(0)
        self._load_cuts(0)

    def read_cuts(self, places: NDArray[np.int64]) -> Any:
        """Return the network inputs (places, inputs) of the final observations of truncations at these indices."""
        self._find_cuts(0)
        stacks, film, fetch = self._stacks, self._film, self._device.fetch
        newest, before, age = (fetch(one)[places].tolist() for one in (stacks.newest, stacks.before, stacks.age))
        rows = [
            frame_of(newest[p], before[p], age[p], back, film.copies, film.cuts_from)
            for p in range(len(places))
            for back in range(film.stack - 1, -1, -1)
        ]
        return self._device.numbers(film.frames, np.array(rows), self._factor).reshape(len(places), -1)
