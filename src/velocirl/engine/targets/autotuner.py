"""Thread autotuner: finds the fastest number of workers while the work runs.

It measures nanoseconds per unit of work (an update, a rollout, a step) in windows of about a millisecond. From time to
time it tries another number of workers for a few windows: the next smaller, the next larger, or one. It keeps the
number if that was faster. A failed trial doubles the pause before the next one. If the work suddenly becomes slower,
for instance because another program takes a core, fewer workers are tried at once. The functions are scalar and
compiled into the loops that they tune.
"""

from __future__ import annotations

import numpy as np

from velocirl.engine.compiler.clock import now

MAX_LEVELS = 16  # numbers of workers to choose from
WINDOW = 1_000_000  # nanoseconds of a window, at least
TRIAL = 4  # windows of a trial; the first does not count
SHORT_PAUSE, LONG_PAUSE = 20_000_000, 1_000_000_000  # nanoseconds between two trials
REST = 50  # minimum pause after a trial, as a multiple of its duration
ALONE = 4  # one trial in ALONE uses a single worker: if all others are delayed alike, one fewer gains nothing
GAIN = 0.97  # more workers must take less than this share of the time: they take cores from others
SLOWER, SLOW_WINDOWS = 1.5, 3  # times the usual cost, for that many windows: fewer workers are tried at once
HOPELESS = 2.0  # times the usual cost, at which a trial ends at once
SMOOTHING = 0.2  # weight of a new window in the usual cost

TUNER = np.dtype(
    [
        ("ladder", np.int64, (MAX_LEVELS,)),  # numbers of workers, ascending
        ("levels", np.int64),
        ("level", np.int64),  # the level in use,
        ("cost", np.float64),  # and its nanoseconds per unit of work; 0 if unknown
        ("candidate", np.int64),  # the level on trial, or -1
        ("windows", np.int64),  # of the trial so far
        ("trial_time", np.int64),  # nanoseconds of work of the whole trial,
        ("counted_time", np.int64),  # and of all windows but the first,
        ("counted_units", np.int64),  # with their units
        ("direction", np.int64),  # of the next trial: 1 for more workers, -1 for fewer
        ("trials", np.int64),  # so far
        ("pause", np.int64),  # before the trial after the next
        ("probe_at", np.int64),  # time of the next trial
        ("time", np.int64),  # the window: nanoseconds of work,
        ("units", np.int64),  # and units of work done in it
        ("slow", np.int64),  # the latest consecutive windows that were much slower than usual
        ("sudden", np.int64),  # whether the trial began because of them
        ("workers", np.int64),  # number of workers to use now
        ("available", np.int64),  # maximum number of workers
    ],
    align=True,
)


def ladder_of(threads: int) -> list[int]:
    """Return the numbers of workers to choose from: 1, 2, 3, 4, 6, 8, 12, … and the largest two."""
    steps = {step * 2**k for step in (2, 3) for k in range(10)}
    return sorted({1, max(threads - 1, 1), threads, *(step for step in steps if step < threads)})[-MAX_LEVELS:]


def begin_tuner(tuner, ladder):
    """Initialize a tuner with the maximum number of workers and no measurements."""
    for k in range(len(ladder)):
        tuner["ladder"][k] = ladder[k]
    tuner["levels"] = len(ladder)
    tuner["level"] = len(ladder) - 1
    tuner["candidate"] = -1
    tuner["direction"] = -1
    tuner["pause"] = SHORT_PAUSE
    tuner["workers"] = tuner["available"] = ladder[-1]


def tune(tuner, since, work):
    """Record that `work` units were done since the time `since`; returns the current time.

    `tuner.workers` is then the number of workers for the next units.
    """
    moment = now()
    tuner.time += moment - since
    tuner.units += work
    if tuner.time >= WINDOW and tuner.levels > 1:
        if tuner.probe_at == 0:
            tuner.probe_at = moment + SHORT_PAUSE
        cost = tuner.time / tuner.units
        if tuner.candidate >= 0:
            continue_trial(tuner, moment, cost)
        else:
            judge(tuner, moment, cost)
        tuner.time = 0
        tuner.units = 0
    return moment


def judge(tuner, moment, cost):
    """Record a window of the usual number of workers; begin a trial if one is due."""
    if tuner.cost == 0.0:
        tuner.cost = cost
    if cost > SLOWER * tuner.cost:
        tuner.slow += 1
        if tuner.slow < SLOW_WINDOWS:  # the system often takes a core away for a few milliseconds
            return
        fewer = 0 if cost > 2.0 * SLOWER * tuner.cost else tuner.level - 1
        tuner.cost = cost
        tuner.slow = 0
        if tuner.level > 0:
            begin_trial(tuner, fewer, True)
        return
    tuner.slow = 0
    tuner.cost += SMOOTHING * (cost - tuner.cost)
    if moment >= tuner.probe_at:
        begin_trial(tuner, next_level(tuner), False)


def next_level(tuner):
    """Return the level to try next: a single worker first and occasionally, else in the last successful direction."""
    tuner.trials += 1
    if tuner.trials % ALONE == 1 and tuner.level > 1:
        return 0
    level = tuner.level + tuner.direction
    if level < 0 or level >= tuner.levels:
        tuner.direction = -tuner.direction
        level = tuner.level + tuner.direction
    return level


def most_workers(tuner):
    """Return the maximum number of workers of the next trial; other helpers are not woken."""
    return tuner["ladder"][min(tuner["level"] + 1, tuner["levels"] - 1)]


def begin_trial(tuner, level, sudden):
    """Use another number of workers for some windows; `sudden` if the work has just become slow."""
    if tuner.ladder[level] > tuner.available:
        return
    tuner.candidate = level
    tuner.sudden = sudden
    tuner.direction = 1 if level > tuner.level else -1
    tuner.windows = 0
    tuner.trial_time = 0
    tuner.counted_time = 0
    tuner.counted_units = 0
    tuner.workers = tuner.ladder[level]


def continue_trial(tuner, moment, cost):
    """Record a window of a trial, and end the trial when it has been long enough."""
    tuner.windows += 1
    more = tuner.candidate > tuner.level
    tuner.trial_time += tuner.time
    if tuner.windows > 1:  # helpers may have arrived late for the first
        tuner.counted_time += tuner.time
        tuner.counted_units += tuner.units
    if cost > HOPELESS * tuner.cost:
        end_trial(tuner, moment, False, cost)
    elif tuner.windows >= TRIAL:
        cost = tuner.counted_time / tuner.counted_units
        end_trial(tuner, moment, cost <= (GAIN if more else 1.0) * tuner.cost, cost)


def end_trial(tuner, moment, better, cost):
    """Keep the number of workers on trial if it was better; otherwise revert and pause longer."""
    rest = REST * tuner.trial_time
    if better:
        tuner.level = tuner.candidate
        tuner.cost = cost
        tuner.pause = SHORT_PAUSE
        if tuner.sudden != 0:  # and may have been slow for a moment only
            tuner.direction = 1
            rest = 0
    else:
        tuner.direction = -tuner.direction
        tuner.pause = min(2 * tuner.pause, LONG_PAUSE)
    tuner.probe_at = moment + max(tuner.pause, rest)
    tuner.candidate = -1
    tuner.workers = tuner.ladder[tuner.level]
