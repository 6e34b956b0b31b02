"""Drivers: compiled loops that call units by their addresses, written and compiled once for all algorithms.

A block of rows goes through the units of a pass one after the other and stays in its core's cache. Where rows meet, so
do the threads: sums are formed in the order of the threads, so that a result depends on their number, never on their
timing. Where several processes train together, the first thread of each then adds up those of all (`Team.reduce`).
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.frames import reader, type_of
from velocirl.engine.compiler.translating import Translator
from velocirl.engine.compiler.units import call_unit
from velocirl.engine.targets.threads import meet
from velocirl.learners.counting.counters import TIMING, glance, lap
from velocirl.learners.counting.phases import OPTIMISER, WAITING
from velocirl.optim.clipping import clip_value, norm_scale
from velocirl.optim.optimisers import FACTORS, Rule

# What an instruction of a program does: a pass goes through units, the others are of one network, unit or number.
PASS, CLEAR, MEAN, STEP, ONCE, STOP, FOLLOW = range(7)
INSTRUCTION = np.dtype(
    [
        ("kind", np.int64),
        ("first", np.int64),  # the first unit of a pass; the network of a step; the unit of anything else, or -1
        ("stop", np.int64),  # the unit after the last; of a `once`, the number that it steps, or -1
        ("number", np.int64),  # of a pass; of a target network, how many parameters it has
        ("period", np.int64),  # in which updates: every so many
    ]
)
LEARNING = np.dtype([(name, np.float64) for name in ("learning_rate", "max_grad_norm", "max_grad_value")])
JOB = np.dtype(
    [
        ("most", np.int64),  # rows of a block
        ("batch", np.int64),  # rows of all threads
        ("begins", np.int64),  # whether gradients are set to zero first, or added to
        ("weight", np.int64),  # rows whose gradients a step follows; 0 for no step
    ]
)
PARTIAL = 16  # sums that a thread forms side by side; two lines of the cache, so that no two threads share one
LINE = 16  # numbers of a share at least, for the same reason
FAULT, STOPPED, OUTCOME = 0, 1, 16  # the places of `outcome`: a gradient was not finite; an update was stopped
SCALE = FACTORS - 1  # the factor of an optimiser by which gradients are multiplied, for clipping; no rule uses it


class Trained(NamedTuple):
    """A network as one thread steps it, with the frames of the units that do so."""

    size: int  # parameters
    factors: NDArray[np.float32]  # (FACTORS,) of the optimiser, this thread's own
    partial: NDArray[np.float64]  # (threads, PARTIAL) sums of squares of the gradient
    steps: NDArray[np.int64]  # (1,) taken so far
    norms: NDArray[np.float64]  # (2,) of the gradients since they were read last, and how many
    unpack: int
    gather: int  # of the threads, where several processes meet
    reduce: int
    optimise: int
    pack: int


class Sums(NamedTuple):
    """What functions add to metrics: a slot for each metric of each function."""

    own: NDArray[np.float64]  # (slots,) of this thread in this update
    slots: NDArray[np.float64]  # (2, threads, slots) as others see it; of two updates in turns, as one may be ahead
    metric: NDArray[np.int64]  # (slots,) to which metric it counts
    of_pass: NDArray[np.int64]  # (slots,) in which pass
    totals: NDArray[np.float64]  # (slots,) of this thread, since they were read last
    seen: NDArray[np.int64]  # (passes,) rows of this thread, since they were read last
    common: NDArray[np.float64]  # (slots,) of all threads of all processes, where several meet
    means: NDArray[np.float64]  # (metrics + 1,) of the batch so far, and last the number of its rows; of this thread
    single: NDArray[np.float32]  # the same


class Team(NamedTuple):
    """Which of the threads this is."""

    thread: int
    threads: int
    board: NDArray[np.int64]  # where they wait for each other,
    meetings: NDArray[np.int64]  # (1,) and how often this one has
    reduce: int  # the frame of what adds up sums over all processes, 0 where there is one


class Crew(NamedTuple):
    """What one thread works with in an update."""

    team: Team
    program: NDArray[Any]  # INSTRUCTION
    units: NDArray[np.int64]  # (units, 2) frames, and where the time that they take is counted
    networks: NDArray[np.int64]  # (networks,) frames of `Trained`
    number_steps: NDArray[np.int64]  # (numbers,) taken so far,
    number_gradients: NDArray[np.float32]  # (1, numbers) their gradients,
    number_factors: NDArray[np.float32]
    number_optimiser: int  # and the frame of their optimiser
    sums: Sums
    learning: NDArray[Any]  # (1,) LEARNING
    job: NDArray[Any]  # (1,) JOB, of this thread
    outcome: NDArray[np.float64]  # (OUTCOME,)
    counters: NDArray[np.int64]  # of this thread, see `counters`


def _example() -> Trained:
    """A network of no size, for its types."""
    numbers = np.zeros(FACTORS, np.float32), np.zeros((1, PARTIAL)), np.zeros(1, np.int64), np.zeros(2)
    return Trained(0, *numbers, 0, 0, 0, 0, 0)


_trained_at = reader(type_of((_example(),)))


def together(team):
    """Wait for the other threads."""
    team.meetings[0] += 1
    meet(team.board, team.thread, team.threads, team.meetings[0])


def wait(team, counters, since, timed):
    """The same, on the clock."""
    together(team)
    return lap(counters, WAITING, since, timed)


def share_of(thread, threads, size):
    """The first place of a thread's share of some numbers, and the one after its last."""
    share = (size // threads + LINE - 1) // LINE * LINE
    low, high = min(thread * share, size), min((thread + 1) * share, size)
    return low, (size if thread == threads - 1 else high)


def reduce_share(gradients, low, high, scale, limit, squares):
    """Add up the threads' gradients between two places, into the first row; `squares` become sums of their squares."""
    own = gradients[0, low:high]
    for other in range(1, len(gradients)):
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


def move_share(parameters, target, low, high, share):
    """Move a part of the parameters of a target network towards those of its network."""
    online, slow = parameters[low:high], target[low:high]
    rest = np.float32(1) - share
    for p in range(len(slow)):
        slow[p] = share * online[p] + rest * slow[p]


def reduce_over_processes(team, outcome, which):
    """Add up the gradient of a network, or (-1) what was added to metrics, over all processes; by the first thread."""
    if team.thread == 0 and call_unit(team.reduce, which, 0, 0) != 0:
        outcome[FAULT] = 1.0


def take_step(team, counters, learning, outcome, trained, which, weight, timed):
    """A step of a network's optimiser, along the gradients of `weight` rows, taken by all threads together."""
    low, high = share_of(team.thread, team.threads, trained.size)
    number = trained.steps[0] + 1
    since = glance(timed)
    call_unit(trained.unpack, 0, 1, 0)
    since = lap(counters, OPTIMISER, since, timed)
    since = wait(team, counters, since, timed)
    if team.reduce != 0:
        call_unit(trained.gather, low, high, 1)
        since = lap(counters, OPTIMISER, since, timed)
        since = wait(team, counters, since, timed)
        reduce_over_processes(team, outcome, which)
        since = wait(team, counters, since, timed)
    call_unit(trained.reduce, low, high, weight)
    since = lap(counters, OPTIMISER, since, timed)
    since = wait(team, counters, since, timed)
    squares = np.float64(0)
    for other in range(team.threads):
        for k in range(PARTIAL):
            squares += trained.partial[other, k]
    if squares * 0 != 0:
        if team.thread == 0:
            outcome[FAULT] = 1.0
    else:
        trained.factors[SCALE] = np.float32(norm_scale(squares, learning[0].max_grad_norm))
        call_unit(trained.optimise, low, high, number)
        if team.thread == 0:
            trained.steps[0] = number
            trained.norms[0] += sqrt(squares)
            trained.norms[1] += 1.0
    since = lap(counters, OPTIMISER, since, timed)
    since = wait(team, counters, since, timed)
    call_unit(trained.pack, 0, 1, 0)
    since = lap(counters, OPTIMISER, since, timed)
    wait(team, counters, since, timed)


def update_target(team, counters, units, one, timed):
    """Let a target network come closer to its network: one unit moves its parameters, the next one packs them."""
    low, high = share_of(team.thread, team.threads, one.number)
    since = glance(timed)
    call_unit(units[one.first, 0], low, high, 0)
    since = lap(counters, OPTIMISER, since, timed)
    since = wait(team, counters, since, timed)
    call_unit(units[one.first + 1, 0], 0, 1, 0)
    since = lap(counters, OPTIMISER, since, timed)
    wait(team, counters, since, timed)


def step_number(crew, which):
    """A step of the optimiser of a number, whose gradient is known."""
    crew.number_steps[which] += 1
    crew.number_factors[SCALE] = 1.0
    call_unit(crew.number_optimiser, which, which + 1, crew.number_steps[which])


def find_means(team, counters, sums, outcome, turns, first, stop, batch, timed):
    """What functions have added to metrics in passes from `first` to `stop`, as means over the batch."""
    for s in range(len(sums.own)):
        sums.slots[turns, team.thread, s] = sums.own[s]
    since = glance(timed)
    since = wait(team, counters, since, timed)
    if team.reduce != 0:
        if team.thread == 0:
            for s in range(len(sums.metric)):
                sums.common[s] = sum_of_threads(team, sums, turns, s)
        reduce_over_processes(team, outcome, -1)
        wait(team, counters, since, timed)
    for s in range(len(sums.metric)):
        if sums.of_pass[s] >= first and sums.of_pass[s] < stop:
            total = sums.common[s] if team.reduce != 0 else sum_of_threads(team, sums, turns, s)
            sums.means[sums.metric[s]] += total / batch


def sum_of_threads(team, sums, turns, s):
    """What the threads have added to a metric."""
    total = np.float64(0)
    for other in range(team.threads):
        total += sums.slots[turns, other, s]
    return total


def run_pass(units, counters, seen, one, first, stop, most, timed):
    """Take a thread's rows block by block through the units of a pass."""
    # Equal blocks: a small rest would load all the weights for little.
    blocks = max((stop - first + most - 1) // most, 1)
    size = max((stop - first + blocks - 1) // blocks, 1)
    for begin in range(first, stop, size):
        end = min(begin + size, stop)
        since = glance(timed)
        for u in range(one.first, one.stop):
            call_unit(units[u, 0], begin, end, 0)
            since = lap(counters, units[u, 1], since, timed)
    seen[one.number] += stop - first


def update(arguments, first, stop, number):
    """One update of the run, by all threads: rows from `first` to `stop` are this thread's part of a batch."""
    crew = arguments[0]
    turns, batch = number & 1, crew.job[0].batch
    team, counters, sums = crew.team, crew.counters, crew.sums
    for s in range(len(sums.own)):
        sums.own[s] = 0.0
    for m in range(len(sums.means)):
        sums.means[m] = 0.0
    sums.means[len(sums.means) - 1] = batch
    timed = counters[TIMING] != 0
    done, told_of = 0, 0  # passes that were run, and those whose means are known
    for k in range(len(crew.program)):
        one = crew.program[k]
        if number % one.period != 0 or crew.outcome[FAULT] != 0.0 or crew.outcome[STOPPED] != 0.0:
            continue
        if one.kind == PASS:
            run_pass(crew.units, counters, sums.seen, one, first, stop, crew.job[0].most, timed)
            done = one.number + 1
        elif one.kind == CLEAR:
            if crew.job[0].begins:
                call_unit(crew.units[one.first, 0], 0, 1, 0)
        elif one.kind == STEP:
            if crew.job[0].weight > 0:
                trained = _trained_at(crew.networks[one.first])[0]
                weight = crew.job[0].weight
                take_step(team, counters, crew.learning, crew.outcome, trained, one.first, weight, timed)
        elif one.kind == FOLLOW:
            update_target(team, counters, crew.units, one, timed)
        else:  # a function of means
            find_means(team, counters, sums, crew.outcome, turns, told_of, done, batch, timed)
            told_of = done
            told = 0
            if one.first >= 0 and (one.kind != ONCE or team.thread == 0):
                told = call_unit(crew.units[one.first, 0], 0, 1, 0)
            for m in range(len(sums.means)):
                sums.single[m] = sums.means[m]
            if team.thread == 0 and one.kind == ONCE and one.stop >= 0:
                step_number(crew, one.stop)
            if team.thread == 0 and one.kind == STOP and told != 0:
                crew.outcome[STOPPED] = 1.0
            if one.kind != MEAN:  # all see what came of it before anyone goes on
                since = glance(timed)
                wait(team, counters, since, timed)
    for s in range(len(sums.own)):
        sums.totals[s] += sums.own[s]
    return 0


def driver_translator() -> Translator:
    """A translator for drivers."""
    return learning_translator("driver")


def reduce_unit(arguments, low, high, weight):
    """See `reduce_share`: of gradients that are sums over so many rows."""
    gradients, squares, learning = arguments
    scale, limit = np.float32(1.0 / weight), np.float32(learning[0].max_grad_value)
    reduce_share(gradients, low, high, scale, limit, squares)
    return 0


def follow_unit(arguments, low, high, place):  # noqa: ARG001 - as every unit
    """See `move_share`."""
    parameters, target, share = arguments
    move_share(parameters, target, low, high, np.float32(share))
    return 0


def optimiser_unit(rule: Rule) -> Any:
    """`step(arguments, low, high, number)`: the optimiser's step of the parameters between two places."""
    prepare, apply = rule

    def step(arguments, low, high, number):
        parameters, gradients, moments, settings, factors, learning = arguments
        prepare(settings, learning[0].learning_rate, number, factors)
        scale = factors[SCALE]
        for p in range(np.uint64(low), np.uint64(high)):
            apply(parameters, gradients[0, p] * scale, moments, p, factors)
        return 0

    return step
