"""Joint training of several agents that differ only in their seeds, in one batch on a GPU."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.counts import require_count
from velocirl.engine.targets.device_names import kind_of
from velocirl.learners.reports import Report
from velocirl.networks.mlp import MLP
from velocirl.program.saved import BY_COPY
from velocirl.program.sharing import Sharing
from velocirl.runs.callback import Callback
from velocirl.runs.signals import StopSignals
from velocirl.training.agent import Agent
from velocirl.training.callbacks import as_callbacks
from velocirl.training.on_policy import OnPolicyAgent
from velocirl.training.persistence import Goal
from velocirl.training.settings.scheduled import schedules_of

SHARED = "learner.minibatches"


class Seat:
    """Learner interface of one agent in a group: reports, and the agent's part of the common state."""

    def __init__(self, group: Together, place: int) -> None:
        self._group, self._place = group, place
        self.phases: dict[str, float] = group.phases

    def iterate(self, schedule: Any, steps: int) -> Report | None:  # noqa: ARG002
        """Unavailable: the group runs all iterations."""
        raise RuntimeError("these agents learn together: call learn_together again, or save this one and load it")

    def drain(self) -> Report | None:
        """Return None: no iteration of a single agent is ever running."""
        return None

    def settle(self) -> None:
        """Sync this agent's parameters and normalizer from the learner."""
        self._group.settle()

    def take(self) -> None:
        """Load this agent's parameters into the learner."""
        self._group.take()

    envs = None

    @property
    def sharing(self) -> Sharing:
        """Unavailable: ranks do not train a group."""
        raise RuntimeError("these agents learn together, in one process")

    def gauges(self) -> dict[str, float]:
        """Return metrics of the group's learner."""
        return self._group.learner.gauges()

    def close(self) -> None:
        """End no process: none was started."""

    @property
    def fleet(self) -> Any:
        """Unavailable: the group shares one fleet."""
        raise RuntimeError("these agents learn together, in one fleet: give params to all of them before they do")

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state that this agent would have if it had been trained alone."""
        return self._group.state_of(self._place)

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:  # noqa: ARG002
        """Unavailable: a single agent of a group cannot be reset."""
        raise RuntimeError("an agent that learns together with others cannot be set back alone")


class Together:
    """Group of agents and their common learner."""

    def __init__(self, agents: Sequence[OnPolicyAgent]) -> None:
        from velocirl.learners.making import make_rollout

        self.agents = list(agents)
        check_alike(self.agents)
        self.phases: dict[str, float] = {}
        tasks = [agent.task() for agent in self.agents]
        first, self._acting = tasks[0], tasks[0].acting
        parameters = {name: np.stack([task.parameters[name] for task in tasks]) for name in first.parameters}
        self._parameters = parameters[self._acting]
        self._rewards = np.concatenate([agent.reward_moments.state.T for agent in self.agents])
        task = dataclasses.replace(first, parameters=parameters, phases=self.phases)
        seeds = [agent.seeds for agent in self.agents]
        self.learner = make_rollout(task, self.agents[0].num_parameters, seeds, self._rewards)
        self._state: dict[str, NDArray[Any]] | None = None
        for place, agent in enumerate(self.agents):
            agent.join(Seat(self, place))

    def iterate(self, schedule: Any, steps: int) -> list[Report] | None:
        """Run one iteration of all agents."""
        self._state = None
        return self.learner.iterate_all(schedule, steps)

    def settle(self) -> None:
        """Sync the agents' own arrays from the learner."""
        self.learner.settle()
        for place, agent in enumerate(self.agents):
            agent.policy.parameters[:] = self._parameters[place]
            agent.reward_moments.state[:, 0] = self._rewards[place]

    def take(self) -> None:
        """Load the agents' own arrays into the learner."""
        for place, agent in enumerate(self.agents):
            self._parameters[place] = agent.policy.parameters
            self._rewards[place] = agent.reward_moments.state[:, 0]
        self.learner.take()

    def state_of(self, place: int) -> dict[str, NDArray[Any]]:
        """Return the part of the state that belongs to one agent."""
        if self._state is None:
            self._state = self.learner.state()
        copies, count = self.agents[0].config.num_envs, len(self.agents)
        own: dict[str, NDArray[Any]] = {}
        for name, array in self._state.items():
            if name == SHARED:
                own[name] = array
            elif name.startswith(BY_COPY):
                own[name] = array[place * copies : (place + 1) * copies]
            elif name.startswith("learner.") or array.ndim == 1:  # rows of the agents in sequence
                rows = len(array) // count
                own[name] = array[place * rows : (place + 1) * rows]
            else:
                own[name] = np.array(array[place])
        return own


