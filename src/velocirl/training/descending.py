"""One step of an optimiser, taken by all threads together.

Each thread has a gradient of its own rows of the batch. The threads meet, each adds up its share of the parameters in
the order of the threads, they meet, and each takes the step of its share and lays a part of the parameters out for the
products. So a result depends on the number of threads, but never on their timing.
"""

from __future__ import annotations

from collections.abc import Callable
from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.threads import meet
from velocirl.networks.passes import Passes, pack_part
from velocirl.optim.clipping import clip_value, norm_scale
from velocirl.optim.optimisers import FACTORS, Optimiser, Rule
from velocirl.learners.counters import TIMING, glance, lap
from velocirl.training.off_policy import FAULT, OPTIMISER, WAITING

PARTIAL = 16  # sums that a thread forms side by side; two lines of the cache, so that no two threads share one
LINE = 16  # numbers of a share at least, for the same reason


class Trained(NamedTuple):
    """A network's parameters and what their optimiser needs, shared by all threads."""

    parameters: NDArray[np.float32]  # (parameters,)
    gradients: NDArray[np.float32]  # (threads, parameters)
    moments: NDArray[np.float32]  # (slots, parameters) of the optimiser
    settings: NDArray[np.float64]  # of the optimiser
    factors: NDArray[np.float32]  # (threads, FACTORS) of the optimiser
    partial: NDArray[np.float64]  # (threads, PARTIAL) sums of squares of the gradient


class Descent(NamedTuple):
    """The functions of a step; a translator must have the kernels added first, in their order."""

    kernels: tuple[Callable[..., Any], ...]
    # (thread, threads, number, plan, work, trained, batch, norms, pace, count, meetings) -> meetings; `number` counts
    # the steps of this network from 1, `norms` is the place of the outcome that sums the norms of its gradients, and
    # `count` is over how many samples the gradients are summed. All threads have packed when it returns.
    improve: Callable[..., Any]
    # (thread, threads, tau, plan, work, parameters, frozen, batch, meetings) -> meetings: let the parameters of a
    # frozen network move, and lay them out in its `work`, without what only gradients need.
    thaw: Callable[..., Any]


def allocate_trained(parameters: NDArray[np.float32], optimiser: Optimiser, threads: int) -> Trained:
    """What the step of a network needs; the parameters are updated in place."""
    size = len(parameters)
    return Trained(
        parameters=parameters,
        gradients=np.zeros((threads, size), np.float32),
        moments=np.zeros((optimiser.slots, size), np.float32),
        settings=optimiser.settings(),
        factors=np.zeros((threads, max(FACTORS, LINE)), np.float32),
        partial=np.zeros((threads, PARTIAL)),
    )


def share_of(thread, threads, size):
    """The first place of a thread's share of the parameters, and the one after its last."""
    share = (size // threads + LINE - 1) // LINE * LINE
    low, high = min(thread * share, size), min((thread + 1) * share, size)
    return low, (size if thread == threads - 1 else high)


def reduce_share(gradients, threads, low, high, scale, limit, squares):
    """Add up the threads' gradients between two places, into the first row; `squares` become sums of their squares."""
    own = gradients[0, low:high]
    for other in range(1, threads):
        more = gradients[other, low:high]
        for p in range(len(own)):
            own[p] += more[p]
    for p in range(len(own)):
        own[p] = clip_value(own[p] * scale, limit)
    # Several sums side by side, since each addition to a single one would wait for the one before it.
    for k in range(PARTIAL):
        squares[k] = 0.0
    whole = len(own) // PARTIAL * PARTIAL
    for p in range(0, whole, PARTIAL):
        some = own[p : p + PARTIAL]
        for k in range(PARTIAL):
            squares[k] += np.float64(some[k]) * np.float64(some[k])
    for p in range(whole, len(own)):
        squares[0] += np.float64(own[p]) * np.float64(own[p])


def move_share(parameters, frozen, low, high, tau):
    """Move a part of the parameters of a frozen network towards those of the network."""
    online, slow = parameters[low:high], frozen[low:high]
    rest = np.float32(1) - tau
    for p in range(len(slow)):
        slow[p] = tau * online[p] + rest * slow[p]


def descent(functions: Passes, rule: Rule) -> Descent:
    """Compose the step of a network with this rule."""
    unpack, prepare, apply = functions.unpack, rule.prepare, rule.apply

    def step_share(parameters, gradients, moments, factors, low, high, scale):
        """The optimiser's step of the parameters between two places."""
        for p in range(np.uint64(low), np.uint64(high)):
            apply(parameters, gradients[0, p] * scale, moments, p, factors)

    def improve(thread, threads, number, plan, work, trained, batch, norms, pace, count, meetings):
        low, high = share_of(thread, threads, len(trained.parameters))
        counters = batch.counters[thread]
        timed = counters[TIMING] != 0
        since = glance(timed)
        unpack(plan, work, trained.gradients[thread])
        since = lap(counters, OPTIMISER, since, timed)
        meetings += 1
        meet(batch.meeting, thread, threads, meetings)
        since = lap(counters, WAITING, since, timed)
        scale, limit = np.float32(1.0 / count), np.float32(pace.max_grad_value)
        reduce_share(trained.gradients, threads, low, high, scale, limit, trained.partial[thread])
        since = lap(counters, OPTIMISER, since, timed)
        meetings += 1
        meet(batch.meeting, thread, threads, meetings)
        since = lap(counters, WAITING, since, timed)
        squares = np.float64(0)
        for other in range(threads):
            for k in range(PARTIAL):
                squares += trained.partial[other, k]
        if squares * 0 != 0:
            if thread == 0:
                batch.outcome[FAULT] = 1.0
        else:
            factors = trained.factors[thread]
            prepare(trained.settings, pace.learning_rate, number, factors)
            clip = np.float32(norm_scale(squares, pace.max_grad_norm))
            step_share(trained.parameters, trained.gradients, trained.moments, factors, low, high, clip)
            if thread == 0:
                batch.outcome[norms] += sqrt(squares)
        since = lap(counters, OPTIMISER, since, timed)
        meetings += 1
        meet(batch.meeting, thread, threads, meetings)
        since = lap(counters, WAITING, since, timed)
        pack_part(plan, trained.parameters, work.packed, thread, threads, True)
        since = lap(counters, OPTIMISER, since, timed)
        meetings += 1
        meet(batch.meeting, thread, threads, meetings)
        lap(counters, WAITING, since, timed)
        return meetings

    def thaw(thread, threads, tau, plan, work, parameters, frozen, batch, meetings):
        low, high = share_of(thread, threads, len(frozen))
        counters = batch.counters[thread]
        timed = counters[TIMING] != 0
        since = glance(timed)
        move_share(parameters, frozen, low, high, np.float32(tau))
        since = lap(counters, OPTIMISER, since, timed)
        meetings += 1
        meet(batch.meeting, thread, threads, meetings)
        since = lap(counters, WAITING, since, timed)
        pack_part(plan, frozen, work.packed, thread, threads, False)
        since = lap(counters, OPTIMISER, since, timed)
        meetings += 1
        meet(batch.meeting, thread, threads, meetings)
        lap(counters, WAITING, since, timed)
        return meetings

    return Descent((reduce_share, move_share, step_share), improve, thaw)
