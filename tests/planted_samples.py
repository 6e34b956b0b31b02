"""Reports with planted samples, for tests of what is made of them."""

from __future__ import annotations

import numpy as np

from velocirl.bench.machine.facts import Machine
from velocirl.bench.measuring import THOROUGH
from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.units import STEPS

MACHINE = Machine("A Processor", 2, 24 * 2**30, "Linux 6", 0.1, "abcdef", {"python": "3.11.7"})
OTHER_MACHINE = Machine("Another Processor", 8, 64 * 2**30, "Linux 6", 0.1, "abcdef", {"python": "3.11.7"})


def noisy(median, *, seed, rounds=15, noise=0.02):
    """Samples around a median, with noise that mostly slows down."""
    generator = np.random.default_rng(seed)
    return median * (1.0 - np.abs(generator.normal(0.0, noise, rounds)))


def result_of(
    samples,
    *,
    name="steps",
    unit=STEPS,
    peer=None,
    reference=None,
    by_processor=None,
    reference_by_processor=None,
    **given,
):
    """A benchmark with one contestant of ours, and perhaps a peer."""
    rounds = len(samples)
    reference = np.full(rounds, 0.005) if reference is None else reference
    own = reference if reference_by_processor is None else reference_by_processor
    contestants = [Measured("velocirl", plain(samples), 10, by_processor=plain(by_processor or ()))]
    if peer is not None:
        contestants.append(Measured("Gymnasium", plain(peer), 3, peer=True))
    kept = {"reference": plain(reference), "reference_by_processor": plain(own)}
    return Result(name, "vector", "Steps of many", "A note.", unit, tuple(contestants), (), 1.5, **kept, **given)


def report_of(*results, machine=MACHINE, **given):
    """A run of these."""
    return Report("velocirl bench vector", "2026-01-02T03:04:05+00:00", machine, THOROUGH, list(results), **given)


def plain(numbers):
    """As samples are kept."""
    return tuple(float(number) for number in numbers)
