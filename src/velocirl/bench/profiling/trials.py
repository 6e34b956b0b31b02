"""Trials of advice: two agents that differ in one suggestion's settings, trained in turns for a short time each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import psutil

from velocirl.bench.profiling.advice import GAIN, Advice, with_trial
from velocirl.bench.profiling.watching import watch_training
from velocirl.training.agent import Agent

ROUNDS = 3
SECONDS = 0.4  # per agent and round
MOST = 3  # number of suggestions to try
COMPILED = {"runtime", "device", "priority"}  # settings whose change requires other compiled loops

MakeAgent = Callable[[Mapping[str, Any]], Agent]


def worth_trying(advice: list[Advice], *, cached: bool) -> list[Advice]:
    """Return the advice that can be tried within seconds: the first few with settings that need no compilation.

    `cached` means that the baseline's code came from the compile cache; code for other settings may be cached as well.
    """
    cheap = [one for one in advice if one.changes and (cached or not COMPILED & one.changes.keys())]
    return cheap[:MOST]


def try_advice(
    advice: list[Advice], chosen: list[Advice], make_agent: MakeAgent, total_steps: int, needs_bytes: float = 0.0
) -> list[Advice]:
    """Return the advice with the results of the `chosen` trials; the most helpful comes first.

    `make_agent` builds an agent with changed settings. Nothing is tried if two agents of `needs_bytes` each would take
    more than half of the free memory.
    """
    if 2 * needs_bytes > psutil.virtual_memory().available / 2:
        return advice
    usual = make_agent({})
    tried = {id(one): _tried(one, usual, make_agent, total_steps) for one in chosen}
    return sorted((tried.get(id(one), one) for one in advice), key=_promise)


def _promise(advice: Advice) -> float:
    """Return a sort key: helpful advice by its speedup, then untried advice, then advice that did not help."""
    return 0.0 if advice.tried is None else -advice.tried if advice.tried >= GAIN else 1.0


def _tried(advice: Advice, usual: Agent, make_agent: MakeAgent, total_steps: int) -> Advice:
    try:
        other = make_agent(advice.changes)
    except ValueError:  # incompatible settings: stays untried
        return advice
    ratios = compare(usual, other, total_steps)
    return with_trial(advice, median(ratios), min(ratios), max(ratios)) if ratios else advice


def compare(usual: Agent, other: Agent, total_steps: int) -> list[float]:
    """Return the other agent's speedup in each of `ROUNDS` rounds, after a warm-up round."""
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
