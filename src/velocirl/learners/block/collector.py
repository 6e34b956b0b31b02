"""Rollouts on CPU threads: a block of environments takes all its steps before the next block, and stays cached.

Normalizers do not change during a rollout.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.lowering import Iteration
from velocirl.buffers.records import aligned_records, narrow, rollout_type, side_by_side
from velocirl.engine import random
from velocirl.engine.compiler.columns import Local, Shared, read_only
from velocirl.engine.compiler.counters import allocate
from velocirl.engine.compiler.units import BoundUnit
from velocirl.engine.disk.saved import named, within
from velocirl.engine.targets.team import MAX_ITEMS
from velocirl.learners.block.networks import BlockNetworks, forward_unit
from velocirl.learners.collectors.columns import Columns, columns_of
from velocirl.learners.counting.phases import PLACES_OF_TIME
from velocirl.learners.reducing import Share, part_of
from velocirl.learners.rows.commands import command_for
from velocirl.learners.rows.experience import of_fleet
from velocirl.learners.rows.functions import Acting, Recording, of_index, rollout_functions, value_function
from velocirl.learners.rows.host import HostExperience
from velocirl.learners.rows.recording import Cuts, Log, Rollout, Sight
from velocirl.learners.task import Task
from velocirl.networks.mlp import ROWS
from velocirl.program.iteration import Operations, Rows, walk
from velocirl.program.rollout import rollout as rollout_iteration
from velocirl.vector.native import FleetVectorEnv

TILE = 6  # rows that a product takes together


def blocks_of(shares: Sequence[Share]) -> NDArray[np.int64]:
    """Cut each share of the copies into blocks of equal size, of whole tiles.

    A row's rounding depends on its place in a block, so blocks follow the shares and never the number of threads.
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
    """List the cuts whose final observations have to be evaluated; returns how many there are."""
    cuts, waiting = arguments
    count = 0
    for i in range(first, stop):
        for k in range(cuts.count[i]):
            waiting[count] = i * cuts.time.shape[1] + k
            count += 1
    return count


def load_cut(p, r, t, cuts, waiting, inputs, rows, masks):  # noqa: ARG001 - the first three are those of every index
    """The last observation of an episode that was cut off becomes what the network reads, with what was legal then."""
    source, into = cuts.inputs[waiting[p]], inputs[r]
    for j in range(len(source)):
        into[j] = source[j]
    for k in range(masks.shape[1]):
        masks[r, k] = cuts.mask[waiting[p], k]
        rows[r].mask[k] = masks[r, k]


def keep_final_value(p, r, t, cuts, waiting, values, finals):  # noqa: ARG001
    """What would have followed is worth that value."""
    most = cuts.time.shape[1]
    i, k = waiting[p] // most, waiting[p] % most
    for v in range(values.shape[1]):
        finals[i, cuts.time[i, k], v] = values[r, v]


class BlockRecorded:
    """What is learnt from: the records of a rollout, and what was summed up and logged; subclasses collect it."""

    envs: Any

    def __init__(self, task: Task, workers: int) -> None:
        self.part = part_of(task.config.num_envs, task.config.shares, task.reducer)
        self.task, self.horizon, copies = task, task.config.horizon, self.part.copies
        inputs = task.encoding.inputs
        kind = rollout_type(inputs, task.action, task.fields, task.values)
        self.records = aligned_records((copies, self.horizon + 1), kind)
        self.reward_sums = np.zeros((copies, 2))
        self.observation_sums = np.zeros((copies if task.encoding.normalises else 0, 2, inputs))
        ends = (1, self.horizon, copies)
        self.log = Log(np.zeros(ends, np.int32), np.zeros(ends, np.float32), np.zeros(ends, np.int32),
                       np.zeros(copies, np.int32))  # fmt: skip
        self.reported = np.zeros((task.report_rows, *ends), np.float32)
        self.centre, self.inverse_scale = np.zeros(inputs, np.float32), np.ones(inputs, np.float32)
        self.counters = allocate(workers)

    def columns(self) -> Columns:
        """The rollout as rings have it."""
        return columns_of(self.records, self.log, self.reported, self.reward_sums, self.observation_sums)

    @abstractmethod
    def begin(self) -> None:
        """Let all copies begin an episode."""

    @abstractmethod
    def collect(self) -> None:
        """One rollout of all copies."""

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """What decides the rollouts that come next."""

    @abstractmethod
    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""


