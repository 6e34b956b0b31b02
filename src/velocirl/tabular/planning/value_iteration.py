"""Value iteration: Bellman backups until the values converge."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from velocirl.tabular.planning.backups import Backup
from velocirl.tabular.planning.models import TabularModel
from velocirl.tabular.planning.plans import Plan, made_plan


def value_iteration(model: TabularModel, gamma: float, tolerance: float = 1e-10, max_sweeps: int = 1_000_000) -> Plan:
    """Return the optimal plan for a discount `gamma`, with values within `tolerance` of the optimum.

    V(s) <- max over a of the expectation of r + gamma V(s'), from V = 0

    The bound can stay above the tolerance if floating-point precision is too coarse. At gamma = 1 the sweeps continue
    until only rounding is left, which happens if episodes end. A RuntimeError is raised if it has not happened after
    `max_sweeps`. If episodes last for thousands of steps, policy iteration is more precise and faster. Truncation is
    not modeled: a time limit does not count.
    """
    backup = Backup(model, gamma)
    values, sweeps = settled(backup, np.zeros(model.states), tolerance, max_sweeps)
    return made_plan(model, backup, values, None, sweeps, patience=2 * sweeps + 10)


def settled(
    backup: Backup, values: NDArray[np.float64], tolerance: float, max_sweeps: int
) -> tuple[NDArray[np.float64], int]:
    """Sweep until the values are within the tolerance or at rounding. Returns the values and the number of sweeps."""
    if not tolerance > 0.0:
        raise ValueError(f"tolerance must be above 0, got {tolerance!r}")
    change = np.inf
    for sweep in range(1, max_sweeps + 1):
        previous, values = values, backup(values).max(axis=1)
        change = float(np.abs(values - previous).max())
        if backup.rate * change <= backup.rounding(values):
            return values, sweep
        if backup.contracts and backup.doubt(change, values) * backup.horizon <= tolerance:
            return values, sweep
    advice = "raise max_sweeps" if backup.contracts else "take a gamma below 1 if episodes can go on for ever"
    raise RuntimeError(f"after {max_sweeps} sweeps a value still changed by {change:.3g}: {advice}")
