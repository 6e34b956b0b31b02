"""The machine of on-policy algorithms: rollouts, estimates and updates, each one compiled call for each thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import exp
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.returns import Discount, gae, vtrace
from velocirl.engine import random
from velocirl.engine.compiling import compile_loop, is_compiled, learning_translator
from velocirl.engine.threads import SPACING, run_together
from velocirl.networks.activations import activation_from
from velocirl.networks.heads import Head
from velocirl.networks.mlp import MLP, ROWS, Workspace
from velocirl.networks.native import add_passes
from velocirl.networks.passes import Passes, passes
from velocirl.optim.optimisers import FACTORS, Optimiser
from velocirl.training.collecting import Journal
from velocirl.learners.counters import allocate, clear, read
from velocirl.training.updating import (
    METRICS,
    OUTCOME,
    PARTIAL,
    STEPS,
    UPDATE_COUNTS,
    Common,
    Own,
    Schedule,
    update_loop,
)

ANY_SCHEDULE = Schedule(0.0, 1, 1, 1, 1, 0.0, 0.0, 0.0, True)  # for its types
SPREAD = 4  # sums from which the explained variance follows


class Learner:
    """Learns from the journals of a collector, on as many threads as it has."""

    def __init__(
        self,
        network: MLP,
        parameters: NDArray[np.float32],
        head: Head,
        optimiser: Optimiser,
        loss_gradient: Callable[..., Any],
        divergence: int,
        loss_settings: Any,  # a NamedTuple of float32
        journals: list[Journal],
        *,
        unit: int,
        seed: int,
        vtrace_limits: tuple[float, float] | None,
    ) -> None:
        self.network = network
        self.parameters = parameters  # the agent's own, updated in place
        self.journals = journals
        self.threads = len(journals)
        self.loss_settings = loss_settings
        self.rng = random.streams(seed, self.threads)
        self.moments = np.zeros((optimiser.slots, network.num_parameters), np.float32)
        self.works = [network.workspace() for _ in journals]
        self.functions = passes(activation_from(network.activation))
        self.translator = learning_translator("learner")
        add_passes(self.translator, self.functions)
        self._common = Common(
            parameters=self.parameters,
            gradients=np.zeros((self.threads, network.num_parameters), np.float32),
            moments=self.moments,
            settings=optimiser.settings(),
            partial=np.zeros((self.threads, PARTIAL)),
            meeting=np.zeros(self.threads * SPACING, np.int64),
            sizes=np.array([journal.samples.size // unit for journal in journals]),
            outcome=np.zeros(OUTCOME),
        )
        self._own = [
            Own(
                samples=journal.samples.reshape(-1),
                last_value=journal.last_value,
                units=np.zeros(journal.samples.size // unit, np.int32),
                order=np.zeros(journal.samples.size, np.int32),
                rng=self.rng[thread],
                factors=np.zeros(FACTORS, np.float32),
                metrics=np.zeros(METRICS, np.float32),
                totals=np.zeros(METRICS),
                counters=allocate(1)[0],
            )
            for thread, journal in enumerate(journals)
        ]
        self._spread = [np.zeros(SPREAD) for _ in journals]
        self._discount = Discount(*(np.float32(1) for _ in range(4)))
        reestimate: Any = nothing if vtrace_limits is None else _reestimation(self.functions, head, *vtrace_limits)
        self._update_loop: Any = update_loop(self.functions, loss_gradient, optimiser.rule, divergence, reestimate)

    @property
    def is_compiled(self) -> bool:
        """Whether `compile` finds its largest loop in the cache."""
        return is_compiled(self._update_loop, self._arguments(0, ANY_SCHEDULE), self.translator)

    def compile(self) -> None:
        """Compile everything, or take it from the cache."""
        self._update = self._compile(self._update_loop, *self._arguments(0, ANY_SCHEDULE))
        self._estimate = self._compile(estimate_loop(), self._own[0], self._discount, self._spread[0])
        self._pack = self._compile(pack_loop(self.functions), self.network.plan, self.parameters, self.works[0])
        self.repack()

    @property
    def optimiser_steps(self) -> int:
        """How many optimiser steps were taken."""
        return int(self._common.outcome[STEPS])

    @optimiser_steps.setter
    def optimiser_steps(self, steps: int) -> None:
        self._common.outcome[STEPS] = steps

    def repack(self) -> None:
        """Lay the parameters out for the threads' products, after something else than an update changed them."""
        self.pack(self.works)

    def pack(self, works: list[Workspace]) -> None:
        """Lay the parameters out in these workspaces."""
        for work in works:
            self._pack(self.network.plan, self.parameters, work)

    def state(self) -> dict[str, NDArray[Any]]:
        """What decides the next updates, besides the parameters."""
        steps = np.array(self.optimiser_steps, np.int64)
        return {"learner.moments": self.moments.copy(), "learner.steps": steps, "learner.rng": self.rng.copy()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        moments, own = state["learner.moments"], self.moments
        if moments.shape != own.shape or moments.dtype != own.dtype:
            raise ValueError(f"learner.moments is {moments.dtype} {moments.shape}; expected {own.dtype} {own.shape}")
        own[:] = moments
        if state["learner.rng"].shape == self.rng.shape:  # else another device or number of threads was asked for
            self.rng[:] = state["learner.rng"]
        self.optimiser_steps = int(state["learner.steps"])
        self.repack()

    def estimate(self, discount: Discount) -> float:
        """Advantages and targets of the rollout; returns the variance of the targets that the critic explains."""
        self._discount = discount
        tasks = [(self._estimate, (own, discount, spread)) for own, spread in zip(self._own, self._spread, strict=True)]
        run_together([[task] for task in tasks])
        targets, squares, errors, squared_errors = np.sum(self._spread, axis=0)
        count = sum(own.samples.size for own in self._own)
        variance = squares / count - (targets / count) ** 2
        unexplained = squared_errors / count - (errors / count) ** 2
        return float(1.0 - unexplained / variance) if variance > 0 else float("nan")

    def update(self, schedule: Schedule) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """All epochs over the rollout; returns the outcome, and the mean of each metric over all samples seen."""
        self._common.meeting[:] = 0
        run_together([[(self._update, self._arguments(thread, schedule))] for thread in range(self.threads)])
        outcome = self._common.outcome
        totals = np.sum([own.totals for own in self._own], axis=0)
        return outcome, totals / max(outcome[2], 1)

    def spent(self) -> dict[str, float]:
        """Seconds of the update by what they were spent on, since this was asked last."""
        rows = [own.counters for own in self._own]
        seconds = read(rows, UPDATE_COUNTS)
        clear(rows)
        return seconds

    def _arguments(self, thread: int, schedule: Schedule) -> tuple[Any, ...]:
        plan, work, own = self.network.plan, self.works[thread], self._own[thread]
        return thread, self.threads, plan, work, self._common, own, self.loss_settings, schedule, self._discount

    def _compile(self, loop: Any, *arguments: Any) -> Callable[..., Any]:
        return compile_loop(loop, arguments, self.translator, before=lambda: None)


def pack_loop(functions: Passes) -> Callable[..., Any]:
    """`pack(plan, parameters, work)`."""
    pack = functions.pack

    def pack_parameters(plan, parameters, work):
        pack(plan, parameters, work)

    return pack_parameters


def estimate_loop() -> Callable[..., Any]:
    """`estimate(own, discount, spread)`: GAE of all columns of one thread, and how well its critic did."""

    def estimate(own, discount, spread):
        spread[:] = 0.0
        horizon = len(own.samples) // len(own.last_value)
        for i in range(len(own.last_value)):
            column = own.samples[i * horizon : (i + 1) * horizon]
            gae(column, own.last_value[i], discount)
            for t in range(len(column)):
                target, error = np.float64(column[t].target), np.float64(column[t].advantage)
                spread[0] += target
                spread[1] += target * target
                spread[2] += error
                spread[3] += error * error

    return estimate


def nothing(plan, work, own, loss_settings, discount):
    """For estimators whose advantages stay as they are during an update."""


def _reestimation(functions: Passes, head: Head, rho_limit: float, c_limit: float) -> Callable[..., Any]:
    """V-trace: before each epoch, value the rollout anew with the network of now."""
    forward, evaluate, value_column = functions.forward, head.evaluate, head.outputs

    def reestimate(plan, work, own, loss_settings, discount):  # noqa: ARG001
        row = plan.layers[0].source_row
        count = len(own.samples)
        for start in range(0, count, ROWS):
            rows = min(ROWS, count - start)
            for r in range(rows):
                observation = own.samples[start + r].observation
                for j in range(len(observation)):
                    work.values[r * row + j] = observation[j]
            forward(plan, work, rows)
            for r in range(rows):
                sample = own.samples[start + r]
                output = work.output[r]
                log_probability, _ = evaluate(output, sample.mask, sample.action, work.output_gradient[r])
                sample.ratio = exp(log_probability - sample.log_probability)
                sample.current_value = output[value_column]
        horizon = count // len(own.last_value)
        for i in range(len(own.last_value)):
            vtrace(own.samples[i * horizon : (i + 1) * horizon], own.last_value[i], discount, rho_limit, c_limit)

    return reestimate
