"""The update of a network that values every action: one batch, one step of the optimiser, and the frozen network."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiling import add_kernel, compile_loop, learning_translator
from velocirl.networks.activations import activation_from
from velocirl.networks.mlp import MLP, ROWS, Plan, Workspace
from velocirl.networks.native import add_passes
from velocirl.networks.passes import Passes, passes
from velocirl.optim.optimisers import Optimiser
from velocirl.learners.counters import TIMING, glance, lap
from velocirl.training.deep_agent import fitting_all
from velocirl.training.descending import Descent, Trained, allocate_trained, descent
from velocirl.training.off_policy import CRITIC, FAULT, METRICS, NORMS, SAMPLE, TARGET, ValueLoss
from velocirl.training.on_policy import pack_loop


class ValueLearning(NamedTuple):
    """What one thread needs for an update; all but the workspaces and sums is shared."""

    plan: Plan
    work: Workspace
    frozen_work: Workspace
    trained: Trained
    frozen: NDArray[np.float32]  # the parameters of the frozen network
    metrics: NDArray[np.float32]  # (METRICS,) of one sample
    totals: NDArray[np.float64]  # (METRICS,) of an iteration


def value_update(loss: ValueLoss, functions: Passes, descending: Descent) -> Callable[..., Any]:
    """`update(thread, threads, learning, memory, batch, settings, pace, number, meetings) -> meetings`.

    `number` counts the updates of the run from 1.
    """
    target, needs_output, loss_gradient = loss
    forward, backward, clear = functions.forward, functions.backward, functions.clear
    improve, thaw = descending.improve, descending.thaw

    def gather(observation, values, place):
        into = values[place : place + len(observation)]
        for j in range(len(observation)):
            into[j] = observation[j]

    def add_gradients(learning, memory, batch, settings, counters, start, rows):
        """Forward, loss and backward of some rows of the batch."""
        timed = counters[TIMING] != 0
        since = glance(timed)
        plan, work, frozen = learning.plan, learning.work, learning.frozen_work
        input_row = plan.layers[0].source_row
        for r in range(rows):
            following = memory.rows[batch.lasts[start + r]].next_observation
            gather(memory.rows[batch.places[start + r]].observation, work.values, r * input_row)
            gather(following, frozen.values, r * input_row)
            if needs_output:  # what the network itself says of it goes through it together with the rest
                gather(following, work.values, (rows + r) * input_row)
        since = lap(counters, SAMPLE, since, timed)
        forward(plan, frozen, rows)
        since = lap(counters, TARGET, since, timed)
        forward(plan, work, 2 * rows if needs_output else rows)
        for r in range(rows):
            b = start + r
            ahead = work.output[rows + r if needs_output else r]
            mask = memory.rows[batch.lasts[b]].mask
            goal = target(ahead, frozen.output[r], batch.rewards[b], batch.discounts[b], mask)
            batch.errors[b] = loss_gradient(
                work.output[r], memory.rows[batch.places[b]].action, goal, batch.weights[b], settings,
                work.output_gradient[r], learning.metrics,
            )  # fmt: skip
            for m in range(METRICS):
                learning.totals[m] += learning.metrics[m]
        backward(plan, work, rows, False)
        lap(counters, CRITIC, since, timed)

    def update(thread, threads, learning, memory, batch, settings, pace, number, meetings):
        count = len(batch.places)
        first, stop = count * thread // threads, count * (thread + 1) // threads
        most = ROWS // 2 if needs_output else ROWS
        plan, trained = learning.plan, learning.trained
        clear(plan, learning.work)
        for start in range(first, stop, most):
            add_gradients(learning, memory, batch, settings, batch.counters[thread], start, min(most, stop - start))
        meetings = improve(
            thread, threads, number, plan, learning.work, trained, batch, NORMS, pace, count, meetings
        )  # fmt: skip
        if number % pace.target_every == 0 and batch.outcome[FAULT] == 0.0:
            meetings = thaw(
                thread, threads, pace.tau, plan, learning.frozen_work, trained.parameters, learning.frozen, batch,
                meetings,
            )  # fmt: skip
        return meetings

    return update


class ValueUpdater:
    """A network, its optimiser and its frozen copy, for as many threads as there are."""

    def __init__(
        self,
        network: MLP,
        parameters: NDArray[np.float32],  # the agent's own, updated in place
        optimiser: Optimiser,
        loss: ValueLoss,
        settings: Any,  # of the loss: a NamedTuple of float32
        threads: int,
    ) -> None:
        self.settings = settings
        self.parameters = parameters
        self.frozen = parameters.copy()
        self.trained = allocate_trained(parameters, optimiser, threads)
        self.functions = passes(activation_from(network.activation))
        self.translator = learning_translator("learner")
        add_passes(self.translator, self.functions)
        descending = descent(self.functions, optimiser.rule)
        for kernel in descending.kernels:
            add_kernel(self.translator, kernel)  # pyright: ignore[reportArgumentType]
        self.update = value_update(loss, self.functions, descending)
        work, frozen = network.workspace(), network.workspace()
        self.learning = [
            ValueLearning(
                network.plan,
                network.workspace()._replace(packed=work.packed),  # each thread packs a part of it
                network.workspace()._replace(packed=frozen.packed),
                self.trained,
                self.frozen,
                np.zeros(METRICS, np.float32),
                np.zeros(METRICS),
            )
            for _ in range(threads)
        ]
        self.acting = network.plan, self.learning[0].work
        loop: Any = pack_loop(self.functions)
        arguments = network.plan, parameters, self.learning[0].work
        self._pack = compile_loop(loop, arguments, self.translator, before=lambda: None)

    @property
    def learnt(self) -> list[NDArray[np.float32]]:
        """All parameters that learn, for the guard against numbers that are none."""
        return [self.parameters]

    @property
    def totals(self) -> list[NDArray[np.float64]]:
        """The sums of the metrics, of each thread."""
        return [own.totals for own in self.learning]

    def take(self) -> None:
        """Lay the parameters of both networks out anew, after something else than an update changed them."""
        one = self.learning[0]
        self._pack(one.plan, self.parameters, one.work)
        self._pack(one.plan, self.frozen, one.frozen_work)

    def state(self) -> dict[str, NDArray[Any]]:
        """What decides the next updates, besides the agent's own parameters; copies."""
        return {name: array.copy() for name, array in self._arrays().items()}

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        own = self._arrays()
        fitting_all(state, own)
        for name, array in own.items():
            array[...] = state[name]

    def _arrays(self) -> dict[str, NDArray[Any]]:
        return {"learner.moments": self.trained.moments, "learner.frozen": self.frozen}
