"""What is decided once, by the episodes that ended: on the host, between compiled loops or from within one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.records import with_attributes
from velocirl.learners.counting.episodes import episodes_type, told_episodes
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
