"""Trying advice: two agents that differ in one setting, trained in turns for a moment each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import psutil

from velocirl.bench.profiling.advice import GAIN, Advice, with_trial
from velocirl.bench.profiling.watching import watch_training
from velocirl.training.agent import Agent

ROUNDS = 3
SECONDS = 0.4  # of each agent in each round
MOST = 3  # pieces of advice that are tried
COMPILED = {"runtime", "device", "priority"}  # settings whose change takes other loops

MakeAgent = Callable[[Mapping[str, Any]], Agent]


def worth_trying(advice: list[Advice], *, cached: bool) -> list[Advice]:
    """What can be tried in some seconds: the first few with settings, and none that would have to be compiled.

    `cached` says that the code of the usual training came from the cache; then that of others may be there as well.
    """
    cheap = [one for one in advice if one.changes and (cached or not COMPILED & one.changes.keys())]
    return cheap[:MOST]


def try_advice(
    advice: list[Advice], chosen: list[Advice], make_agent: MakeAgent, total_steps: int, needs_bytes: float = 0.0
) -> list[Advice]:
    """The same advice, with what came of the chosen pieces; what helped most comes first.

    `make_agent` builds an agent with changed settings. Nothing is tried where two agents of `needs_bytes` each would
    take more than half of the free memory.
    """
    if 2 * needs_bytes > psutil.virtual_memory().available / 2:
        return advice
    usual = make_agent({})
    tried = {id(one): _tried(one, usual, make_agent, total_steps) for one in chosen}
    return sorted((tried.get(id(one), one) for one in advice), key=_promise)


def _promise(advice: Advice) -> float:
    """What helped most comes first, then what was not tried, then what did not help."""
    return 0.0 if advice.tried is None else -advice.tried if advice.tried >= GAIN else 1.0


def _tried(advice: Advice, usual: Agent, make_agent: MakeAgent, total_steps: int) -> Advice:
    try:
        other = make_agent(advice.changes)
    except ValueError:  # settings that do not go together: then it stays advice
        return advice
    ratios = compare(usual, other, total_steps)
    return with_trial(advice, median(ratios), min(ratios), max(ratios)) if ratios else advice


def compare(usual: Agent, other: Agent, total_steps: int) -> list[float]:
    """How many times as fast the other agent trains, in each of some rounds; a first one warms both up."""
    ratios: list[float] = []
    for number in range(ROUNDS + 1):
        rates = []
        for agent in (usual, other):
            training = watch_training(agent, total_steps, SECONDS)
            if training.interrupted:
                raise KeyboardInterrupt
            rates.append(training.rate)
        if number > 0 and all(rate > 0 for rate in rates):
            ratios.append(rates[1] / rates[0])
    return ratios
