"""Drivers: compiled loops that call units by their addresses, written and compiled once for all algorithms.

The rows of a batch are cut into shares. A share goes block by block through the units of a pass, so that a block stays
in its core's cache. Between two passes the calling thread alone forms sums, in the order of the shares: a result
depends on how many shares there are, never on how many threads work on them (see `engine.targets.team`). Where several
processes train together, their sums are then added up (`Crew.reduce`).
"""

from __future__ import annotations

from math import sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.compiler.compiling import learning_translator
from velocirl.engine.compiler.counters import TIMING, glance, lap
from velocirl.engine.compiler.frames import reader, type_of
from velocirl.engine.compiler.translating import Translator
from velocirl.engine.compiler.units import call_unit
from velocirl.engine.targets.autotuner import tune
from velocirl.engine.targets.team import WAITED, TeamView, begin_work, run_region
from velocirl.optim.clipping import clip_value, norm_scale
from velocirl.optim.optimisers import FACTORS, Rule
from velocirl.program.clock import FAULT, STOPPED
from velocirl.program.counting.phases import OPTIMISER, WAITING

# What an instruction of a program does: a pass goes through units, the others are of one network, unit or number.
PASS, MEAN, STEP, ONCE, STOP, FOLLOW = range(6)
INSTRUCTION = np.dtype(
    [
        ("kind", np.int64),
        ("first", np.int64),  # the first unit of a pass; the network of a step; the unit of anything else, or -1
        ("body", np.int64),  # of a pass: the first unit that blocks go through; before it, gradients are cleared
        ("after", np.int64),  # of a pass: the unit after the last of them; from here on, gradients are unpacked
        ("stop", np.int64),  # the unit after the last; of a `once`, the number that it steps, or -1
        ("number", np.int64),  # of a pass; of a target network, how many pieces its parameters have
        ("period", np.int64),  # in which updates: every `period`
    ]
)
LEARNING = np.dtype([(name, np.float64) for name in ("learning_rate", "max_grad_norm", "max_grad_value")])
JOB = np.dtype(
    [
        ("most", np.int64),  # rows of a block
        ("batch", np.int64),  # rows of all shares of all processes
        ("begins", np.int64),  # whether gradients are set to zero first, or added to
        ("weight", np.int64),  # rows whose gradients a step follows; 0 for no step
        ("timed", np.int64),  # whether the clock is read
    ]
)
PARTIAL = 16  # sums that are formed side by side
LINE = 16  # parameters of a cache line: pieces begin with one
PIECE = 16_384  # parameters that are worth a worker of their own
MAX_PIECES = 32
SCALE = FACTORS - 1  # the factor of an optimiser by which gradients are multiplied, for clipping; no rule uses it


class Trained(NamedTuple):
    """A network as it is stepped, with the team's offsets of the units that do so."""

    pieces: int  # of its parameters
    factors: NDArray[np.float32]  # (FACTORS,) of the optimiser
    partial: NDArray[np.float64]  # (pieces, PARTIAL) sums of squares of the gradient
    steps: NDArray[np.int64]  # (1,) taken so far
    norms: NDArray[np.float64]  # (2,) of the gradients since they were read last, and how many
    gather: int  # adds up the shares' gradients, where several processes meet
    reduce: int
    optimise: int
    pack: int


class Sums(NamedTuple):
    """What functions add to metrics: a slot for each metric of each function."""

    own: NDArray[np.float64]  # (shares, slots) in this update
    metric: NDArray[np.int64]  # (slots,) to which metric it counts
    of_pass: NDArray[np.int64]  # (slots,) in which pass
    totals: NDArray[np.float64]  # (slots,) since they were read last
    seen: NDArray[np.int64]  # (shares, passes) rows, since they were read last
    common: NDArray[np.float64]  # (slots,) of all shares, and of all processes where several meet
    means: NDArray[np.float64]  # (metrics + 1,) of the batch so far, and last the number of its rows
    single: NDArray[np.float32]  # the same


class ShareWork(NamedTuple):
    """Units and rows of one share."""

    program: NDArray[Any]  # INSTRUCTION
    units: NDArray[np.int64]  # (units, 2) frames, and where the time that they take is counted
    rows: NDArray[np.int64]  # (2,) the share's rows: the first, and the one after the last
    seen: NDArray[np.int64]  # (passes,) rows, since they were read last
    job: NDArray[Any]  # (1,) JOB
    counters: NDArray[np.int64]  # of worker 0, see `counters`


class Crew(NamedTuple):
    """Units and arrays of an update."""

    team: TeamView
    tuner: NDArray[Any]  # (1,) TUNER
    shares: int
    passes: int  # the team's offset of the shares' units
    program: NDArray[Any]  # INSTRUCTION
    units: NDArray[np.int64]  # (units, 2) as of the first share, which has those of means too
    rows: NDArray[np.int64]  # (shares, 2) see `ShareWork`
    networks: NDArray[np.int64]  # (networks,) frames of `Trained`
    number_steps: NDArray[np.int64]  # (numbers,) taken so far,
    number_gradients: NDArray[np.float32]  # (1, numbers) their gradients,
    number_factors: NDArray[np.float32]
    number_optimiser: int  # and the frame of their optimiser
    sums: Sums
    learning: NDArray[Any]  # (1,) LEARNING
    job: NDArray[Any]  # (1,) JOB
    outcome: NDArray[np.int64]  # of which FAULT says that a gradient was not finite, STOPPED that an update was stopped
    counters: NDArray[np.int64]  # of worker 0, see `counters`
    reduce: int  # the frame of what adds up sums over all processes, 0 where there is one


