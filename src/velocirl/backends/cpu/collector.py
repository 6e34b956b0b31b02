"""Rollouts on CPU threads: a block of environments takes all its steps before the next one, and stays cached."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.lowering import Iteration
from velocirl.backends.cpu.networks import forward_unit
from velocirl.buffers.records import narrow, side_by_side
from velocirl.collect.rollouts import RolloutCollector
from velocirl.engine.compiler.columns import Local, Shared, read_only
from velocirl.engine.compiler.counters import allocate
from velocirl.engine.compiler.units import BoundUnit
from velocirl.engine.targets.team import MAX_ITEMS
from velocirl.networks.mlp import ROWS
from velocirl.program.counting.phases import PLACES_OF_TIME
from velocirl.program.iteration import Operations, Rows, walk
from velocirl.program.reducing import Share, shares_of
from velocirl.program.rollout import rollout as rollout_iteration
from velocirl.program.rows.experience import Experience
from velocirl.program.rows.functions import of_index, rollout_functions, value_function

TILE = 6  # rows per tile of a matrix product


def blocks_of(shares: Sequence[Share]) -> NDArray[np.int64]:
    """Cut each share of the environments into blocks of equal size, in whole tiles.

    A row's rounding depends on its position in a block, so blocks depend on the shares, never on the number of threads.
    """
    found = []
    for first, stop in shares:
        count = -(-(stop - first) // ROWS)
        size = -(-(stop - first) // (count * TILE)) * TILE
        found += [(low, min(low + size, stop)) for low in range(first, stop, size)]
    return np.array(found, np.int64)


def items_of(blocks: int) -> NDArray[np.int64]:
    """Group blocks into items that workers claim: one each, or several where there are too many."""
    items = min(blocks, MAX_ITEMS)
    return np.arange(items + 1) * blocks // items


def find_cuts(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """List the truncations whose final observations have to be evaluated; returns their number."""
    cuts, waiting = arguments
    count = 0
    for i in range(first, stop):
        for k in range(cuts.count[i]):
            waiting[count] = i * cuts.time.shape[1] + k
            count += 1
    return count


def load_cut(p, r, t, cuts, waiting, inputs, rows, masks):  # noqa: ARG001 - the first three are those of every index
    """Copy the final observation of a truncated episode to the network's inputs, with its action mask."""
    source, into = cuts.inputs[waiting[p]], inputs[r]
    for j in range(len(source)):
        into[j] = source[j]
    for k in range(masks.shape[1]):
        masks[r, k] = cuts.mask[waiting[p], k]
        rows[r].mask[k] = masks[r, k]


def keep_final_value(p, r, t, cuts, waiting, values, finals):  # noqa: ARG001
    """Store the value of a final observation, from which the truncated step bootstraps."""
    most = cuts.time.shape[1]
    i, k = waiting[p] // most, waiting[p] % most
    for v in range(values.shape[1]):
        finals[i, cuts.time[i, k], v] = values[r, v]


class ThreadedCollector(RolloutCollector):
    """Rollout collector: a fleet in one call for each thread, Gymnasium environments step by step."""

    least_cuts = 1  # compiled code cannot index empty arrays

    def _bind(self, experience: Experience) -> None:
        task, team, fleet = self.task, self.device.team, self.host is None
        collects = rollout_iteration(masked=task.head.masked, normalizes=task.encoding.normalises)
        blocks = blocks_of(shares_of(task.part.copies, task.config.shares))
        items = items_of(len(blocks)) if fleet else np.array([0, len(blocks)])
        self.counters = allocate(team.threads if fleet else 1)
        self._iterations = [
            Iteration(
                collects, self._units(experience, collects), PLACES_OF_TIME, counters, blocks, items,
                horizon=self.horizon,
            )
            for counters in self.counters
        ]  # fmt: skip
        if fleet:
            self._items, self._tuner = len(items) - 1, team.tuner(len(items) - 1)
            self._driver = team.region(self._tuner, [one.start for one in self._iterations], by_worker=True)

    def _units(self, experience: Experience, collects: Operations) -> dict[str, BoundUnit]:
        task, cuts, networks, name = self.task, self.cuts, self.network.networks, self.task.acting
        work = networks.own_work(name)._replace(packed=self.network.packed)
        row = networks.input_row(name)
        inputs = work.values[: ROWS * row].reshape(ROWS, row)[:, : task.encoding.inputs]
        waiting = np.zeros(max(ROWS * cuts.time.shape[1], 1), np.int64)
        scratch = np.zeros(ROWS, self.recorded.records.dtype)
        bind, plan = networks.bind, networks.network(name).plan
        acting = self.acting(experience, inputs, work.output)
        acting = acting._replace(column=Local(read_only(work.output)), mask=read_only(experience.mask))
        recording = self.recording(experience)
        bound = rollout_functions(task, experience, acting, recording)
        scratch_rows, masks = narrow(scratch), np.zeros((ROWS, cuts.mask.shape[1]), np.int8)
        on_cut = {
            name: acting.column, "row": Local(scratch_rows), "mask": Local(read_only(masks)), "rng": self.rng,
            "settings": Shared(task.settings),
        }  # fmt: skip
        on_cut_values = side_by_side(scratch, task.values)
        bound |= {
            "load_cut": of_index(load_cut, cuts, waiting, inputs, scratch_rows, masks),
            "value_of_cut": value_function(task, on_cut),
            "keep_final_value": of_index(keep_final_value, cuts, waiting, on_cut_values, recording.rollout.finals),
        }
        used = {one.name for one in walk(collects) if isinstance(one, Rows)} - {"act"}
        units: dict[str, BoundUnit] = {name: networks.bind_rows(one) for name, one in bound.items() if name in used}
        forward = bind(forward_unit(networks.functions(name)), plan, work, 1, name=name)
        units |= {"forward": forward, "evaluate": forward, "find_cuts": bind(find_cuts, cuts, waiting)}
        units["act"] = networks.bind_call(task.act, bound["act"].arguments)
        if self.host is None:
            target: Any = self.fleet.target
            units["advance"] = target.advance_unit
        return units

    def _run(self) -> None:
        if self.host is None:
            self.device.team.run(self._driver, self._tuner, self._items, 0)
            return
        iteration = self._iterations[0]
        iteration.start(0, 0)
        while iteration.waits:
            self.host.step()
            iteration.resume(0, 0)
