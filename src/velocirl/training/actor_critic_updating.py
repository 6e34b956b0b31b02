"""The update of an actor and two critics: one batch, a step of each network, of the temperature, and frozen copies.

A thread takes its rows of the batch block by block through all networks that they meet, so that a block stays in its
cache. The two critics are one network of two chains, which reads [observation | action].
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.networks.mlp import ROWS, Plan, Workspace
from velocirl.networks.passes import Passes
from velocirl.optim.optimisers import Rule
from velocirl.learners.counters import TIMING, glance, lap
from velocirl.training.descending import Descent, Trained
from velocirl.training.off_policy import (
    ACTED,
    ACTOR,
    ACTOR_METRICS,
    ACTOR_NORMS,
    CRITIC,
    FAULT,
    METRICS,
    NORMS,
    OPTIMISER,
    TARGET,
    ActorCriticLoss,
)  # fmt: skip

LINE = 16  # numbers between two that different threads write, so that no two share a line of the cache


class ActorCriticLearning(NamedTuple):
    """What one thread needs for an update; the workspaces and what follows the random streams are its own."""

    actor_plan: Plan
    critic_plan: Plan
    actor_work: Workspace
    dreamer_work: Workspace  # of the frozen actor, where that chooses the next action
    critic_work: Workspace
    frozen_work: Workspace  # of the frozen critics
    actor: Trained
    critic: Trained
    frozen: NDArray[np.float32]  # the parameters of the frozen critics
    frozen_actor: NDArray[np.float32]  # and of the frozen actor
    temperature: NDArray[np.float32]  # (1 + slots, 1) its logarithm, and the moments of that
    slopes: NDArray[np.float64]  # (threads, LINE) the sums of the slopes of the temperature, in the first column
    rng: NDArray[np.uint64]  # (batch, 2) a stream for each row of a batch, so that threads make no difference
    noise: NDArray[np.float32]  # (ROWS, action size) of the actions in the block
    actions: NDArray[np.float32]  # (ROWS, action size)
    log_probabilities: NDArray[np.float32]  # (ROWS,)
    metrics: NDArray[np.float32]  # (METRICS,) of one sample
    totals: NDArray[np.float64]  # (METRICS,) of an iteration


def copy_row(source, into, place):
    """Copy a row to where a network reads it."""
    taken = into[place : place + len(source)]
    for j in range(len(source)):
        taken[j] = source[j]


def actor_critic_update(
    loss: ActorCriticLoss, functions: Passes, descending: Descent, rule: Rule, inputs: int, size: int
) -> Callable[..., Any]:
    """`update(thread, threads, learning, memory, batch, settings, pace, number, meetings) -> meetings`.

    `number` counts the updates of the run from 1; `inputs` is the width of an observation, `size` that of an action.
    """
    frozen_actor, learns_temperature = loss.frozen_actor, loss.learns_temperature
    dream, target, critic_gradient, temperature_slope = (
        loss.dream, loss.target, loss.critic_gradient, loss.temperature_slope
    )  # fmt: skip
    act_again, value_slope, actor_gradient = loss.act_again, loss.value_slope, loss.actor_gradient
    forward, backward, clear = functions.forward, functions.backward, functions.clear
    improve, thaw, apply = descending.improve, descending.thaw, rule.apply

    def value_following(learning, memory, batch, settings, start, rows):
        """Choose the actions that come next, and let the frozen critics value them."""
        dreamer = learning.dreamer_work if frozen_actor else learning.actor_work
        frozen = learning.frozen_work
        actor_row, critic_row = learning.actor_plan.layers[0].source_row, learning.critic_plan.layers[0].source_row
        for r in range(rows):
            following = memory.rows[batch.lasts[start + r]].next_observation
            copy_row(following, dreamer.values, r * actor_row)
            copy_row(following, frozen.values, r * critic_row)
        forward(learning.actor_plan, dreamer, rows)
        for r in range(rows):
            place = r * critic_row + inputs
            action = frozen.values[place : place + size]
            learning.log_probabilities[r] = dream(dreamer.output[r], learning.rng[start + r], settings, action)
        forward(learning.critic_plan, frozen, rows)

    def judge(learning, memory, batch, settings, temperature, start, rows):
        """The gradient of the critics, from a block of the batch whose following values are known."""
        work, frozen, critic_row = learning.critic_work, learning.frozen_work, learning.critic_plan.layers[0].source_row
        for r in range(rows):
            sample = memory.rows[batch.places[start + r]]
            copy_row(sample.observation, work.values, r * critic_row)
            copy_row(sample.action, work.values, r * critic_row + inputs)
        forward(learning.critic_plan, work, rows)
        for r in range(rows):
            b = start + r
            goal = target(
                frozen.output[r], batch.rewards[b], batch.discounts[b], learning.log_probabilities[r], temperature
            )
            batch.errors[b] = critic_gradient(
                work.output[r], goal, batch.weights[b], settings, work.output_gradient[r], learning.metrics
            )
            for m in range(ACTOR_METRICS):
                learning.totals[m] += learning.metrics[m]
        backward(learning.critic_plan, work, rows, False)

    def act_better(learning, memory, batch, settings, temperature, start, rows):
        """The gradient of the actor through the critics, from a block; gives the sum of slopes of the temperature."""
        work, critics = learning.actor_work, learning.critic_work
        actor_row, critic_row = learning.actor_plan.layers[0].source_row, learning.critic_plan.layers[0].source_row
        for r in range(rows):
            observation = memory.rows[batch.places[start + r]].observation
            copy_row(observation, work.values, r * actor_row)
            copy_row(observation, critics.values, r * critic_row)
        forward(learning.actor_plan, work, rows)
        slopes = np.float64(0)
        for r in range(rows):
            action = learning.actions[r]
            log_probability = act_again(work.output[r], learning.rng[start + r], settings, learning.noise[r], action)
            learning.log_probabilities[r] = log_probability
            slopes += temperature_slope(log_probability, settings)
            copy_row(action, critics.values, r * critic_row + inputs)
        forward(learning.critic_plan, critics, rows)
        for r in range(rows):
            learning.totals[ACTOR_METRICS] += value_slope(critics.output[r], critics.output_gradient[r])
        backward(learning.critic_plan, critics, rows, True, False)
        for r in range(rows):
            place = r * critic_row + inputs
            actor_gradient(
                work.output[r], learning.noise[r], learning.actions[r], critics.deltas[place : place + size],
                learning.log_probabilities[r], temperature, settings, work.output_gradient[r], learning.metrics,
            )  # fmt: skip
            for m in range(ACTOR_METRICS, METRICS):
                learning.totals[m] += learning.metrics[m]
        backward(learning.actor_plan, work, rows, False)
        return slopes

    def update(thread, threads, learning, memory, batch, settings, pace, number, meetings):
        count = len(batch.places)
        first, stop = count * thread // threads, count * (thread + 1) // threads
        # Equal blocks: a small rest would load all the weights for little.
        blocks = max((stop - first + ROWS - 1) // ROWS, 1)
        most = max((stop - first + blocks - 1) // blocks, 1)
        temperature = exp(learning.temperature[0, 0])
        counters = batch.counters[thread]
        timed = counters[TIMING] != 0
        since = glance(timed)
        clear(learning.critic_plan, learning.critic_work)
        for start in range(first, stop, most):
            rows = min(most, stop - start)
            value_following(learning, memory, batch, settings, start, rows)
            since = lap(counters, TARGET, since, timed)
            judge(learning, memory, batch, settings, temperature, start, rows)
            since = lap(counters, CRITIC, since, timed)
        meetings = improve(
            thread, threads, number, learning.critic_plan, learning.critic_work, learning.critic, batch, NORMS, pace,
            count, meetings,
        )  # fmt: skip
        if number % pace.actor_every == 0 and batch.outcome[FAULT] == 0.0:
            slopes = np.float64(0)
            since = glance(timed)
            clear(learning.actor_plan, learning.actor_work)
            for start in range(first, stop, most):
                rows = min(most, stop - start)
                slopes += act_better(learning, memory, batch, settings, temperature, start, rows)
            learning.slopes[thread, 0] = slopes
            lap(counters, ACTOR, since, timed)
            meetings = improve(
                thread, threads, number // pace.actor_every, learning.actor_plan, learning.actor_work, learning.actor,
                batch, ACTOR_NORMS, pace, count, meetings,
            )  # fmt: skip
            since = glance(timed)
            if thread == 0 and batch.outcome[FAULT] == 0.0:
                batch.outcome[ACTED] += count
                if learns_temperature:
                    heat(learning, threads, count)
            lap(counters, OPTIMISER, since, timed)
        if number % pace.target_every == 0 and batch.outcome[FAULT] == 0.0:
            meetings = thaw(
                thread, threads, pace.tau, learning.critic_plan, learning.frozen_work, learning.critic.parameters,
                learning.frozen, batch, meetings,
            )  # fmt: skip
            if frozen_actor:
                meetings = thaw(
                    thread, threads, pace.tau, learning.actor_plan, learning.dreamer_work, learning.actor.parameters,
                    learning.frozen_actor, batch, meetings,
                )  # fmt: skip
        return meetings

    def heat(learning, threads, count):
        """The step of the temperature, by the factors of the actor's step."""
        slope = np.float64(0)
        for other in range(threads):
            slope += learning.slopes[other, 0]
        moments = learning.temperature[1:]
        apply(learning.temperature[0], np.float32(slope / count), moments, 0, learning.actor.factors[0])

    return update
