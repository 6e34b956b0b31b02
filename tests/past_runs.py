"""Planted runs of benchmarks, for the tests of histories."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np

from velocirl.bench.machine.facts import Machine
from velocirl.bench.measuring import QUICK, THOROUGH
from velocirl.bench.results import Measured, Report, Result
from velocirl.bench.units import STEPS

HERE = Machine("A Processor", 2, 24 * 2**30, "Linux 6", 0.1, "", {"python": "3.11.7", "numba": "0.61.0"})
ELSEWHERE = replace(HERE, processor="Another Processor", cores=64, gpu="A GPU")
OURS, PEER = "velocirl", "Gymnasium"


def commit(number):
    """A hash that begins with the number of its run."""
    return f"{number:04d}" + "ab" * 18


def planted_result(name="steps", median=1e6, *, unit=STEPS, category="environment", reference=0.005, **given):
    """A benchmark with one contestant of ours and one peer, of three samples each."""
    ours = tuple(median * share for share in (0.99, 1.0, 1.02))
    contestants = (Measured(OURS, ours, 10), Measured(PEER, (1e4, 1.1e4, 1.2e4), 10, peer=True))
    rounds = (reference,) * 3 if reference else ()
    return Result(name, category, "Steps of many", "", unit, contestants, (), 1.5, rounds, **given)


def planted_report(number=0, results=None, *, machine=HERE, quick=False, complete=True):
    """The run of a day; later numbers are later days."""
    started = (datetime(2026, 1, 1, 12, tzinfo=UTC) + timedelta(days=number)).isoformat()
    results = [planted_result()] if results is None else results
    machine = replace(machine, commit=commit(number))
    return Report("velocirl bench", started, machine, QUICK if quick else THOROUGH, results, None, complete)


def planted_series(medians, **given):
    """A report for each median, a day after the other."""
    return [planted_report(number, [planted_result(median=median, **given)]) for number, median in enumerate(medians)]


def stepping(count, place, ratio, deviation=0.005, seed=0):
    """Figures with a step at a place, in noise."""
    noise = np.random.default_rng(seed).normal(0.0, deviation, count)
    return (1e6 * np.exp(noise) * np.where(np.arange(count) < place, 1.0, ratio)).tolist()
