"""Gauges: what the learner that trains an agent says of itself, such as queues, drops and time spent waiting."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any


def gauges_of(agent: Any) -> dict[str, float]:
    """The gauges of an agent's learner and of its environments, by name; none where they have none.

    Either may have a method `gauges() -> dict[str, float]`. A name that ends in "seconds" is a time; the parts of a
    name are separated by "/".
    """
    learner = getattr(agent, "_learner", None)
    holders = learner, getattr(learner, "collector", None), getattr(learner, "steps", None)
    found: dict[str, float] = {}
    for part in (*(getattr(holder, "envs", None) for holder in holders), learner):
        gauges = getattr(part, "gauges", None)
        if gauges is not None:
            found.update(_finite(gauges()))
    return found


def _finite(gauges: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(value) for name, value in gauges.items() if math.isfinite(value)}
