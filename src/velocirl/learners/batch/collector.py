"""Rollouts in whole batches: a pass of the network and one launch for each step of all copies.

Copies are a fleet on the network's own device, or environments of Gymnasium's on the host. Those of several agents lie
one agent's after the other's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.batch.lowering import Bound, Iteration, begun_early
from velocirl.buffers.records import narrow, narrow_type, rollout_type, side_by_side, without_gaps
from velocirl.engine import random
from velocirl.engine.compiler.columns import Shared
from velocirl.engine.disk.allowance import claim
from velocirl.engine.disk.saved import named, within
from velocirl.engine.targets.launching import Work, by_row
from velocirl.learners.batch.pictures.film import Filming, make_film
from velocirl.learners.collectors.columns import Columns, columns_of
from velocirl.learners.rows.acting import keep_mask
from velocirl.learners.rows.commands import command_for
from velocirl.learners.rows.experience import Experience
from velocirl.learners.rows.frames import Shown
from velocirl.learners.rows.functions import Acting, Recording, as_work, rollout_functions, value_function
from velocirl.learners.rows.host import HostExperience
from velocirl.learners.rows.recording import Cuts, Log, Rollout, Sight, see
from velocirl.learners.seeding import Seeds
from velocirl.learners.task import Task
from velocirl.program.rollout import rollout as rollout_iteration

WAITING = "waiting"  # before the names of the arrays of a rollout that was collected and not learnt from


def see_next(i, r, t, sight, inputs, rollout, log):
    """What a copy sees after step t."""
    see(i, r, t + 1, sight, inputs, rollout, log)


def keep_final(p, r, t, cuts, values, finals):  # noqa: ARG001 - every function of an index has the same first arguments
    """What would have followed a cut is worth the value that was found for its last observation."""
    most = cuts.time.shape[1]
    i = p // most
    k = p - i * most
    if k < cuts.count[i]:
        for v in range(values.shape[1]):
            finals[i, cuts.time[i, k], v] = values[p, v]


class Recorded:
    """What is learnt from: the records of a rollout in the memory of one device, and what was summed up and logged."""

    def __init__(self, task: Task, device: Any, agents: int, state_size: int, cuts: int = 0) -> None:
        """With room for the last frames of so many episodes that are cut off in it."""
        config, inputs, zeros = task.config, task.encoding.inputs, device.zeros
        own = task.part.copies
        copies = agents * own
        kind = rollout_type(inputs, task.action, task.fields, task.values, task.frames)
        if device.name != "cuda":
            rows, frames = (config.horizon + 1) * copies, task.frames
            pixels = 0 if frames is None else (rows + (frames.stack - 1) * copies + cuts) * frames.size
            claim(rows * kind.itemsize + pixels, f"a rollout of {rows - copies:,} steps (num_envs, horizon)")
        # Neighbouring copies lie side by side, as a GPU writes them.
        self.memory = device.records((config.horizon + 1, copies), kind)
        self.film = None if task.frames is None else make_film(device, task.frames, config.horizon, copies, cuts)
        self.records = self.memory.transpose(1, 0)  # (copies, horizon + 1)
        ends = agents, config.horizon, own
        self.log = Log(
            zeros(*ends, dtype=np.int32), zeros(*ends), zeros(*ends, dtype=np.int32), zeros(copies, dtype=np.int32)
        )
        self.reported = zeros(task.report_rows, *ends)
        self.reward_sums = zeros(copies, 2, dtype=np.float64)
        self.observation_sums = zeros(copies if task.encoding.normalises else 0, 2, inputs, dtype=np.float64)
        self.start_state = zeros(copies, state_size)  # what a recurrent network remembered before the first step
        self._device = device

    def take_over(self, other: Recorded) -> None:
        """Copy another rollout, which may lie on the host."""
        for own, given in zip(self._arrays().values(), other._arrays().values(), strict=True):
            self._device.copy(own, given)

    def contents(self) -> dict[str, NDArray[Any]]:
        """The rollout as a file can hold it."""
        arrays = {name: self._device.fetch(array) for name, array in self._arrays().items()}
        records = without_gaps(arrays["records"])
        return named(WAITING, {**arrays, "records": records.view(np.uint8).reshape(len(records), -1)})

    def load_contents(self, state: Mapping[str, NDArray[Any]]) -> bool:
        """Take what `contents` gave from a saved state; says whether it was there, and of this size."""
        given, own = within(WAITING, state), self._arrays()
        width = self.memory.shape[1] * self.memory.dtype.itemsize
        if "records" not in given or given["records"].shape[1] != width:  # none, or of another learner's records
            return False
        given["records"] = given["records"].view(self.memory.dtype)
        if not all(name in given and given[name].shape == array.shape for name, array in own.items()):
            return False
        for name, array in own.items():
            self._device.store(array, given[name])
        return True

    def columns(self) -> Columns:
        """The rollout as rings have it, where it lies on the host."""
        film = self.film
        return columns_of(
            np.asarray(self.memory).T, self.log, self.reported, self.reward_sums, self.observation_sums,
            self.start_state, None if film is None else film.frames[: film.cuts_from],
        )  # fmt: skip

    def _arrays(self) -> dict[str, Any]:
        log = self.log
        return {
            "records": self.memory, "ends": log.ends, "returns": log.returns, "lengths": log.lengths,
            "fault": log.fault, "reward_sums": self.reward_sums, "observation_sums": self.observation_sums,
            "start_state": self.start_state, **({"reported": self.reported} if len(self.reported) else {}),
            **({} if self.film is None else {"frames": self.film.frames[: self.film.cuts_from]}),
        }  # fmt: skip


class BatchCollector:
    """Collects rollouts for a network, which it may share with whoever learns."""

    def __init__(self, task: Task, device: Any, network: Any, seeds: Sequence[Seeds]) -> None:
        config = task.config
        self.task, self.device, self.network = task, device, network
        self.in_kernels, self._horizon = task.source.native is not None, config.horizon
        self._itself = not config.overlap and device.steps_itself(task.source)
        self.on_host = not (self.in_kernels or self._itself)
        here = self._here = device.on_host() if self.on_host else device  # where copies step
        part, inputs = task.part, task.encoding.inputs
        self._agents, copies = len(seeds), len(seeds) * part.copies
        most = self._most_cuts()
        places = copies * most
        self.recorded = Recorded(task, here, len(seeds), network.state_size, places)
        self.host: Any = None  # of environments that Python steps: a HostExperience, or of tensors
        self.fleet: Any = None  # the copies, where they are compiled
        experience = self._make_copies(seeds)
        self.centre, self.inverse_scale = here.zeros(inputs), here.zeros(inputs)
        self._rng = here.put(np.concatenate([random.streams(one.policy, part.copies, part.first) for one in seeds]))
        self._inputs, self._outputs = here.zeros(copies, inputs), here.zeros(copies, network.outputs)
        self._state, self._discounted = here.zeros(copies, network.state_size), here.zeros(copies)
        # Where only those are valued that there are, frames become what the network reads when that is done.
        self._values_all = len(seeds) > 1 or (self.in_kernels and here.captures)
        self._cuts = Cuts(
            count=here.zeros(copies, dtype=np.int32),
            time=here.zeros(copies, most, dtype=np.int32),
            inputs=here.zeros(places if task.frames is None or self._values_all else 0, inputs),
            mask=here.zeros(places, task.head.options if task.head.masked else 1, dtype=np.int8),
            state=here.zeros(places, network.state_size),
        )
        self._cut_outputs = here.zeros(places, network.outputs)
        self._filming: Filming | None = None  # where observations are stored frame by frame
        self._bind(experience, copies, places)

    def collect(self) -> None:
        """One rollout of all copies."""
        if self.host is not None:
            self.host.begin()  # by the thread that will step them
        self._rollout.run()

    def columns(self) -> Columns:
        """The rollout as rings have it, where it lies on the host."""
        return self.recorded.columns()

    def streams(self) -> tuple[Any, Any, Any]:
        """The random streams of actions, the discounted returns, and what the network remembers; the arrays."""
        return self._rng, self._discounted, self._state

    def state(self) -> dict[str, NDArray[Any]]:
        """The copies, the policy's random streams, the discounted returns and what the network remembers.

        What Gymnasium's environments are in the middle of cannot be saved.
        """
        fetch = self._here.fetch
        own = {"policy.rng": fetch(self._rng), "policy.discounted": fetch(self._discounted)}
        if self.network.state_size:
            own["policy.state"] = fetch(self._state)
        if self.host is not None:
            return own
        return {**own, **named("fleet", self.fleet.get_state())}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on where the copies were; or with new episodes, whose seeds come from the policy's streams."""
        here = self._here
        here.synchronise()
        here.store(self._rng, state["policy.rng"])
        if self.host is not None:
            here.fill(self._discounted, 0.0)
            here.fill(self._state, 0.0)
            self.host.begin_anew(int(state["policy.rng"][0, 0] >> np.uint64(33)))
            return
        self.fleet.set_state(within("fleet", state))
        here.store(self._discounted, state["policy.discounted"])
        if self.network.state_size:
            here.store(self._state, state["policy.state"])

    def _make_copies(self, seeds: Sequence[Seeds]) -> Experience:
        source, config, part = self.task.source, self.task.config, self.task.part
        if source.native is None:
            self.envs = source.make_copies(
                part.copies, seed=seeds[0].environment, threads=1, workers=config.workers, first=part.first
            )
            make = self.device.experience_of if self._itself else HostExperience
            self.host = make(self.envs, self.task.head, costs=self.task.reads_costs)
            return self.host.arrays
        count = len(seeds) * part.copies
        params = source.params_of(part.first + np.arange(count) % part.copies)
        self.fleet = self.device.make_fleet(source.native, count, params, check=source.check)
        starts = np.concatenate([random.streams(one.environment, part.copies, part.first) for one in seeds])
        self.device.store(self.fleet.copies.rng, starts)
        self.fleet.target.begin(np.ones(len(starts), np.bool_))
        return self.device.experience(self.fleet)

    def _most_cuts(self) -> int:
        """How often a copy's episodes may be cut off in a rollout."""
        native = self.task.source.native
        if native is None:
            return self._horizon
        return 0 if native.max_steps is None else -(-self._horizon // native.max_steps)

    def _bind(self, experience: Experience, copies: int, places: int) -> None:
        task, here, recorded, cuts = self.task, self._here, self.recorded, self._cuts
        records, log = recorded.records, recorded.log
        sight = Sight(
            experience.observation, experience.final, experience.final_mask, here.put(task.encoding.table),
            self.centre, self.inverse_scale,
        )  # fmt: skip
        film = recorded.film
        rollout = Rollout(
            rows=narrow(records),
            observations=records["observation"] if film is None else film.frames,
            values=side_by_side(records, task.values),
            finals=side_by_side(records, [f"final_{name}" for name in task.values]),
            gamma=here.shown(task.settings["gamma"]),
            discounted=self._discounted,
            reward_sums=recorded.reward_sums,
            observation_sums=recorded.observation_sums,
            state=self._state,
        )
        _, table = command_for(task.source.action_space)
        clock, settings = here.zeros(1, dtype=np.int64), here.shown(task.settings)
        acting = Acting(
            self._inputs, self._outputs, self._outputs, experience.mask, self._rng, settings, clock, here.put(table)
        )  # fmt: skip
        recording = Recording(sight, rollout, cuts, log, recorded.reported)
        functions = rollout_functions(task, experience, acting, recording)
        fleet = self.host is None
        bound: dict[str, Bound] = {name: [as_work(one)] for name, one in functions.items()}
        bound |= {
            "keep_start_state": [lambda: here.copy(recorded.start_state, self._state)],
            "see_next": [Work(see_next, functions["see"].arguments)],
            "forward": [lambda _: self._forward(self._inputs, self._state, self._outputs, remember=True)],
            "evaluate": [lambda _: self._forward(self._inputs, self._state, self._outputs, remember=False)],
            "advance": here.stepping(self.fleet) if fleet else [lambda _: self.host.step()],
            "cut": bound["cut"] if places else [],
            "find_cuts": [self._value_cuts],
        }
        if film is not None:
            shown = Shown(experience.observation, experience.final, sight.table, self._inputs)
            self._filming = filming = Filming(task, here, film, shown, experience.final_mask, rollout, cuts)
            bound |= {"see": filming.at_first, "see_next": filming.after_a_step, "cut": filming.at_the_end}
        recurrent = bool(self.network.state_size)
        collects = rollout_iteration(masked=task.head.masked, normalizes=task.encoding.normalises, recurrent=recurrent)
        self._rollout = Iteration(
            begun_early(collects, "see", "see_next"), bound, lambda works: here.launch(works, copies),
            horizon=self._horizon,
        )  # fmt: skip
        if places:
            scratch = here.records((places,), narrow_type(records.dtype))
            of_cut = {task.acting: self._cut_outputs, "row": scratch, "mask": cuts.mask}
            of_cut |= {"rng": self._rng, "settings": Shared(settings)}
            values = side_by_side(scratch, task.values)
            works = [
                *([Work(by_row(keep_mask), (scratch, cuts.mask))] if task.head.masked else []),
                as_work(value_function(task, of_cut)),
                Work(keep_final, (cuts, values, rollout.finals)),
            ]
            self._value = here.launch(works, places)

    def _forward(self, inputs: Any, state: Any, outputs: Any, *, remember: bool) -> None:
        """Let the network read one array and write another, and what it remembers."""
        network, there = self.network, self.device.from_host
        agents = network.parameters.shape[:-1]  # none, or how many
        read = there(inputs).reshape(*agents, len(inputs) // self._agents, -1)
        made, after = network.forward(read, there(state) if network.state_size else None)
        self._here.copy(outputs, made.reshape(outputs.shape))
        if network.state_size and remember:
            self._here.copy(state, after)

    def _value_cuts(self, moment: int) -> None:  # noqa: ARG002 - once for a rollout
        """Find what the last observations of episodes that were cut off are worth."""
        cuts, outputs = self._cuts, self._cut_outputs
        if len(outputs) == 0:
            return
        if self._values_all:
            if self._filming is not None:
                self._filming.load_cuts()
            self._forward(cuts.inputs, cuts.state, outputs, remember=False)
        else:  # those that there are
            there_are = np.arange(cuts.time.shape[1]) < self._here.fetch(cuts.count)[:, None]
            places = np.flatnonzero(there_are)
            if len(places) == 0:
                return
            made = self._here.zeros(len(places), outputs.shape[1])
            read = cuts.inputs[places] if self._filming is None else self._filming.read_cuts(places)
            self._forward(read, cuts.state[places], made, remember=False)
            outputs[places] = made
        self._value(0)