class BlockCollector(BlockRecorded):
    """Collects rollouts: of a fleet in one call for each thread, of Gymnasium's environments step by step."""

    def __init__(self, task: Task, networks: BlockNetworks, *, alone: bool = False) -> None:
        """`alone`: it works while somebody learns, by parameters of its own, which `refresh` brings up to date."""
        super().__init__(task, 1 if alone else networks.team.threads)
        config, inputs, part = task.config, task.encoding.inputs, self.part
        copies = part.copies
        self.envs = task.source.make_copies(
            copies, seed=task.seeds.environment, threads=1, workers=config.workers, first=part.first
        )
        self._rng = random.streams(task.seeds.policy, copies, part.first)
        self.host: HostExperience | None = None
        cuts = self._cuts()
        self.rollout = Rollout(
            rows=narrow(self.records),
            observations=self.records["observation"],
            values=side_by_side(self.records, task.values),
            finals=side_by_side(self.records, [f"final_{name}" for name in task.values]),
            gamma=task.settings["gamma"],
            discounted=np.zeros(copies, np.float32),
            reward_sums=self.reward_sums,
            observation_sums=self.observation_sums,
            state=np.zeros((copies, 0), np.float32),
        )
        self.cuts = Cuts(
            count=np.zeros(copies, np.int32),
            time=np.zeros((copies, cuts), np.int32),
            inputs=np.zeros((copies * cuts, inputs), np.float32),
            mask=np.zeros((copies * cuts, task.head.options if task.head.masked else 1), np.int8),
            state=np.zeros((copies * cuts, 0), np.float32),
        )
        self._packed = networks.acting_copy() if alone else None
        self._networks = networks
        self._connect(networks)

    def begin(self) -> None:
        """Let all copies begin an episode."""
        if self.host is None:
            self.envs.reset()

    def refresh(self) -> None:
        """Act by the parameters of now."""
        if self._packed is not None:
            self._packed.refresh()

    def collect(self) -> None:
        """One rollout of all copies."""
        if self.host is None:
            self._networks.team.run(self._driver, self._tuner, len(self._items) - 1, 0)
        else:
            self._collect_from(self.host)

    def streams(self) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """The random streams of actions, and the discounted returns so far; the arrays themselves."""
        return self._rng, self.rollout.discounted

    def state(self) -> dict[str, NDArray[Any]]:
        """The copies, the policy's random streams, and the discounted returns so far."""
        own = {"policy.rng": self._rng.copy(), "policy.discounted": self.rollout.discounted.copy()}
        if self.host is not None:  # what Gymnasium's environments are in the middle of cannot be saved
            return own
        return {**own, **named("fleet", self.envs.get_state())}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where the copies were; or with new episodes, whose seeds come from the policy's streams."""
        self._rng[:], self.rollout.discounted[:] = state["policy.rng"], state["policy.discounted"]
        if self.host is None:
            self.envs.set_state(within("fleet", state))
        else:
            self.rollout.discounted[:] = 0.0
            self.host.begin_anew(int(self._rng[0, 0] >> np.uint64(33)))

    def _cuts(self) -> int:
        """How often a copy's episodes may be cut off in a rollout."""
        native = self.task.source.native
        if native is None:
            return self.horizon
        return 1 if native.max_steps is None else -(-self.horizon // native.max_steps)

    def _connect(self, networks: BlockNetworks) -> None:
        task = self.task
        if isinstance(self.envs, FleetVectorEnv):
            experience = of_fleet(self.envs.copies)
        else:
            self.host = HostExperience(self.envs, task.head, costs=task.reads_costs)
            experience = self.host.arrays
        sight = Sight(
            experience.observation, experience.final, experience.final_mask, task.encoding.table, self.centre,
            self.inverse_scale,
        )  # fmt: skip
        collects = rollout_iteration(masked=task.head.masked, normalizes=task.encoding.normalises)
        blocks = blocks_of(self.part.shares)
        fleet = self.host is None
        items = self._items = items_of(len(blocks)) if fleet else np.array([0, len(blocks)])
        self._iterations = [
            Iteration(
                collects, self._units(networks, sight, experience, collects), PLACES_OF_TIME, counters, blocks, items,
                horizon=self.horizon,
            )
            for counters in (self.counters if fleet else self.counters[:1])
        ]  # fmt: skip
        if fleet:
            self._tuner = networks.team.tuner(len(items) - 1)
            starts = [one.start for one in self._iterations]
            self._driver = networks.team.region(self._tuner, starts, by_worker=True)

    def _units(
        self, networks: BlockNetworks, sight: Sight, experience: Any, collects: Operations
    ) -> dict[str, BoundUnit]:
        task, rollout, cuts, log = self.task, self.rollout, self.cuts, self.log
        work = networks.own_work(task.acting)
        if self._packed is not None:
            work = work._replace(packed=self._packed.packed)
        row = networks.input_row(task.acting)
        inputs = work.values[: ROWS * row].reshape(ROWS, row)[:, : task.encoding.inputs]
        waiting = np.zeros(max(ROWS * cuts.time.shape[1], 1), np.int64)
        scratch = np.zeros(ROWS, self.records.dtype)
        bind, functions, plan = networks.bind, networks.functions(task.acting), networks.network(task.acting).plan
        _, table = command_for(task.source.action_space)
        acting = Acting(
            inputs, work.output, Local(read_only(work.output)), read_only(experience.mask), self._rng, task.settings,
            np.zeros(1, np.int64), table,
        )  # fmt: skip
        recording = Recording(sight, rollout, cuts, log, self.reported)
        bound = rollout_functions(task, experience, acting, recording)
        scratch_rows, masks = narrow(scratch), np.zeros((ROWS, self.cuts.mask.shape[1]), np.int8)
        on_cut = {
            task.acting: acting.column, "row": Local(scratch_rows), "mask": Local(read_only(masks)),
            "rng": self._rng, "settings": Shared(task.settings),
        }  # fmt: skip
        on_cut_values = side_by_side(scratch, task.values)
        bound |= {
            "load_cut": of_index(load_cut, cuts, waiting, inputs, scratch_rows, masks),
            "value_of_cut": value_function(task, on_cut),
            "keep_final_value": of_index(keep_final_value, cuts, waiting, on_cut_values, rollout.finals),
        }
        used = {one.name for one in walk(collects) if isinstance(one, Rows)} - {"act"}
        units: dict[str, BoundUnit] = {name: networks.bind_rows(one) for name, one in bound.items() if name in used}
        forward = bind(forward_unit(functions), plan, work, 1, name=task.acting)
        units |= {"forward": forward, "evaluate": forward, "find_cuts": bind(find_cuts, cuts, waiting)}
        units["act"] = networks.bind_call(task.act, bound["act"].arguments)
        if self.host is None:
            target: Any = self.envs.target
            units["advance"] = target.advance_unit
        return units

    def _collect_from(self, host: HostExperience) -> None:
        host.begin()  # by the thread that will step them
        iteration = self._iterations[0]
        iteration.start(0, 0)
        while iteration.waits:
            host.step()
            iteration.resume(0, 0)
