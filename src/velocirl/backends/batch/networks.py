"""Networks of an algorithm on one device: target networks, optimizers and scalars.

Decisions within an update (early stop, non-finite gradients, step counts) are made on the device, so that a GPU never
waits for the host. Several agents may learn in parallel; each has a row of every array.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.saved import within
from velocirl.engine.targets.launching import Work
from velocirl.optim.clipping import clip_value, norm_scale
from velocirl.optim.optimisers import FACTORS, Optimiser, Rule, optimiser_from
from velocirl.program.clock import (
    FAULT,
    GATHERED,
    GOOD,
    LEARNING_RATE,
    LOSS_SCALE,
    MAX_NORM,
    MAX_VALUE,
    NEXT_SCALE,
    Clock,
    goes_on,
)  # fmt: skip
from velocirl.program.task import Task

APPLIES = FACTORS - 1  # index of the factor that is 1 if the step is taken; no optimizer uses it
LARGEST_SCALE, GROWTH_INTERVAL = 2.0**24, 2000  # fp16 loss scale: maximum; doubled after N steps without overflow


class Learnt(NamedTuple):
    """Parameters and optimizer state of a network, for all agents."""

    parameters: Any  # (agents * size,)
    gradient: Any  # (agents * size,)
    moments: Any  # (slots, agents * size)
    settings: Any  # of the optimizer, float64
    factors: Any  # (agents, FACTORS)
    undecayed: Any  # (ranges, 2) int64, of an agent's parameters that are not weights; empty without decay
    undecayed_settings: Any  # of the optimizer without weight decay
    undecayed_factors: Any  # factors from `undecayed_settings`
    norm: Any  # (agents,) float64, of the gradient
    norms: Any  # (agents, 2) float64, sum and count of the norms of an iteration
    steps: Any  # (agents,) int64, steps so far
    size: int  # parameters of each agent
    scaling: int  # 1 where gradients are scaled against underflow (fp16), else 0


NO_RANGES = np.zeros((0, 2), np.int64)


def scale_gradient(p, r, t, learnt, clock):  # noqa: ARG001 - every function of an index has the same first arguments
    """Turn the sum of scaled gradients into their mean, with each element clipped."""
    s = p // learnt.size
    share = 1.0 / (max(clock.counts[s, GATHERED], 1) * clock.numbers[s, LOSS_SCALE])
    limit = np.float32(clock.numbers[s, MAX_VALUE])
    learnt.gradient[p] = clip_value(learnt.gradient[p] * np.float32(share), limit)


def move(p, r, t, parameters, target, share, clock, size):  # noqa: ARG001
    """Polyak averaging: move a target network a fraction `share` toward its network."""
    if goes_on(clock, p // size):
        target[p] = np.float32(share[0]) * parameters[p] + (np.float32(1) - np.float32(share[0])) * target[p]


class Descent(NamedTuple):
    """Functions of an optimizer step."""

    prepare_step: Callable[..., Any]  # (s, r, t, learnt, clock): decides whether the step is taken
    descend: Callable[..., Any]  # (p, r, t, learnt, clock)
    step_number: Callable[..., Any]  # (s, r, t, gradient, learnt, which, clock)


def descent(rule: Rule, *, alone: bool) -> Descent:
    """Compose the step functions of an optimizer; `alone` if there is only one agent."""
    prepare, apply = rule

    def prepare_step(s, r, t, learnt, clock):  # noqa: ARG001
        factors = learnt.factors[s]
        factors[APPLIES] = 0.0
        if not goes_on(clock, s):
            return
        norm = learnt.norm[s]
        if norm * 0.0 != 0.0:
            if learnt.scaling and clock.numbers[s, LOSS_SCALE] > 1.0:
                # An overflow of fp16: this step is skipped, and the next update has half the loss scale.
                clock.numbers[s, NEXT_SCALE] = 0.5 * clock.numbers[s, LOSS_SCALE]
                clock.counts[s, GOOD] = 0
            else:
                clock.counts[s, FAULT] = 1
            return
        learnt.steps[s] += 1
        learnt.norms[s, 0] += norm
        learnt.norms[s, 1] += 1.0
        prepare(learnt.settings, clock.numbers[s, LEARNING_RATE], learnt.steps[s], factors)
        if len(learnt.undecayed) > 0:
            still = learnt.undecayed_factors[s]
            prepare(learnt.undecayed_settings, clock.numbers[s, LEARNING_RATE], learnt.steps[s], still)
        factors[APPLIES] = 1.0
        if learnt.scaling:
            clock.counts[s, GOOD] += 1
            if clock.counts[s, GOOD] >= GROWTH_INTERVAL and clock.numbers[s, LOSS_SCALE] < LARGEST_SCALE:
                clock.numbers[s, NEXT_SCALE] = 2.0 * clock.numbers[s, LOSS_SCALE]
                clock.counts[s, GOOD] = 0

    def descend(p, r, t, learnt, clock):  # noqa: ARG001
        s = 0 if alone else p // learnt.size  # on a GPU, a division costs more than the rest
        factors = learnt.factors[s]
        if factors[APPLIES] > 0.0:
            norm, place = learnt.norm[s], p - s * learnt.size
            for k in range(len(learnt.undecayed)):
                if learnt.undecayed[k, 0] <= place < learnt.undecayed[k, 1]:
                    factors = learnt.undecayed_factors[s]
            held = np.float32(norm_scale(norm * norm, clock.numbers[s, MAX_NORM]))
            apply(learnt.parameters, learnt.gradient[p] * held, learnt.moments, p, factors)

    def step_number(s, r, t, gradient, learnt, which, clock):  # noqa: ARG001
        if goes_on(clock, s):
            p = s * learnt.size + which
            learnt.steps[p] += 1
            prepare(learnt.settings, clock.numbers[s, LEARNING_RATE], learnt.steps[p], learnt.factors[s])
            apply(learnt.parameters, gradient[s], learnt.moments, p, learnt.factors[s])

    return Descent(prepare_step, descend, step_number)


class BatchNetworks:
    """All networks and scalars of a task on one device, for one or several agents."""

    def __init__(self, task: Task, device: Any, agents: int, clock: Clock, *, scaling: bool) -> None:
        self.task, self.device, self.agents, self.clock = task, device, agents, clock
        self.reduce: Callable[[Any], None] = device.reducing(task.reducer)
        self._optimiser: Optimiser = optimiser_from(task.config.optimiser)
        self._limits = task.config.max_grad_norm, task.config.max_grad_value
        self._together = agents > 1
        self.networks: dict[str, Any] = {}
        for name in task.trained:
            self.networks[name] = device.make_network(task.built[name], agents if self._together else None)
        for name, source in task.targets.items():
            self.networks[name] = self.networks[source].twin()
        zeros = device.zeros
        self.learnt = {name: self._learnt(name, scaling) for name in task.trained}
        count = max(len(task.numbers), 1)
        self.numbers = zeros(agents, count)
        starts = [task.number_starts[name] for name in task.numbers] or [0.0]
        device.store(self.numbers, np.tile(np.array(starts, np.float32), (agents, 1)))
        self.number_learnt = Learnt(
            parameters=self.numbers.reshape(-1),
            gradient=zeros(1),
            moments=zeros(max(self._optimiser.slots, 1), agents * count),
            settings=device.put(self._optimiser.without_decay.settings()),
            **self._factors(NO_RANGES),
            norm=zeros(1, dtype=np.float64),
            norms=zeros(1, 2, dtype=np.float64),
            steps=zeros(agents * count, dtype=np.int64),
            size=count,
            scaling=0,
        )
        self._descent = descent(self._optimiser.rule, alone=agents == 1)
        # Off-policy, an update is one batch, whose rows are scaled already.
        averages = task.value is not None and task.config.gradient_accumulation > 1
        self._scales = task.config.max_grad_value > 0 or scaling or averages

    @cached_property
    def first_norms(self) -> Any:
        """Gradient norms of the network that takes the first step of an update, (agents, 2): sum and count."""
        return self.learnt[self.task.program.first_trained].norms

    @cached_property
    def first_steps(self) -> Any:
        """Optimizer steps so far of the network that takes the first step of an update, (agents,)."""
        return self.learnt[self.task.program.first_trained].steps

    @property
    def number_records(self) -> Any:
        """The scalars as records with one field each, (agents,)."""
        return self.device.as_records(self.numbers, self.task.numbers, np.float32)

    @cached_property
    def trained_parameters(self) -> list[Any]:
        """All trained parameters, as flat arrays, one agent after the other."""
        return [*(learnt.parameters for learnt in self.learnt.values()), self.numbers]

    def set_rates(self, learning_rate: float, max_grad_norm: float, max_grad_value: float) -> None:
        """Set the learning rate and the gradient limits of the next steps."""
        self.device.fill(self.clock.numbers[:, LEARNING_RATE], learning_rate)
        if (limits := (max_grad_norm, max_grad_value)) != self._limits:
            self._limits = limits
            for column, limit in zip((MAX_NORM, MAX_VALUE), limits, strict=True):
                self.device.fill(self.clock.numbers[:, column], limit)

    def begin(self) -> None:
        """Begin an iteration."""
        for learnt in self.learnt.values():
            self.device.fill(learnt.norms, 0.0)

    def step_parts(self, name: str) -> tuple[Callable[[], None] | None, Callable[[], None], Work, Callable[[], None]]:
        """Return the parts of a network's optimizer step: scale the gradient, find its norm, prepare, descend.

        The first is None where nothing has to be scaled. A step with a non-finite gradient is not taken.
        """
        learnt, clock, launch = self.learnt[name], self.clock, self.device.launch
        count, network = self.agents * learnt.size, self.networks[name]
        scale = launch([Work(scale_gradient, (learnt, clock))], count) if self._scales else None
        descend = launch([Work(self._descent.descend, (learnt, clock))], count)
        return (
            None if scale is None else lambda: scale(0),
            lambda: self.device.find_norms(network.gradient, learnt.norm),
            Work(self._descent.prepare_step, (learnt, clock)),
            lambda: descend(0),
        )

    def number_step(self, gradient: Any, name: str) -> Work:
        """Return the work that takes a scalar's optimizer step, along gradients (agents,)."""
        which = self.task.numbers.index(name)
        return Work(self._descent.step_number, (gradient, self.number_learnt, which, self.clock))

    def bind_follow(self, target: str, source: str, share: NDArray[Any]) -> Callable[[], None]:
        """Return a function that moves a target network toward its network."""
        learnt, follower = self.networks[source], self.networks[target]
        parameters, slow = self._flat(learnt.parameters), self._flat(follower.parameters)
        size = learnt.num_parameters
        arguments = parameters, slow, self.device.shown(share), self.clock, size
        run = self.device.launch([Work(move, arguments)], self.agents * size)

        def follow() -> None:
            run(0)
            if learnt.takes_statistics:
                follower.buffers_from(learnt)

        return follow

    def begin_training(self) -> None:
        """Initialize the trained networks from the task, and target networks as copies of their networks."""
        for name in self.task.trained:
            self.networks[name].parameters_from(self.task.parameters[name])
        for target, source in self.task.targets.items():
            self.device.copy(self.networks[target].parameters, self.networks[source].parameters)
            self.networks[target].load_buffers(self.networks[source].buffers())

    def pack(self) -> None:
        """No-op: parameters have no packed copy."""

    def gauges(self) -> dict[str, float]:
        """Return no gauges."""
        return {}

    def to_host(self, name: str) -> NDArray[np.float32]:
        """Return the parameters of a network."""
        return self.networks[name].to_host()

    def buffers(self, name: str) -> dict[str, NDArray[Any]]:
        """Return a network's buffers, by name."""
        return self.networks[name].buffers()

    def state(self) -> dict[str, NDArray[Any]]:
        """Return all arrays that determine the next updates, without the acting network's parameters.

        With several agents, each array has a first dimension for them.
        """
        task, fetch, slots = self.task, self.device.fetch, self._optimiser.slots
        arrays: dict[str, NDArray[Any]] = {}
        for name, network in self.networks.items():
            if name != task.acting:
                arrays[f"{name}.parameters"] = network.to_host()
            if self._keeps_buffers(name):
                arrays |= {f"{name}.buffer.{one}": array for one, array in network.buffers().items()}
        for name, learnt in self.learnt.items():
            arrays[f"{name}.moments"] = self._by_agent(fetch(learnt.moments)[:slots], learnt.size)
            arrays[f"{name}.steps"] = self._one(fetch(learnt.steps))
        if task.numbers:
            learnt = self.number_learnt
            arrays["numbers.values"] = self._one(fetch(self.numbers))
            arrays["numbers.moments"] = self._by_agent(fetch(learnt.moments)[:slots], learnt.size)
            arrays["numbers.steps"] = self._one(fetch(learnt.steps).reshape(self.agents, -1))
        return arrays

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Continue from a saved `state`."""
        task, device = self.task, self.device
        for name, network in self.networks.items():
            if self._keeps_buffers(name):
                network.load_buffers(within(f"{name}.buffer", state))
            if name != task.acting:
                network.parameters_from(state[f"{name}.parameters"])
        for target, source in task.targets.items():
            if not self._keeps_buffers(target):
                self.networks[target].load_buffers(self.networks[source].buffers())
        for name, learnt in self.learnt.items():
            self._store_moments(learnt, state[f"{name}.moments"])
            device.store(learnt.steps, state[f"{name}.steps"].reshape(-1))
        if task.numbers:
            device.store(self.numbers, state["numbers.values"].reshape(self.agents, -1))
            self._store_moments(self.number_learnt, state["numbers.moments"])
            device.store(self.number_learnt.steps, state["numbers.steps"].reshape(-1))

    def _keeps_buffers(self, name: str) -> bool:
        """Return whether a network has its own buffers: a target network has them if learning changes its network's."""
        targets = self.task.targets
        return name not in targets or self.networks[targets[name]].takes_statistics

    def _factors(self, undecayed: NDArray[np.int64]) -> dict[str, Any]:
        """Return the optimizer's factors, and the fields of undecayed parameters, where others decay."""
        without = self._optimiser.without_decay
        device = self.device
        some = len(undecayed) > 0 and without != self._optimiser
        return {
            "factors": device.zeros(self.agents, FACTORS),
            "undecayed": device.put(undecayed) if some else device.zeros(0, 2, dtype=np.int64),
            "undecayed_settings": device.put(without.settings()),
            "undecayed_factors": device.zeros(self.agents, FACTORS),
        }

    def _learnt(self, name: str, scaling: bool) -> Learnt:
        network = self.networks[name]
        agents, size, zeros = self.agents, network.num_parameters, self.device.zeros
        return Learnt(
            parameters=self._flat(network.parameters),
            gradient=self._flat(network.gradient),
            moments=zeros(max(self._optimiser.slots, 1), agents * size),
            settings=self.device.put(self._optimiser.settings()),
            **self._factors(self.task.built[name].undecayed),
            norm=zeros(agents, dtype=np.float64),
            norms=zeros(agents, 2, dtype=np.float64),
            steps=zeros(agents, dtype=np.int64),
            size=size,
            scaling=int(scaling),
        )

    def _store_moments(self, learnt: Learnt, moments: NDArray[Any]) -> None:
        slots = self._optimiser.slots
        host = self.device.fetch(learnt.moments)
        flat = moments.swapaxes(0, 1) if self._together else moments
        host[:slots] = flat.reshape(slots, host.shape[1])
        self.device.store(learnt.moments, host)

    def _by_agent(self, moments: NDArray[Any], size: int) -> NDArray[Any]:
        """Reshape moments (slots, agents * size) to (slots, size) for one agent, or (agents, slots, size)."""
        return moments.reshape(len(moments), self.agents, size).swapaxes(0, 1) if self._together else moments

    def _one(self, array: NDArray[Any]) -> NDArray[Any]:
        """Drop an array's dimension of agents if there is only one."""
        return array if self._together or array.ndim == 1 else array[0]

    def _flat(self, parameters: Any) -> Any:
        return self.device.flat(parameters)
