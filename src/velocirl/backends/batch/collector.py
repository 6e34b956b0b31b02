"""Rollouts in whole batches: one network pass and one launch for each step of all environments."""

from __future__ import annotations

from typing import Any

import numpy as np

from velocirl.backends.batch.frames.film import Filming
from velocirl.backends.batch.lowering import Bound, Iteration, begun_early
from velocirl.buffers.records import narrow_type, side_by_side
from velocirl.collect.rollouts import RolloutCollector
from velocirl.engine.compiler.columns import Shared
from velocirl.engine.targets.launching import Work, by_row
from velocirl.program.rollout import rollout as rollout_iteration
from velocirl.program.rows.acting import keep_mask
from velocirl.program.rows.experience import Experience
from velocirl.program.rows.frames import Shown
from velocirl.program.rows.functions import as_work, rollout_functions, value_function
from velocirl.program.rows.recording import see


def see_next(i, r, t, sight, inputs, rollout, log):
    """Record an environment's observation after step t."""
    see(i, r, t + 1, sight, inputs, rollout, log)


def keep_final(p, r, t, cuts, values, finals):  # noqa: ARG001 - every function of an index has the same first arguments
    """Store the value of a truncated episode's final observation, from which the truncated step bootstraps."""
    most = cuts.time.shape[1]
    i = p // most
    k = p - i * most
    if k < cuts.count[i]:
        for v in range(values.shape[1]):
            finals[i, cuts.time[i, k], v] = values[p, v]


class BatchCollector(RolloutCollector):
    """Rollout collector that launches on the device of the environments."""

    def _bind(self, experience: Experience) -> None:
        task, here, recorded, cuts = self.task, self.here, self.recorded, self.cuts
        (copies, _), (places, _) = recorded.records.shape, cuts.mask.shape
        inputs, outputs = here.zeros(copies, task.encoding.inputs), here.zeros(copies, self.network.outputs)
        self._cut_outputs = here.zeros(places, self.network.outputs)
        self._filming: Filming | None = None  # set if observations are stored frame by frame
        recording, acting = self.recording(experience), self.acting(experience, inputs, outputs)
        rollout, film = recording.rollout, recorded.film
        functions = rollout_functions(task, experience, acting, recording)
        bound: dict[str, Bound] = {name: [as_work(one)] for name, one in functions.items()}
        bound |= {
            "keep_start_state": [lambda: here.copy(recorded.start_state, self.memory)],
            "see_next": [Work(see_next, functions["see"].arguments)],
            "forward": [lambda _: self._forward(inputs, self.memory, outputs, remember=True)],
            "evaluate": [lambda _: self._forward(inputs, self.memory, outputs, remember=False)],
            "advance": here.stepping(self.fleet) if self.host is None else [lambda _: self.host.step()],
            "cut": bound["cut"] if places else [],
            "find_cuts": [self._value_cuts],
        }
        if film is not None:
            shown = Shown(experience.observation, experience.final, recording.sight.table, inputs)
            self._filming = filming = Filming(task, here, film, shown, experience.final_mask, rollout, cuts)
            bound |= {"see": filming.at_first, "see_next": filming.after_a_step, "cut": filming.at_the_end}
        recurrent = bool(self.network.state_size)
        collects = rollout_iteration(masked=task.head.masked, normalizes=task.encoding.normalises, recurrent=recurrent)
        self._iteration = Iteration(
            begun_early(collects, "see", "see_next"), bound, lambda works: here.launch(works, copies),
            horizon=self.horizon,
        )  # fmt: skip
        if places:
            scratch = here.records((places,), narrow_type(recorded.records.dtype))
            of_cut = {task.acting: self._cut_outputs, "row": scratch, "mask": cuts.mask}
            of_cut |= {"rng": self.rng, "settings": Shared(acting.settings)}
            values = side_by_side(scratch, task.values)
            works = [
                *([Work(by_row(keep_mask), (scratch, cuts.mask))] if task.head.masked else []),
                as_work(value_function(task, of_cut)),
                Work(keep_final, (cuts, values, rollout.finals)),
            ]
            self._value = here.launch(works, places)

    def _run(self) -> None:
        self._iteration.run()

    def _forward(self, inputs: Any, state: Any, outputs: Any, *, remember: bool) -> None:
        """Run the network from one array to another; `remember` keeps the new recurrent state."""
        network, there = self.network, self.device.from_host
        agents = network.parameters.shape[:-1]  # () or (agents,)
        read = there(inputs).reshape(*agents, len(inputs) // self.agents, -1)
        made, after = network.forward(read, there(state) if network.state_size else None)
        self.here.copy(outputs, made.reshape(outputs.shape))
        if network.state_size and remember:
            self.here.copy(state, after)

    def _value_cuts(self, moment: int) -> None:  # noqa: ARG002 - once for a rollout
        """Evaluate the final observations of truncated episodes."""
        cuts, outputs = self.cuts, self._cut_outputs
        if len(outputs) == 0:
            return
        if self.values_all:
            if self._filming is not None:
                self._filming.load_cuts()
            self._forward(cuts.inputs, cuts.state, outputs, remember=False)
        else:  # only the truncations that occurred
            there_are = np.arange(cuts.time.shape[1]) < self.here.fetch(cuts.count)[:, None]
            places = np.flatnonzero(there_are)
            if len(places) == 0:
                return
            made = self.here.zeros(len(places), outputs.shape[1])
            read = cuts.inputs[places] if self._filming is None else self._filming.read_cuts(places)
            self._forward(read, cuts.state[places], made, remember=False)
            outputs[places] = made
        self._value(0)
