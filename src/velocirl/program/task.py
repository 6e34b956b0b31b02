"""Learner input: the algorithm bound to one environment and configuration."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.records import Act, Field, Frames
from velocirl.engine.constraints import cost_names
from velocirl.networks.declared import Declared, Network, Number, TargetNetwork
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.program.counting.reporting import Reported
from velocirl.program.fields import COSTS, HAS_NEXT, NEXT_ACTION
from velocirl.program.normalizing import RunningMoments
from velocirl.program.reducing import ALONE, Part, Reducer, part_of
from velocirl.program.rows.recorded import Recorded
from velocirl.program.seeding import Seeds
from velocirl.program.several import flat_names
from velocirl.program.update import Call, Program


@dataclass(frozen=True)
class Task:
    """An algorithm with its networks and environment; learners do not depend on which algorithm it is."""

    name: str  # for messages
    config: Any
    source: Any  # the environment, see `training.source`
    head: Head
    encoding: Encoding
    seeds: Seeds
    networks: Mapping[str, Declared]
    built: Mapping[str, Any]  # the networks that learn: an MLP, or a builder of a torch network
    parameters: Mapping[str, NDArray[np.float32]]  # of `built`; the acting network's are the agent's own
    acting: str  # the network that acts
    act: Call
    program: Program
    fields: Sequence[Field]  # fields that the algorithm adds to a row
    settings: NDArray[Any]  # (1,) the numeric settings that functions read
    number_starts: Mapping[str, float]  # initial values of numbers
    observation_moments: RunningMoments
    recent: int  # maximum number of episodes in a report
    phases: dict[str, float]
    frames: Frames | None = None  # set if observations are stored frame by frame
    constraints: tuple[str, ...] = ()  # names; each step has a cost for each
    reads_costs: bool = False  # whether the algorithm learns from these costs
    reducer: Reducer = ALONE  # the processes that train together; each has a part of `num_envs`
    decisions: Sequence[Call] = ()  # called once, with episodes, numbers and settings: after a rollout,
    decided_by: int = 1  # or before off-policy updates, once this many episodes have ended
    reads_next: bool = False  # whether the algorithm reads the recorded next action
    recorded: Recorded | None = None  # the data, for offline algorithms
    # For on-policy algorithms:
    value: Call | None = None  # estimates an observation's value
    values: Sequence[str] = ()  # the fields that `value` writes
    estimates: Sequence[tuple[Callable[..., Any], Sequence[str]]] = ()  # functions of a time column, and their fields
    reestimates: Sequence[tuple[Callable[..., Any], Sequence[str]]] = ()  # likewise, before each epoch,
    before_epoch: Program | None = None  # and the program for all rows before these
    explained: tuple[str, str] | None = None  # the fields of a value and its target
    reward_moments: RunningMoments | None = None

    @property
    def part(self) -> Part:
        """The environments of this process, with all of its threads as one."""
        return part_of(self.config.num_envs, 1, self.reducer)

    @property
    def reporting(self) -> Reported:
        """Values recorded of steps and episodes besides returns and lengths."""
        fields = () if self.source.native is None else self.source.native.report
        return Reported(fields, len(self.constraints), self.reads_costs)

    @property
    def report(self) -> tuple[str, ...]:
        """Names of the values reported per episode: the reported fields of its last state, and its costs."""
        return (*self.reporting.fields, *cost_names(self.constraints))

    @property
    def first_cost(self) -> int:
        """Index of the first constraint's cost in `report`."""
        return len(self.report) - len(self.constraints)

    def costs_of(self, reported: Any) -> Any:
        """Return the episode costs, one row per constraint, of the reported values (report_rows, ...)."""
        return reported[self.first_cost : self.first_cost + len(self.constraints)]

    @property
    def report_rows(self) -> int:
        """Number of values kept per step: `report`, then the count of violated constraints where constraints exist."""
        return len(self.report) + bool(self.constraints)

    @property
    def stored(self) -> list[Field]:
        """The fields that a replay buffer stores in addition to the fields of every algorithm."""
        names = [*([COSTS] if self.reads_costs else []), *([NEXT_ACTION, HAS_NEXT] if self.reads_next else [])]
        return [one for one in self.fields if one.name in names]

    @property
    def trained(self) -> list[str]:
        """Names of the networks that learn."""
        return [name for name, one in self.networks.items() if isinstance(one, Network)]

    @property
    def targets(self) -> dict[str, str]:
        """Target networks, mapped to the networks that they follow."""
        return {name: one.of for name, one in self.networks.items() if isinstance(one, TargetNetwork)}

    @property
    def numbers(self) -> list[str]:
        """Flat names of the scalars, in their order of declaration."""
        found = [(name, one.each) for name, one in self.networks.items() if isinstance(one, Number)]
        return [flat for name, each in found for flat in flat_names(name, each, self.config)]

    @property
    def action(self) -> Act:
        """Layout of an action."""
        head = self.head
        return Act(head.action_size, head.action_dtype, head.options if head.masked else 0)
