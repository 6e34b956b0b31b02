"""Reference returns: mean returns of known policies, which normalize the scores of others."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from math import inf, sqrt
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers import Random, bound
from velocirl.runs.intervals import student_t
from velocirl.training.evaluation import MOST_COPIES, Model, evaluate
from velocirl.training.source import Source

EPISODES, MOST_EPISODES = 100, 1600  # per policy, at first and at most
PRECISION = 0.01  # fraction of the distance between the lowest and the highest reference: one point of a score


class Reference(NamedTuple):
    """Episode returns of a reference policy."""

    returns: NDArray[np.float64]

    @property
    def mean(self) -> float:
        """Mean return of an episode."""
        return float(self.returns.mean())

    @property
    def reach(self) -> float:
        """Half-width of the mean's 95% confidence interval (Student's t)."""
        count = len(self.returns)
        return inf if count < 2 else student_t(count - 1) * float(self.returns.std(ddof=1)) / sqrt(count)


def measure_references(source: Source, expert: Model | None, seed: int, *, device: str = "cpu") -> dict[str, Reference]:
    """Measure the returns of random actions, of the environment's controller, and of an expert if passed.

    Each policy plays 100 episodes. The number doubles, up to 1,600, until the interval's half-width is at most 1% of
    the distance between the lowest and the highest mean.
    """
    if source.native is None:
        return {}
    policies = {"random": Random(seed), "operator": source.native.controller, "expert": expert}
    policies = {name: one for name, one in policies.items() if one is not None}
    found: dict[str, Reference] = {}
    wide, count = list(policies), EPISODES
    while wide and count <= MOST_EPISODES:
        for name in wide:
            before = found[name].returns if name in found else np.zeros(0)
            # Other starts than those that chose the expert, and others in each round.
            own = int(np.random.SeedSequence((seed, len(before))).generate_state(1)[0])
            more = returns_of(policies[name], source, own, count - len(before), device)
            found[name] = Reference(np.concatenate([before, more]))
        means = [one.mean for one in found.values()]
        distance = max(means) - min(means) or abs(means[0])
        wide, count = [name for name in wide if found[name].reach > PRECISION * distance], 2 * count
    return found


def described(references: Mapping[str, Reference]) -> dict[str, Any]:
    """Return references as fields of a `DatasetInfo`."""
    known = {name: one for name, one in references.items() if len(one.returns) > 1}
    return {
        "references": {name: one.mean for name, one in references.items()},
        "reference_episodes": {name: len(one.returns) for name, one in references.items()},
        "reference_intervals": {name: (one.mean - one.reach, one.mean + one.reach) for name, one in known.items()},
    }


def returns_of(model: Model, source: Source, seed: int, episodes: int, device: str = "cpu") -> NDArray[np.float64]:
    """Return a model's returns over a number of episodes."""
    with closing(source.make_evaluation(min(episodes, MOST_COPIES), seed, device)) as envs:
        return evaluate(bound(model, envs), envs, episodes, seed).returns
