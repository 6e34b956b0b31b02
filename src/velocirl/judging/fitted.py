"""Fitted Q evaluation: return of a policy, estimated from another policy's data."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import inf, isfinite, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.dataset import Dataset
from velocirl.judging.acting import actions_at_recorded, policy_for
from velocirl.judging.numbers import Numbers
from velocirl.judging.process import Places, Process, Stretches, process_of
from velocirl.judging.value import FittedValue
from velocirl.runs.intervals import student_t
from velocirl.trajectories.policies import Policy, name_of

FITS, UPDATES = 5, 15_000
Progress = Callable[[int, int], Any]


@dataclass(frozen=True)
class FittedQEvaluation:
    """Result of fitted Q evaluation, compared with the returns in the data."""

    policy: str
    estimates: NDArray[np.float64]  # (fits,) estimated returns, each from another resample of the data
    returns: NDArray[np.float64]  # of whole episodes in the data, with the same horizon and discount
    beginnings: int  # number of initial states
    horizon: int  # maximum steps of an episode
    gamma: float
    lowest: float = -inf  # possible value of an episode: 0 for a cost or a probability
    highest: float = inf

    @property
    def mean_return(self) -> float:
        """Estimated return of an episode: the mean over fits."""
        return float(self.estimates.mean())

    @property
    def interval(self) -> tuple[float, float]:
        """95% interval of the return, by Student's t around the mean, within the possible values.

        The standard deviation over resamples is the standard error, for a sample of `beginnings` and for the networks'
        initialization. A single fit or a single recorded start gives no estimate of it: then the interval contains all
        possible values. The interval does not cover the effect of actions that the data lacks.
        """
        count = self.beginnings
        if len(self.estimates) == 1 or count == 1:
            return self.lowest, self.highest
        spread = float(self.estimates.std(ddof=1)) * sqrt(count / (count - 1))
        reach = student_t(len(self.estimates) - 1) * spread
        return max(self.mean_return - reach, self.lowest), min(self.mean_return + reach, self.highest)

    @property
    def behaviour_return(self) -> float:
        """Mean return of the data."""
        return float(self.returns.mean())

    def __str__(self) -> str:
        low, high = self.interval
        kind = "return" if self.gamma == 1.0 else f"return, discounted by {self.gamma:g},"
        return (
            f"{self.policy}: estimated {kind} {self.mean_return:,.2f} ({low:,.2f} to {high:,.2f}) over {self.horizon}"
            f" steps; the data returned {self.behaviour_return:,.2f}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Return all values as JSON-compatible types."""
        low, high = (float(end) if isfinite(end) else None for end in self.interval)
        return {
            "policy": self.policy,
            "mean": self.mean_return,
            "low": low,
            "high": high,
            "estimates": self.estimates.tolist(),
            "behaviour": self.behaviour_return,
            "beginnings": self.beginnings,
            "horizon": self.horizon,
            "gamma": self.gamma,
        }


def fitted_q_evaluation(
    policy: Policy,
    data: Dataset | str | Path,
    *,
    gamma: float = 1.0,
    horizon: int | None = None,
    deterministic: bool = True,
    fits: int = FITS,
    updates: int = UPDATES,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> FittedQEvaluation:
    """Estimate the return of an episode of a policy, from the initial states of recorded data (Le et al., 2019).

    No environment is stepped. A policy is the same as for `evaluate`: an agent, a controller, a function of an
    observation, or the path of a run. The evaluated actions are its best ones if `deterministic`, or else one sampled
    at each state. Returns refer to whole episodes of `horizon` steps, undiscounted unless there is a `gamma`. The
    horizon is at most the longest episode in the data. The interval is over `fits`, each of `updates` on its own
    resample of the episodes. `settings` are those of the network's training: `hidden`, `device`, `learning_rate`.
    """
    if fits < 1:
        raise ValueError(f"fits must be at least 1, got {fits}")
    data = data if isinstance(data, Dataset) else Dataset.load(data)
    fit = Fit(Stretches.of(data, horizon), data.rewards, gamma, updates, settings)
    actions = actions_at_recorded(policy_for(policy, data), data, deterministic=deterministic)
    return fit.evaluation(name_of(policy), fit.estimates(actions, fits, seed, progress))


class Fit:
    """Values of policies, learned from one data set: of its rewards, of its costs, or the probability of a stop.

    Each step after a termination counts `after`. With `probability`, the value is the probability of a reward of 1,
    which ends an episode.
    """

    def __init__(
        self,
        stretches: Stretches,
        rewards: NDArray[np.float32],
        gamma: float,
        updates: int,
        settings: dict[str, Any],
        *,
        after: NDArray[np.float64] | None = None,
        probability: bool = False,
    ) -> None:
        if not 0.0 < gamma <= 1.0:
            raise ValueError(f"gamma must be above 0 and at most 1, got {gamma}")
        if not stretches.whole.any():
            raise ValueError(
                f"no episode in the data has {stretches.horizon} steps or ends before: give a shorter horizon"
            )
        self.stretches, self.gamma, self._rewards = stretches, gamma, rewards
        self._after, self._probability = after, probability
        self._updates, self._settings = updates, settings

    def returns(self) -> NDArray[np.float64]:
        """Return the returns in the data."""
        return self.stretches.returns(self.gamma, self._rewards, self._after)

    def evaluation(self, policy: str, estimates: NDArray[np.float64]) -> FittedQEvaluation:
        """Return the estimates together with the returns of the data and the possible values."""
        stretches = self.stretches
        beginnings = len(stretches.firsts) - 1
        lowest, highest = self._process(None).bounds
        return FittedQEvaluation(
            policy, estimates, self.returns(), beginnings, stretches.horizon, self.gamma, lowest, highest
        )

    def _process(self, actions: Numbers | None) -> Process:
        more = {"after": self._after, "probability": self._probability}
        return process_of(self.stretches, actions, self._rewards, self.gamma, **more)

    def estimates(
        self, actions: Numbers | None, fits: int, seed: int, progress: Progress | None = None
    ) -> NDArray[np.float64]:
        """Return a policy's value for each fit, given its actions at all observations; None: the behavior policy.

        A single fit uses all of the data, and several use resamples of it.
        """
        process = self._process(actions)
        count = len(process.beginnings)
        found = []
        for fit in range(fits):
            if progress is not None:
                progress(fit, fits)
            generator = np.random.default_rng([seed, fit])
            chosen = np.arange(count) if fits == 1 else generator.integers(0, count, count)
            found.append(self._value(process, chosen, generator))
        return np.array(found)

    def _value(self, process: Process, chosen: Places, generator: np.random.Generator) -> float:
        (lowest, highest), seed = process.limits, int(generator.integers(2**31))
        data = process.sample(self.stretches.rows(chosen), generator)
        agent = FittedValue(data=data, **{"seed": seed, "lowest": lowest, "highest": highest, **self._settings})
        agent.learn(self._updates, progress=False)
        outputs, _ = agent.predict(process.beginnings[chosen], deterministic=True)
        return float(process.value(outputs[:, 0]).mean())
