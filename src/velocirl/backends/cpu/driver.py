"""Update driver: compiled loops that call units by address, compiled once for all algorithms.

The rows of a batch are cut into shares. A share goes block by block through the units of a pass, so that a block stays
in its core's cache. Between two passes the calling thread alone forms sums, in the order of the shares. A result
therefore depends on the number of shares, never on the number of threads (see `engine.targets.team`). Where several
processes train together, the sums are then all-reduced (`Crew.reduce`).
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

# Kinds of instructions: PASS runs many units; each of the others concerns one network, unit or scalar.
PASS, MEAN, STEP, ONCE, STOP, FOLLOW = range(6)
INSTRUCTION = np.dtype(
    [
        ("kind", np.int64),
        ("first", np.int64),  # first unit of a pass; network of a step; unit of any other kind, or -1
        ("body", np.int64),  # of a pass: first unit that blocks go through; units before it clear gradients
        ("after", np.int64),  # of a pass: end of the units for blocks; units from here on unpack gradients
        ("stop", np.int64),  # of a pass: end of its units; of a `once`: index of the scalar that it steps, or -1
        ("number", np.int64),  # index of a pass; of a target network: number of pieces of its parameters
        ("period", np.int64),  # runs in every `period`-th update
    ]
)
LEARNING = np.dtype([(name, np.float64) for name in ("learning_rate", "max_grad_norm", "max_grad_value")])
JOB = np.dtype(
    [
        ("most", np.int64),  # maximum rows of a block
        ("batch", np.int64),  # rows over all shares and processes
        ("begins", np.int64),  # 1: gradients are zeroed first; 0: accumulated
        ("weight", np.int64),  # rows in the gradient of the optimizer step; 0: no step
        ("timed", np.int64),  # whether times are measured
    ]
)
PARTIAL = 16  # partial sums formed in parallel
LINE = 16  # parameters per cache line; pieces are aligned to it
PIECE = 16_384  # parameters that justify a worker of their own
MAX_PIECES = 32
SCALE = FACTORS - 1  # index of the clipping factor among the optimizer's factors; no rule uses it


class Trained(NamedTuple):
    """State of a network's optimizer steps, with the team offsets of their units."""

    pieces: int  # number of pieces of its parameters
    factors: NDArray[np.float32]  # (FACTORS,) of the optimizer
    partial: NDArray[np.float64]  # (pieces, PARTIAL) sums of squares of the gradient
    steps: NDArray[np.int64]  # (1,) steps taken so far
    norms: NDArray[np.float64]  # (2,) sum and count of gradient norms since the last read
    gather: int  # sums the shares' gradients before an all-reduce
    reduce: int
    optimise: int
    pack: int


class Sums(NamedTuple):
    """Metric sums: one slot for each metric of each function."""

    own: NDArray[np.float64]  # (shares, slots) of this update
    metric: NDArray[np.int64]  # (slots,) metric of each slot
    of_pass: NDArray[np.int64]  # (slots,) pass of each slot
    totals: NDArray[np.float64]  # (slots,) since the last read
    seen: NDArray[np.int64]  # (shares, passes) rows since the last read
    common: NDArray[np.float64]  # (slots,) summed over shares, and over processes in find_means
    means: NDArray[np.float64]  # (metrics + 1,) of the batch so far; the last is its number of rows
    single: NDArray[np.float32]  # `means` in single precision


class ShareWork(NamedTuple):
    """Units and rows of one share."""

    program: NDArray[Any]  # INSTRUCTION
    units: NDArray[np.int64]  # (units, 2) frames, and the counters of their time
    rows: NDArray[np.int64]  # (2,) the share's rows: first and stop
    seen: NDArray[np.int64]  # (passes,) rows since the last read
    job: NDArray[Any]  # (1,) JOB
    counters: NDArray[np.int64]  # of worker 0, see `engine.compiler.counters`


class Crew(NamedTuple):
    """Units and arrays of an update."""

    team: TeamView
    tuner: NDArray[Any]  # (1,) TUNER
    shares: int
    passes: int  # team offset of the shares' units
    program: NDArray[Any]  # INSTRUCTION
    units: NDArray[np.int64]  # (units, 2) of the first share, which also has the units of means
    rows: NDArray[np.int64]  # (shares, 2) see `ShareWork`
    networks: NDArray[np.int64]  # (networks,) frames of `Trained`
    number_steps: NDArray[np.int64]  # (numbers,) optimizer steps of the scalars so far
    number_gradients: NDArray[np.float32]  # (1, numbers) gradients of the scalars
    number_factors: NDArray[np.float32]
    number_optimiser: int  # frame of the scalars' optimizer
    sums: Sums
    learning: NDArray[Any]  # (1,) LEARNING
    job: NDArray[Any]  # (1,) JOB
    outcome: NDArray[np.int64]  # FAULT: a gradient was not finite; STOPPED: the update was stopped early
    counters: NDArray[np.int64]  # of worker 0, see `engine.compiler.counters`
    reduce: int  # frame of the all-reduce over processes; 0: single process


def _example() -> Trained:
    """Return an empty `Trained`, for its types."""
    numbers = np.zeros(FACTORS, np.float32), np.zeros((1, PARTIAL)), np.zeros(1, np.int64), np.zeros(2)
    return Trained(0, *numbers, 0, 0, 0, 0)


_trained_at = reader(type_of((_example(),)))


