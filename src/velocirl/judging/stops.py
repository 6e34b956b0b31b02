"""Risk of emergency stops: the probability that an episode of a policy violates a critical constraint."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.dataset import Dataset
from velocirl.engine import registry
from velocirl.judging.acting import actions_at_recorded, policy_for
from velocirl.judging.fitted import FITS, UPDATES, Fit, FittedQEvaluation, Progress
from velocirl.judging.process import Stretches
from velocirl.judging.rollouts import ROLLOUTS, OneStepModel, Rollouts
from velocirl.runs.intervals import exact_share
from velocirl.trajectories.policies import Policy, name_of

MAX_STOPS = 0.05  # of episodes: a policy with more is unsafe
CONFIDENCE = 0.95  # one-sided, of the upper end of the risk
UNFAMILIAR = 0.05  # of the steps of a rollout: with more of them far from the data it has left the data
MIN_EPISODES = 59  # effective ones: fewer without any stop do not exclude 5% of stops, 0.95^59 < 0.05


@dataclass(frozen=True)
class StopRisk:
    """Risk of emergency stops, by fitted Q evaluation and by rollouts in a learned one-step model.

    A rollout that leaves the data counts as stopped, because its rest is unknown. Rollouts decide the verdict; the
    estimate by fitted Q evaluation decides if its whole interval is above the limit.
    """

    fitted: FittedQEvaluation  # of the probability of a stop: values between 0 and 1
    rollouts: Rollouts | None  # None if the model cannot be learned
    recorded: int  # stops in the data
    why_not: str = ""  # why the model cannot be learned

    @property
    def fit(self) -> bool:
        """True if more stops than the limit are excluded."""
        return not self.speaks_against()

    @property
    def stopped(self) -> float:
        """Fraction of the rollouts that stop."""
        return 1.0 if self.rollouts is None else float(self.rollouts.stopped.mean())

    @property
    def left(self) -> float:
        """Fraction of the rollouts that leave the data."""
        return 1.0 if self.rollouts is None else float(self.rollouts.left(UNFAMILIAR).mean())

    @property
    def effective(self) -> float:
        """Effective number of recorded episodes near the rollouts."""
        return 0.0 if self.rollouts is None else self.rollouts.effective

    @property
    def probability(self) -> float:
        """Estimated probability of a stop in an episode, by rollouts; without a model, by fitted Q evaluation."""
        return self.fitted.mean_return if self.rollouts is None else self.stopped

    @property
    def high(self) -> float:
        """Upper end of the probability: exact, for the effective number of episodes of rollouts and data."""
        if self.rollouts is None:
            return 1.0
        lost = self.rollouts.stopped | self.rollouts.left(UNFAMILIAR)
        episodes = int(min(self.effective, len(lost)))
        if episodes < 1:
            return 1.0
        bad = min(ceil(float(lost.mean()) * episodes), episodes)
        return exact_share(bad, episodes, 2.0 * CONFIDENCE - 1.0)[1]

    def speaks_against(self) -> list[str]:
        """Return the reasons why the policy is not known to be safe; none for a policy that is."""
        if self.rollouts is None:
            return [f"the states that it would reach cannot be compared with the data: {self.why_not}"]
        found = []
        estimate = max(self.stopped, self.fitted.interval[0])
        if estimate > MAX_STOPS:
            found.append(f"it is estimated to cause an emergency stop in {estimate:.0%} of episodes")
        if self.effective < MIN_EPISODES:
            few = f"{self.effective:.0f} effective episodes, at least {MIN_EPISODES} needed"
            found.append(f"too little data to judge: {few}")
        if self.high > MAX_STOPS:
            if self.left > 0.0:
                found.append(f"{self.left:.0%} of its rollouts leave the data, where nothing is known")
            many = f"{self.high:.0%} of episodes are not excluded (limit {MAX_STOPS:.0%})"
            found.append(f"emergency stops in up to {many}")
        return found

    def only_too_little(self) -> bool:
        """Return whether the number of episodes is the only problem."""
        known = self.rollouts is not None and self.left == 0.0 and self.stopped == 0.0
        return known and self.effective < MIN_EPISODES and self.fitted.mean_return <= MAX_STOPS

    def as_dict(self) -> dict[str, Any]:
        """Return all values as JSON-compatible types."""
        rollouts = self.rollouts
        return {
            "probability": self.probability,
            "high": self.high,
            "limit": MAX_STOPS,
            "fitted": self.fitted.as_dict(),
            "recorded": self.recorded,
            "stopped": None if rollouts is None else self.stopped,
            "left": None if rollouts is None else self.left,
            "rollouts": 0 if rollouts is None else len(rollouts.stopped),
            "effective_episodes": self.effective,
            "model_follows": None if rollouts is None else rollouts.follows,
        }


def stops_in(data: Dataset) -> NDArray[np.bool_]:
    """Return which recorded transitions are emergency stops.

    Critical constraints are the environment's. For an unknown plant, a stop is a termination with a violation.
    """
    info = data.info
    if info.environment in registry.list_envs():
        critical = [one.name for one in registry.find(info.environment).constraints if one.critical]
        columns = [place for place, name in enumerate(info.constraints) if name in critical]
        return np.asarray((data.costs[:, columns] > 0.0).any(1))
    return data.terminations & np.asarray((data.costs > 0.0).any(1))


def stop_risk(
    policy: Policy,
    data: Dataset | str | Path,
    *,
    horizon: int | None = None,
    deterministic: bool = True,
    fits: int = FITS,
    updates: int = UPDATES,
    rollouts: int = ROLLOUTS,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> StopRisk:
    """Estimate the probability that an episode of a policy ends in an emergency stop; arguments as `judge_offline`."""
    if rollouts < 1:
        raise ValueError(f"rollouts={rollouts} must be at least 1")
    data = data if isinstance(data, Dataset) else Dataset.load(data)
    model, stops, segments = policy_for(policy, data), stops_in(data), Stretches.of(data, horizon)
    fit = Fit(segments, stops.astype(np.float32), 1.0, updates, settings, probability=True)
    estimates = np.zeros(fits)
    if stops.any():  # otherwise all targets are 0
        actions = actions_at_recorded(model, data, deterministic=deterministic)
        estimates = fit.estimates(actions, fits, seed, progress)
    fitted, count = fit.evaluation(name_of(policy), estimates), int(stops.sum())
    try:
        learned = OneStepModel(data, stops, seed)
    except ValueError as error:
        return StopRisk(fitted, None, count, str(error))
    firsts = data.starts[:-1] + np.arange(data.episodes)
    starts = np.random.default_rng(seed).choice(firsts, rollouts)
    return StopRisk(fitted, learned.roll(model, starts, segments.horizon, deterministic=deterministic), count)