def learn_together(
    agents: Sequence[OnPolicyAgent], total_steps: int, callbacks: Sequence[Iterable[Any]] | None = None
) -> Sequence[OnPolicyAgent]:
    """Train agents that differ only in their seeds, in one batch on a GPU.

    Args:
        agents: Agents with equal algorithm, environment and settings, none of them trained before.
        total_steps: Number of steps for each agent.
        callbacks: Callbacks of each agent. An agent stopped by a callback keeps its state; the others continue.

    Returns:
        The agents.

    Raises:
        ValueError: If the agents cannot be trained together, or the number of `callbacks` is wrong.
    """
    total_steps = require_count("total_steps", total_steps)
    listeners = [as_callbacks(given) for given in (callbacks or [()] * len(agents))]
    if len(listeners) != len(agents):
        raise ValueError(f"give callbacks for each of {len(agents)} agents, got {len(listeners)}")
    for agent, own in zip(agents, listeners, strict=True):
        agent.goal, agent.stopping = Goal(agent.steps, total_steps), None
        for listener in own:
            listener.prepare(agent)
    group = Together(agents)
    config = agents[0].config
    for agent in agents:
        agent.begin_clock()
    learning = list(range(len(agents)))
    with StopSignals() as signals:
        for agent, own in zip(agents, listeners, strict=True):
            for listener in own:
                listener.start(agent)
        try:
            steps = 0
            while learning and steps < total_steps and signals.received is None:
                steps += config.batch
                rate = agents[0].learning_rate_at(steps - config.batch)
                reports = group.iterate(agents[0].schedule(rate), steps)
                learning = _tell(agents, listeners, learning, reports)
            learning = _tell(agents, listeners, learning, group.learner.drain_all())
        except BaseException as error:
            for place in learning:
                for listener in listeners[place]:
                    listener.fail(agents[place], error)
            raise
        for place in learning:
            if signals.received is not None:
                agents[place].stopping = signals.received.name
            _finish(agents[place], listeners[place])
    signals.raise_received()
    return agents


def check_alike(agents: Sequence[OnPolicyAgent]) -> None:
    """Raise if agents cannot share every matrix product."""
    first = agents[0]
    for agent in agents:
        if type(agent) is not type(first) or agent.source.id != first.source.id:
            raise ValueError("agents that learn together have the same algorithm and environment")
        if dataclasses.replace(agent.config, seed=0) != dataclasses.replace(first.config, seed=0):
            raise ValueError("agents that learn together have the same settings, apart from the seed")
        if agent.steps:
            raise ValueError("agents that learn together begin together: one of these has learnt before")
    if (reason := cannot_share(first)) is not None:
        raise ValueError(reason)


def cannot_share(agent: Agent) -> str | None:
    """Return why several agents like this one cannot be trained in one batch, or None."""
    if not isinstance(agent, OnPolicyAgent):
        return "only agents that learn from rollouts can learn together"
    if kind_of(agent.config.device) != "cuda":
        return "agents learn together on a GPU only"
    if not all(isinstance(one, MLP) for one in agent.built.values()) or agent.source.native is None:
        return "only networks of layers alone, mlp(...), in native environments can learn together"
    if agent.encoding.normalises or agent.config.overlap:
        return "agents whose observations are normalised, or that overlap, do not learn together"
    if schedules_of(agent.config):
        return "agents whose settings have schedules (schedules=) do not learn together"
    return None


def _tell(
    agents: Sequence[OnPolicyAgent], listeners: list[list[Callback]], learning: list[int], reports: list[Report] | None
) -> list[int]:
    """Report an iteration to the callbacks of each agent; returns the agents that continue."""
    if reports is None:
        return learning
    going_on = []
    for place in learning:
        agent = agents[place]
        agent.take_report(reports[place])
        for listener in listeners[place]:
            if listener.step(agent) is False and agent.stopping is None:
                agent.stopping = "a callback stopped it"
        if agent.stopping is None:
            going_on.append(place)
        else:
            _finish(agent, listeners[place])
    return going_on


def _finish(agent: OnPolicyAgent, listeners: list[Callback]) -> None:
    for listener in listeners:
        listener.finish(agent)