def pieces_of(size: int) -> int:
    """Count the pieces in which parameters are reduced, stepped and packed; depends only on `size`."""
    return min(max(size // PIECE, 1), MAX_PIECES)


def piece_of(piece, pieces, size):
    """Return the first and stop index of a piece of `size` numbers; with `pieces=0` each number is a piece."""
    if pieces == 0:
        return piece, piece + 1
    share = (size // pieces + LINE - 1) // LINE * LINE
    low, high = min(piece * share, size), min((piece + 1) * share, size)
    return low, (size if piece == pieces - 1 else high)


def reduce_share(gradients, low, high, scale, limit, squares):
    """Sum the shares' gradients from `low` to `high` into the first row, scaled and clipped.

    `squares` become partial sums of their squares.
    """
    own = gradients[0, low:high]
    for other in range(1, len(gradients)):
        more = gradients[other, low:high]
        for p in range(len(own)):
            own[p] += more[p]
    for p in range(len(own)):
        own[p] = clip_value(own[p] * scale, limit)
    # Several sums in parallel: with a single sum, each addition would wait for the one before it.
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
    """Polyak averaging: move a part of the target's parameters a fraction `share` toward the network's."""
    online, slow = parameters[low:high], target[low:high]
    rest = np.float32(1) - share
    for p in range(len(slow)):
        slow[p] = share * online[p] + rest * slow[p]


def reduce_over_processes(crew, which):
    """All-reduce the gradient of network `which` over all processes, or the metric sums if `which` is -1."""
    if call_unit(crew.reduce, which, 0, 0) != 0:
        crew.outcome[FAULT] = 1


def run_counted(crew, place, offset, count, argument, timed):
    """Run a region over pieces; add its time, less the waiting time, to counter `place`."""
    since, waited = glance(timed), crew.team.board[WAITED]
    run_region(crew.team, offset, 0, 0, count, argument)
    waited = crew.team.board[WAITED] - waited
    lap(crew.counters, place, since + waited, timed)
    count_waiting(crew, waited, timed)


def count_waiting(crew, waited, timed):
    """Count the time that the calling thread has waited for other threads."""
    if timed:
        crew.counters[WAITING] += waited


def take_step(crew, which, weight, timed):
    """Take an optimizer step of a network, along the summed gradients of `weight` rows."""
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
    """Move a target network toward its network: one unit moves the parameters, the next one packs them."""
    run_counted(crew, OPTIMISER, one.first, one.number, 0, timed)
    run_counted(crew, OPTIMISER, one.first + 1, one.number, 0, timed)


def step_number(crew, which):
    """Take an optimizer step of a scalar, whose gradient is known."""
    crew.number_steps[which] += 1
    crew.number_factors[SCALE] = 1.0
    call_unit(crew.number_optimiser, which, crew.number_steps[which], 0)


def find_means(crew, first, stop, timed):
    """Compute the batch means of the metrics added in passes from `first` to `stop`."""
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
    """Sum the metric sums over the shares."""
    for s in range(len(sums.common)):
        total = np.float64(0)
        for share in range(len(sums.own)):
            total += sums.own[share, s]
        sums.common[s] = total


def run_share(arguments, first, stop, place):  # noqa: ARG001 - as every unit
    """Run instruction `stop`, a pass, for the rows of a share, block by block; `place` is the worker."""
    work = arguments[0]
    job, one, units, counters = work.job[0], work.program[stop], work.units, work.counters
    begin, end = work.rows[0], work.rows[1]
    timed = job.timed != 0 and place == 0
    if job.begins != 0:
        for u in range(one.first, one.body):
            call_unit(units[u, 0], 0, 1, 0)
    # Equal blocks: a small last block would load all weights for few rows.
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
    """Run a pass for all shares."""
    waited = crew.team.board[WAITED]
    run_region(crew.team, crew.passes, 1, 0, crew.shares, instruction)
    count_waiting(crew, crew.team.board[WAITED] - waited, timed)


def update(arguments, first, stop, number):  # noqa: ARG001 - as every unit
    """Run update `number` of the run on the rows in `crew.rows`; returns 1 where no other update may follow."""
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
    done, told_of = 0, 0  # passes run, and passes whose means are known
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
        else:  # MEAN, ONCE or STOP
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
    """Return a translator for drivers."""
    return learning_translator("driver")


def reduce_unit(arguments, piece, weight, worker):  # noqa: ARG001 - as every unit
    """Run `reduce_share` on a piece of gradients that are sums over `weight` rows."""
    gradients, squares, learning, pieces = arguments
    low, high = piece_of(piece, pieces, gradients.shape[1])
    scale, limit = np.float32(1.0 / weight), np.float32(learning[0].max_grad_value)
    reduce_share(gradients, low, high, scale, limit, squares[piece])
    return 0


def follow_unit(arguments, piece, argument, worker):  # noqa: ARG001
    """Run `move_share` on a piece of the parameters."""
    parameters, target, share, pieces = arguments
    low, high = piece_of(piece, pieces, len(parameters))
    move_share(parameters, target, low, high, np.float32(share[0]))
    return 0


def optimiser_unit(rule: Rule) -> Any:
    """Return `step(arguments, piece, number, worker)`: optimizer step `number` of a piece of the parameters."""
    prepare, apply = rule

    def step(arguments, piece, number, worker):  # noqa: ARG001
        parameters, gradients, moments, settings, factors, learning, pieces, undecayed, without, still = arguments
        low, high = piece_of(piece, pieces, len(parameters))
        prepare(settings, learning[0].learning_rate, number, factors)
        scale = factors[SCALE]
        for k in range(len(undecayed)):  # each undecayed range, and the decayed parameters before it
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
