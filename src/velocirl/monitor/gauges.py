"""Gauges: numbers reported by an agent's learner, such as queue lengths, drops and waiting times."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from velocirl.monitor.throughput import as_gauges

# Metrics shown with the gauges: those of learner and hardware, by prefix, and those of learning.
ROOMS = ("learner/", "collector/", "buffer/", "device/")
LEARNT = ("train/loss", "train/critic_loss", "train/td_error", "rollout/exploration_rate")


def gauges_of(agent: Any) -> dict[str, float]:
    """Return the gauges of an agent's learner and environments by name, with similar metrics.

    Learner and environments may have a method `gauges() -> dict[str, float]`. The end of a name states the unit:
    "seconds" for a time, "bytes" for memory, "share" for a fraction, "per_second" for a rate. "/" separates the parts
    of a name.
    """
    metrics = {name: value for name, value in agent.metrics.items() if name.startswith(ROOMS) and value is not None}
    return _finite({**as_gauges(agent.metrics), **metrics, **learner_gauges(agent)})


def learner_gauges(agent: Any) -> dict[str, float]:
    """Return the current gauges of the learner and the environments; empty if they have none."""
    learner = getattr(agent, "_learner", None)
    found: dict[str, float] = {}
    for part in (getattr(learner, "envs", None), learner):  # a table's learner may have neither environments nor gauges
        gauges = getattr(part, "gauges", None)
        if gauges is not None:
            found.update(_finite(gauges()))
    return found


def learnt_figures(agent: Any) -> dict[str, float]:
    """Return loss, error and exploration, for readers without access to the metrics."""
    found = {name: agent.metrics.get(name) for name in LEARNT}
    return _finite({name.rpartition("/")[2]: value for name, value in found.items() if value is not None})


def _finite(gauges: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in gauges.items() if math.isfinite(value)}
