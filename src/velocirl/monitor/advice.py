"""Throughput advice: names the bottleneck and the metric that shows it."""

from __future__ import annotations

from collections.abc import Mapping

from velocirl.engine.targets.cores import available_cores
from velocirl.monitor.resource_use import ResourceUse
from velocirl.monitor.throughput import SHARE

STARVES = 0.2  # fraction of its time that one side must wait before advice is given
FED = 0.05  # fraction up to which a side counts as never waiting
LEARNER = f"learner{SHARE}"
COLLECTOR = f"collector{SHARE}"
CROWDED = 0.75  # cores kept busy by other programs, from which training slows down
ON_A_GPU = "device/peak_bytes"  # a gauge that exists on a GPU only


def advise(gauges: Mapping[str, float], phases: Mapping[str, float], resources: ResourceUse | None = None) -> list[str]:
    """Return sentences of advice, from gauges, phases' fractions of the time, and other programs' load."""
    return [*_about_threads(phases, resources), *_about_waiting(gauges, phases)]


def _about_threads(phases: Mapping[str, float], resources: ResourceUse | None) -> list[str]:
    others = 0.0 if resources is None else resources.other_cores or 0.0
    if others >= CROWDED:
        return [f"other programs keep {others:.1f} of {available_cores()} cores busy: training works on what is left"]
    waiting = phases.get("update/waiting", 0.0)
    if waiting >= STARVES:
        return [f"updates wait for slow threads or ranks {waiting:.0%} of the time: try fewer (threads)"]
    return []


def _about_waiting(gauges: Mapping[str, float], phases: Mapping[str, float]) -> list[str]:
    learner = gauges.get(LEARNER)
    collector = gauges.get(COLLECTOR)
    rollout, update = phases.get("rollout", 0.0), phases.get("update", 0.0)
    if learner is None:
        if ON_A_GPU in gauges and min(rollout, update) >= STARVES:
            return [f"steps take {rollout:.0%} of the time and updates {update:.0%}: overlap=True does both at once"]
        return []
    if learner >= STARVES:
        return [
            f"updates wait for steps {learner:.0%} of the time: step faster (more num_envs or collectors), or learn"
            " more from each step (gradient_steps, epochs)"
        ]
    if collector is not None and collector >= STARVES and learner <= FED:
        return [
            f"steps wait for updates {collector:.0%} of the time: make updates cheaper (precision, compile, a smaller"
            " network) or rarer (train_every, epochs)"
        ]
    return []