def _example() -> Trained:
    """A network of no size, for its types."""
    numbers = np.zeros(FACTORS, np.float32), np.zeros((1, PARTIAL)), np.zeros(1, np.int64), np.zeros(2)
    return Trained(0, *numbers, 0, 0, 0, 0)


_trained_at = reader(type_of((_example(),)))


def pieces_of(size: int) -> int:
    """Count the pieces in which parameters are reduced, stepped and packed; it depends on nothing but their number."""
    return min(max(size // PIECE, 1), MAX_PIECES)


def piece_of(piece, pieces, size):
    """The first place of a piece of some numbers, and the one after its last; 0 pieces mean single numbers."""
    if pieces == 0:
        return piece, piece + 1
    share = (size // pieces + LINE - 1) // LINE * LINE
    low, high = min(piece * share, size), min((piece + 1) * share, size)
    return low, (size if piece == pieces - 1 else high)


def reduce_share(gradients, low, high, scale, limit, squares):
    """Add up the shares' gradients between two places, into the first row; `squares` become sums of their squares."""
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


def reduce_over_processes(crew, which):
    """Add up the gradient of a network, or (-1) what was added to metrics, over all processes."""
    if call_unit(crew.reduce, which, 0, 0) != 0:
        crew.outcome[FAULT] = 1


def run_counted(crew, place, offset, count, argument, timed):
    """Run a region over pieces; its time is counted at a place, less what was waited."""
    since, waited = glance(timed), crew.team.board[WAITED]
    run_region(crew.team, offset, 0, 0, count, argument)
    waited = crew.team.board[WAITED] - waited
    lap(crew.counters, place, since + waited, timed)
    count_waiting(crew, waited, timed)


def count_waiting(crew, waited, timed):
    """Count time that the calling thread has waited for others."""
    if timed:
        crew.counters[WAITING] += waited


def take_step(crew, which, weight, timed):
    """A step of a network's optimiser, along the gradients of `weight` rows."""
    trained = _trained_at(crew.networks[which])[0]
    number, pieces = trained.steps[0] + 1, trained.pieces
    if crew.reduce != 0:
        run_counted(crew, OPTIMISER, trained.gather, pieces, 1, timed)
        since = glance(timed)
        reduce_over_processes(crew, which)
        lap(crew.counters, WAITING, since, timed)
    run_counted(crew, OPTIMISER, trained.reduce, pieces, weight, timed)
    squares = np.float64(0)
    for piece in range(pieces):
        for k in range(PARTIAL):
            squares += trained.partial[piece, k]
    if squares * 0 != 0:
        crew.outcome[FAULT] = 1
        return
    trained.factors[SCALE] = np.float32(norm_scale(squares, crew.learning[0].max_grad_norm))
    run_counted(crew, OPTIMISER, trained.optimise, pieces, number, timed)
    trained.steps[0] = number
    trained.norms[0] += sqrt(squares)
    trained.norms[1] += 1.0
    run_counted(crew, OPTIMISER, trained.pack, pieces, 0, timed)


def update_target(crew, one, timed):
    """Let a target network come closer to its network: one unit moves its parameters, the next one packs them."""
    run_counted(crew, OPTIMISER, one.first, one.number, 0, timed)
    run_counted(crew, OPTIMISER, one.first + 1, one.number, 0, timed)


def step_number(crew, which):
    """A step of the optimiser of a number, whose gradient is known."""
    crew.number_steps[which] += 1
    crew.number_factors[SCALE] = 1.0
    call_unit(crew.number_optimiser, which, crew.number_steps[which], 0)


def find_means(crew, first, stop, timed):
    """What functions have added to metrics in passes from `first` to `stop`, as means over the batch."""
    sums = crew.sums
    add_shares(sums)
    if crew.reduce != 0:
        since = glance(timed)
        reduce_over_processes(crew, -1)
        lap(crew.counters, WAITING, since, timed)
    for s in range(len(sums.metric)):
        if sums.of_pass[s] >= first and sums.of_pass[s] < stop:
            sums.means[sums.metric[s]] += sums.common[s] / crew.job[0].batch


def add_shares(sums):
    """Add up what the shares have added to metrics."""
    for s in range(len(sums.common)):
        total = np.float64(0)
        for share in range(len(sums.own)):
            total += sums.own[share, s]
        sums.common[s] = total


def run_share(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Take the rows of a share block by block through the units of instruction `stop`, a pass; as worker `place`."""
    work = arguments[0]
    job, one, units, counters = work.job[0], work.program[stop], work.units, work.counters
    begin, end = work.rows[0], work.rows[1]
    timed = job.timed != 0 and place == 0
    if job.begins != 0:
        for u in range(one.first, one.body):
            call_unit(units[u, 0], 0, 1, 0)
    # Equal blocks: a small rest would load all the weights for little.
    blocks = max((end - begin + job.most - 1) // job.most, 1)
    size = max((end - begin + blocks - 1) // blocks, 1)
    for low in range(begin, end, size):
        high = min(low + size, end)
        since = glance(timed)
        for u in range(one.body, one.after):
            call_unit(units[u, 0], low, high, 0)
            since = lap(counters, units[u, 1], since, timed)
    work.seen[one.number] += end - begin
    if job.weight > 0:
        since = glance(timed)
        for u in range(one.after, one.stop):
            call_unit(units[u, 0], 0, 1, 0)
        lap(counters, OPTIMISER, since, timed)
    return 0


def run_pass(crew, instruction, timed):
    """Let all shares go through a pass."""
    waited = crew.team.board[WAITED]
    run_region(crew.team, crew.passes, 1, 0, crew.shares, instruction)
    count_waiting(crew, crew.team.board[WAITED] - waited, timed)


def update(arguments, first, stop, number):  # noqa: ARG001 - as every unit
    """Run update `number` of the run on the rows that `crew.rows` names; returns 1 where no other may follow."""
    crew = arguments[0]
    team, counters, sums, tuner = crew.team, crew.counters, crew.sums, crew.tuner[0]
    for share in range(len(sums.own)):
        for s in range(sums.own.shape[1]):
            sums.own[share, s] = 0.0
    for m in range(len(sums.means)):
        sums.means[m] = 0.0
    sums.means[len(sums.means) - 1] = crew.job[0].batch
    timed = counters[TIMING] != 0
    crew.job[0].timed = timed
    began = begin_work(team, tuner)
    done, told_of = 0, 0  # passes that were run, and those whose means are known
    for k in range(len(crew.program)):
        one = crew.program[k]
        if number % one.period != 0 or crew.outcome[FAULT] != 0 or crew.outcome[STOPPED] != 0:
            continue
        if one.kind == PASS:
            run_pass(crew, k, timed)
            done = one.number + 1
        elif one.kind == STEP:
            if crew.job[0].weight > 0:
                take_step(crew, one.first, crew.job[0].weight, timed)
        elif one.kind == FOLLOW:
            update_target(crew, one, timed)
        else:  # a function of means
            find_means(crew, told_of, done, timed)
            told_of = done
            told = 0
            if one.first >= 0:
                told = call_unit(crew.units[one.first, 0], 0, 1, 0)
            for m in range(len(sums.means)):
                sums.single[m] = sums.means[m]
            if one.kind == ONCE and one.stop >= 0:
                step_number(crew, one.stop)
            if one.kind == STOP and told != 0:
                crew.outcome[STOPPED] = 1
    add_shares(sums)
    for s in range(len(sums.totals)):
        sums.totals[s] += sums.common[s]
    tune(tuner, began, 1)
    return 1 if crew.outcome[FAULT] != 0 or crew.outcome[STOPPED] != 0 else 0


def driver_translator() -> Translator:
    """A translator for drivers."""
    return learning_translator("driver")


def reduce_unit(arguments, piece, weight, worker):  # noqa: ARG001 - as every unit
    """See `reduce_share`: a piece of gradients that are sums over `weight` rows."""
    gradients, squares, learning, pieces = arguments
    low, high = piece_of(piece, pieces, gradients.shape[1])
    scale, limit = np.float32(1.0 / weight), np.float32(learning[0].max_grad_value)
    reduce_share(gradients, low, high, scale, limit, squares[piece])
    return 0


def follow_unit(arguments, piece, argument, worker):  # noqa: ARG001
    """See `move_share`."""
    parameters, target, share, pieces = arguments
    low, high = piece_of(piece, pieces, len(parameters))
    move_share(parameters, target, low, high, np.float32(share[0]))
    return 0


def optimiser_unit(rule: Rule) -> Any:
    """`step(arguments, piece, number, worker)`: the optimiser's step number `number` of a piece of the parameters."""
    prepare, apply = rule

    def step(arguments, piece, number, worker):  # noqa: ARG001
        parameters, gradients, moments, settings, factors, learning, pieces, undecayed, without, still = arguments
        low, high = piece_of(piece, pieces, len(parameters))
        prepare(settings, learning[0].learning_rate, number, factors)
        scale = factors[SCALE]
        for k in range(len(undecayed)):  # what does not decay, and before it what does
            prepare(without, learning[0].learning_rate, number, still)
            first = min(max(undecayed[k, 0], low), high)
            stop = min(max(undecayed[k, 1], low), high)
            for p in range(np.uint64(low), np.uint64(first)):
                apply(parameters, gradients[0, p] * scale, moments, p, factors)
            for p in range(np.uint64(first), np.uint64(stop)):
                apply(parameters, gradients[0, p] * scale, moments, p, still)
            low = stop
        for p in range(np.uint64(low), np.uint64(high)):
            apply(parameters, gradients[0, p] * scale, moments, p, factors)
        return 0

    return step
