"""What runs the iterations of an algorithm: collecting, estimating and updating, on one kind of hardware."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Report:
    """What came of one iteration."""

    steps: int  # of the run, when it was done
    learning_rate: float
    means: Any  # of the metrics by name, over all rows seen
    gradient_norm: float  # mean over the optimiser's steps
    minibatches: int
    optimiser_steps: int  # of the whole run
    explained_variance: float  # of the targets, by the critic
    returns: list[float]  # of the last episodes that ended, in the order of their ends
    lengths: list[int]
    reported: Mapping[str, list[float]] = field(default_factory=dict)  # what the environment reports of these
    violations: int = 0  # of constraints, in the steps of the iteration


class Learner(Protocol):
    """Runs iterations; its agent's parameters and normalisers are brought up to date by `settle`."""

    phases: dict[str, float]  # seconds spent, by what they were spent on
    # What may be missing: `fleet`, the copies where they are compiled, and `envs`, the environments; and `sharing`, by
    # which several processes share its arrays out (see `learners.sharing`), where they cannot train together.

    def iterate(self, schedule: Any, steps: int) -> Report | None:
        """Begin an iteration after which the run has taken `steps` steps; the report may be that of the one before.

        `schedule` has the numbers of the iteration, as its algorithm needs them.
        """
        ...

    def drain(self) -> Report | None:
        """Wait for what is under way; its report, unless that was given."""
        ...

    def settle(self) -> None:
        """Bring the agent's own arrays up to date."""
        ...

    def take(self) -> None:
        """Go on from the agent's own arrays, which something else has changed."""
        ...

    def state(self) -> dict[str, NDArray[Any]]:
        """What decides the next iterations, besides the agent's own arrays."""
        ...

    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` gave."""
        ...


def explained_variance(spread: NDArray[np.float64], count: int) -> float:
    """The share of the variance of the targets that the critic explains, from sums over `count` samples.

    The sums are those of the targets, of their squares, of the errors and of their squares.
    """
    targets, squares, errors, squared_errors = spread
    variance = squares / count - (targets / count) ** 2
    unexplained = squared_errors / count - (errors / count) ** 2
    return float(1.0 - unexplained / variance) if variance > 0 else float("nan")
