"""Measurements of candidates as they might have been."""

from velocirl.bench.tuning.candidates import Candidate
from velocirl.bench.tuning.evidence import Measured
from velocirl.bench.tuning.trials import Trial

TOTAL = 1000  # steps of a training


def trial(final, at=500, seed=0, untrained=0.0):
    """A training that has its final return from step `at` on."""
    steps = tuple(range(100, TOTAL + 1, 100))
    returns = tuple(final if step >= at else untrained for step in steps)
    return Trial(seed, untrained, returns, tuple(step / 100 for step in steps), steps)


def measured(speed, finals=(), at=500, name=None, neutral=False, jitter=0.01, rounds=7):
    """A candidate of `speed` steps per second whose trainings have these returns from step `at` on.

    `at` may be one number for each training. Without a name it is the reference.
    """
    if name is None:
        candidate = Candidate()
    else:
        candidate = Candidate(running={"threads": name}) if neutral else Candidate({"num_envs": name}, distance=1.0)
    speeds = [speed * (1 + jitter * ((7 * i) % 5 - 2)) for i in range(rounds)]
    ats = at if isinstance(at, (list, tuple)) else [at] * len(finals)
    trials = [trial(final, when, seed) for seed, (final, when) in enumerate(zip(finals, ats, strict=True))]
    return Measured(candidate, speed, speeds, trials)
