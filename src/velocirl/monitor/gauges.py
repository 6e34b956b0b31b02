"""Gauges: what the learner that trains an agent says of itself, such as queues, drops and time spent waiting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from velocirl.monitor.throughput import as_gauges

# Metrics that are told of beside the gauges: those of the machinery by how their names begin, and of learning.
ROOMS = ("learner/", "collector/", "buffer/", "device/")
LEARNT = ("train/loss", "train/critic_loss", "train/td_error", "rollout/exploration_rate")


def gauges_of(agent: Any) -> dict[str, float]:
    """The gauges of an agent's learner and of its environments, by name, and what its metrics have of that kind.

    Either may have a method `gauges() -> dict[str, float]`. A name that ends in "seconds" is a time, in "bytes" an
    amount of memory, in "share" a part of a whole, in "per_second" a rate; the parts of a name are separated by "/".
    """
    metrics = {name: value for name, value in agent.metrics.items() if name.startswith(ROOMS) and value is not None}
    return _finite({**as_gauges(agent.metrics), **metrics, **learner_gauges(agent)})


def learner_gauges(agent: Any) -> dict[str, float]:
    """Those that the learner and the environments have now; none where they have none."""
    learner = getattr(agent, "_learner", None)
    found: dict[str, float] = {}
    for part in (getattr(learner, "envs", None), learner):  # a table's learner may have neither environments nor gauges
        gauges = getattr(part, "gauges", None)
        if gauges is not None:
            found.update(_finite(gauges()))
    return found


def learnt_figures(agent: Any) -> dict[str, float]:
    """Loss, error and exploration, for whoever sees no metrics."""
    found = {name: agent.metrics.get(name) for name in LEARNT}
    return _finite({name.rpartition("/")[2]: value for name, value in found.items() if value is not None})


def _finite(gauges: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in gauges.items() if math.isfinite(value)}
