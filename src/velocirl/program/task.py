"""What a learner is given: an algorithm as its agent made it for one environment and configuration."""

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
    """An algorithm, its networks and its environment; nothing here knows which algorithm it is."""

    name: str  # for messages
    config: Any
    source: Any  # the environment, see `training.source`
    head: Head
    encoding: Encoding
    seeds: Seeds
    networks: Mapping[str, Declared]
    built: Mapping[str, Any]  # the networks that learn: an MLP, or what makes a torch network for a device
    parameters: Mapping[str, NDArray[np.float32]]  # of those; that of the network that acts is the agent's own
    acting: str  # the network that acts
    act: Call
    program: Program
    fields: Sequence[Field]  # that the algorithm adds to a row
    settings: NDArray[Any]  # (1,) the numbers of the configuration that functions read
    number_starts: Mapping[str, float]  # where numbers begin
    observation_moments: RunningMoments
    recent: int  # episodes that a report tells of at most
    phases: dict[str, float]
    frames: Frames | None = None  # where observations are stored frame by frame
    constraints: tuple[str, ...] = ()  # by name, of which steps have costs
    reads_costs: bool = False  # whether the algorithm learns from these
    reducer: Reducer = ALONE  # the processes that train together; of `num_envs` copies, each has its part
    decisions: Sequence[Call] = ()  # called once, of episodes, numbers and settings: after a rollout,
    decided_by: int = 1  # or before updates from a memory, once so many episodes have ended
    reads_next: bool = False  # whether it reads the recorded action after that of a row
    recorded: Recorded | None = None  # the data, of algorithms that learn from that alone
    # Of algorithms that learn from rollouts:
    value: Call | None = None  # what is told of an observation besides an action
    values: Sequence[str] = ()  # the fields that this writes
    estimates: Sequence[tuple[Callable[..., Any], Sequence[str]]] = ()  # functions of a column in time, and its fields
    reestimates: Sequence[tuple[Callable[..., Any], Sequence[str]]] = ()  # the same, before each epoch,
    before_epoch: Program | None = None  # and what all rows go through before those
    explained: tuple[str, str] | None = None  # the fields of a value, and of its target
    reward_moments: RunningMoments | None = None

    @property
    def part(self) -> Part:
        """The copies of this process, where all its threads work on all of them."""
        return part_of(self.config.num_envs, 1, self.reducer)

    @property
    def reporting(self) -> Reported:
        """What is told of steps and episodes besides returns and lengths."""
        fields = () if self.source.native is None else self.source.native.report
        return Reported(fields, len(self.constraints), self.reads_costs)

    @property
    def report(self) -> tuple[str, ...]:
        """What is told of an episode: the fields of its last state that the environment reports, and its costs."""
        return (*self.reporting.fields, *cost_names(self.constraints))

    @property
    def first_cost(self) -> int:
        """The place of the first constraint's cost in what is told of an episode."""
        return len(self.report) - len(self.constraints)

    def costs_of(self, reported: Any) -> Any:
        """The costs of episodes, by constraint, in what is told of them: (report_rows, ...)."""
        return reported[self.first_cost : self.first_cost + len(self.constraints)]

    @property
    def report_rows(self) -> int:
        """The numbers of a step in which this is kept, and behind those how many constraints it violated."""
        return len(self.report) + bool(self.constraints)

    @property
    def stored(self) -> list[Field]:
        """The fields that a memory keeps of a step beside those of every algorithm."""
        names = [*([COSTS] if self.reads_costs else []), *([NEXT_ACTION, HAS_NEXT] if self.reads_next else [])]
        return [one for one in self.fields if one.name in names]

    @property
    def trained(self) -> list[str]:
        """The networks that learn."""
        return [name for name, one in self.networks.items() if isinstance(one, Network)]

    @property
    def targets(self) -> dict[str, str]:
        """The target networks, and those that they follow."""
        return {name: one.of for name, one in self.networks.items() if isinstance(one, TargetNetwork)}

    @property
    def numbers(self) -> list[str]:
        """The single numbers, in their order."""
        found = [(name, one.each) for name, one in self.networks.items() if isinstance(one, Number)]
        return [flat for name, each in found for flat in flat_names(name, each, self.config)]

    @property
    def action(self) -> Act:
        """What an action is made of."""
        head = self.head
        return Act(head.action_size, head.action_dtype, head.options if head.masked else 0)
