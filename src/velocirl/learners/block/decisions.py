"""What is decided once, by the episodes that ended: in Python where processes meet, else within a compiled loop."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.records import with_attributes
from velocirl.engine.targets.indexing import index_loop, row_loop
from velocirl.learners.block.networks import BlockNetworks
from velocirl.learners.counting.episodes import (
    episodes_type,
    find_episodes,
    forget_episodes,
    sum_episodes,
    told_episodes,
)  # fmt: skip
from velocirl.learners.task import Task


class Decisions:
    """Calls an algorithm's functions of episodes, numbers and settings."""

    def __init__(self, task: Task, numbers: NDArray[Any]) -> None:
        self._enough, self._reducer = task.decided_by, task.reducer
        self._episodes = np.zeros(1, episodes_type(len(task.constraints)))
        known = {"episodes": self._episodes, "numbers": numbers, "settings": task.settings}
        seen = {name: with_attributes(array) for name, array in known.items()}
        self._calls = [(one.function, [seen[name] for name in one.arguments]) for one in task.decisions]

    def decide(self, sums: NDArray[np.float64]) -> bool:
        """Decide by the episodes of all processes, of which these are the sums of this one's: count, and costs.

        Gives whether there were enough of them; before, functions see none.
        """
        enough = told_episodes(sums, self._episodes, self._enough, self._reducer)
        for function, arrays in self._calls:
            function(*(array[0] for array in arrays))
        return enough


def decision_units(task: Task, networks: BlockNetworks, sums: NDArray[np.float64]) -> list[tuple[Any, int]]:
    """The same as units, and how many indices each has; of sums (copies, ...) that begin anew after a decision."""
    if not task.decisions:
        return []
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
