"""Units of decisions by episodes, such as a step of a Lagrange multiplier, within a compiled iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.backends.cpu.networks import ThreadedNetworks
from velocirl.engine.targets.indexing import index_loop, row_loop
from velocirl.program.counting.episodes import episodes_type, find_episodes, forget_episodes, sum_episodes
from velocirl.program.task import Task


def decision_units(task: Task, networks: ThreadedNetworks, sums: NDArray[np.float64]) -> list[tuple[Any, int]]:
    """Bind the units of what is decided, and how many indices each has.

    `sums` (environments, 1 + constraints) of episodes begin again after a decision.
    """
    totals, episodes = np.zeros((1, sums.shape[1])), np.zeros(1, episodes_type(len(task.constraints)))
    known = {"episodes": episodes, "numbers": networks.numbers, "settings": task.settings}
    calls = [(one.function, tuple(known[name] for name in one.arguments)) for one in task.decisions]
    bind = networks.bind
    return [
        (bind(index_loop(sum_episodes), sums, totals), 1),
        (bind(index_loop(find_episodes), totals, task.decided_by, episodes), 1),
        *((bind(row_loop(function), *columns), 1) for function, columns in calls),
        (bind(index_loop(forget_episodes), totals, task.decided_by, sums), len(sums)),
    ]
