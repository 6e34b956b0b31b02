"""What would make training faster, where one side starves: in words, with the figure that says so."""

from __future__ import annotations

from collections.abc import Mapping

from velocirl.monitor.throughput import SHARE

STARVES = 0.2  # the share of its time that one side waits before it is worth a word
FED = 0.05  # and up to which it never does
LEARNER = f"learner{SHARE}"
COLLECTOR = f"collector{SHARE}"
ON_A_GPU = "device/peak_bytes"  # a gauge that there is on a GPU alone


def advise(gauges: Mapping[str, float], phases: Mapping[str, float]) -> list[str]:
    """Sentences by gauges and by the shares of the time that phases take; none where nothing is to be said."""
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
