"""Evaluation report: arguments for and against deploying a policy, from recorded data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.info import DatasetInfo
from velocirl.judging.acting import actions_at_recorded, policy_for
from velocirl.judging.coverage import Coverage, coverage_of
from velocirl.judging.fitted import FITS, UPDATES, Fit, FittedQEvaluation, Progress
from velocirl.judging.process import Stretches
from velocirl.judging.rollouts import ROLLOUTS
from velocirl.judging.stops import MAX_STOPS, MIN_EPISODES, StopRisk, stop_risk, stops_in
from velocirl.monitor.words import plural, say_figure
from velocirl.runs.seeds import mean_and_reach
from velocirl.trajectories.policies import Policy, name_of

MOST_UNUSUAL = 3.0  # times as many unusual actions as in the data itself: beyond that the policy acts differently


@dataclass(frozen=True)
class OfflineJudgement:
    """Comparison of a policy with recorded data."""

    value: FittedQEvaluation  # of the policy's return
    check: float  # estimate of the behavior policy's return, whose true value is known
    cost: FittedQEvaluation | None  # of an episode, each step after a stop included; None if the data has no costs
    stops: StopRisk
    coverage: Coverage
    info: DatasetInfo

    @property
    def fit(self) -> bool:
        """True if no argument against the policy concerns its safety."""
        return not self._unsafe()

    @property
    def verdict(self) -> str:
        """Verdict on safety: "fit for a trial", "too little data to judge" or "not fit"."""
        if self.fit:
            return "fit for a trial"
        return "too little data to judge" if self.stops.only_too_little() else "not fit"

    @property
    def speaks_for(self) -> list[str]:
        """Arguments for deployment."""
        return [text for good, text in self._arguments() if good]

    @property
    def speaks_against(self) -> list[str]:
        """Arguments against deployment, safety first."""
        return [*self._unsafe(), *(text for good, text in self._arguments() if not good)]

    def _unsafe(self) -> list[str]:
        found = self.stops.speaks_against()
        if not self.info.constraints:
            found.append("the data has no constraints: emergency stops are not recorded")
        return found

    def _arguments(self) -> list[tuple[bool, str]]:
        found, (low, high), behaviour = [], self.value.interval, self.value.behaviour_return
        if self.fit:
            found.append((True, f"emergency stops in at most {self.stops.high:.1%} of episodes"))
        fitted = self.stops.fitted
        if self.fit and fitted.mean_return > MAX_STOPS:
            found.append((False, f"fitted Q evaluation does not exclude stops: {_percent(fitted)} of episodes"))
        if self.cost is not None and self.cost.interval[0] > self.cost.behaviour_return:
            found.append((False, "it is estimated to violate constraints more often than the data did"))
        reach = float(mean_and_reach(self.value.returns[:, None])[1][0])
        if low > behaviour + reach:
            found.append((True, "it is estimated to return more than the data did"))
        elif high < behaviour - reach:
            found.append((False, "it is estimated to return less than the data did"))
        else:
            found.append((False, "it is not known to return more than the data did: what both may return overlaps"))
        unusual, own = self.coverage.unusual, self.coverage.own
        if unusual > max(MOST_UNUSUAL * own, 0.05):
            found.append((False, f"{unusual:.0%} of its actions are unlike those of the data in similar states, where"
                                 " estimates are extrapolated"))  # fmt: skip
        elif self.fit:
            found.append((True, "it stays where the data is, and acts there as the data did, but for a few actions"))
        error = abs(self.check - behaviour)
        if error > max((high - low) / 2, reach):
            found.append((False, f"on the data's own policy the method is off by {say_figure(error)}, more than it says"
                                 " of itself"))  # fmt: skip
        return found

    def rows(self) -> list[tuple[str, str, str]]:
        """Return the table rows: name, value of the policy, value of the data."""
        value, coverage = self.value, self.coverage
        kind = "return" if value.gamma == 1.0 else f"return discounted by {value.gamma:g}"
        found = [
            ("", value.policy, "data"),
            (f"{kind} over {plural(value.horizon, 'step')}", _spread(value), _of_data(value)),
        ]
        known = self.info.references
        if {"random", "expert"} <= known.keys() and known["random"] != known["expert"] and value.gamma == 1.0:
            score, own = (float(self.info.normalised(one)) for one in (value.mean_return, value.behaviour_return))
            found.append(("score (0 random, 100 expert)", f"{score:.1f}", f"{own:.1f}"))
        elif known:
            found += [(f"return of {name}", "", say_figure(one)) for name, one in known.items()]
        found.append(("the same estimate of the data's policy", "", say_figure(self.check)))
        if self.cost is not None:
            found.append(("cost of an episode", _spread(self.cost), _of_data(self.cost)))
        stops, episodes = self.stops, len(self.value.returns)
        risk = f"{stops.probability:.1%} (up to {stops.high:.1%})"
        found.append(("episodes with an emergency stop", risk, f"{stops.recorded} in {plural(episodes, 'episode')}"))
        found.append(("the same by fitted Q evaluation", _percent(stops.fitted), ""))
        found.append(("actions unlike the data's", f"{coverage.unusual:.0%}", f"{coverage.own:.0%}"))
        if stops.rollouts is not None:
            rollouts = stops.rollouts
            found.append(("rollouts that leave the data", f"{stops.left:.0%} of {len(rollouts.stopped)}", ""))
            found.append(("effective episodes", f"{stops.effective:.0f}", f"{MIN_EPISODES} needed"))
            found.append(("steps that the model follows", "", f"{rollouts.follows} of {rollouts.horizon}"))
        return found

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        said = [f"Verdict: {self.verdict}."]
        for words, arguments in (("Against", self.speaks_against), ("For", self.speaks_for)):
            if arguments:
                said.append(f"{words} deploying it: {'; '.join(arguments)}.")
        return "\n".join([*said, *lines])

    def as_dict(self) -> dict[str, Any]:
        """Return all values as JSON-compatible types."""
        return {
            "verdict": self.verdict,
            "fit": self.fit,
            "against": self.speaks_against,
            "for": self.speaks_for,
            "stops": self.stops.as_dict(),
            "return": self.value.as_dict(),
            "check": self.check,
            "cost": None if self.cost is None else self.cost.as_dict(),
            "unusual": self.coverage.unusual,
            "unusual_of_data": self.coverage.own,
            "references": dict(self.info.references),
        }


def judge_offline(
    policy: Policy,
    data: Dataset | str | Path,
    *,
    gamma: float = 1.0,
    horizon: int | None = None,
    deterministic: bool = True,
    fits: int = FITS,
    updates: int = UPDATES,
    rollouts: int = ROLLOUTS,
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> OfflineJudgement:
    """Evaluate a policy by recorded data alone: return and cost, risk of emergency stops, and coverage.

    Arguments as in `fitted_q_evaluation`. The risk of a stop has two estimates: `rollouts` of the policy in a
    one-step model of the data, and fitted Q evaluation of the probability. A rollout that leaves the data counts as
    stopped. The verdict concerns safety alone, and is cautious. A policy is fit for a trial if stops in more than 5% of
    episodes are excluded with 95% confidence, given the effective number of recorded episodes.
    """
    if fits < 1:
        raise ValueError(f"fits must be at least 1, got {fits}")
    data = data if isinstance(data, Dataset) else Dataset.load(data)
    segments, name = Stretches.of(data, horizon), name_of(policy)
    model = policy_for(policy, data)
    actions = actions_at_recorded(model, data, deterministic=deterministic)
    costs, stops = data.costs.sum(1), stops_in(data)
    total = fits + 1 + fits * bool(costs.any()) + fits * bool(stops.any())

    def after(before: int) -> Progress:
        return lambda fit, _: None if progress is None else progress(before + fit, total)

    fit = Fit(segments, data.rewards, gamma, updates, settings)
    value = fit.evaluation(name, fit.estimates(actions, fits, seed, after(0)))
    check = float(fit.estimates(None, 1, seed, after(fits))[0])
    cost, done = None, fits + 1
    if costs.any():
        fit = Fit(segments, costs, gamma, updates, settings, after=stops.astype(np.float64))
        cost = fit.evaluation(name, fit.estimates(actions, fits, seed, after(done)))
        done += fits
    more = {"horizon": horizon, "deterministic": deterministic, "fits": fits, "updates": updates, "seed": seed}
    risk = stop_risk(policy, data, rollouts=rollouts, progress=after(done), **more, **settings)
    return OfflineJudgement(value, check, cost, risk, coverage_of(data, actions, seed=seed), data.info)


def _spread(value: FittedQEvaluation) -> str:
    low, high = value.interval
    return f"{say_figure(value.mean_return)} ({say_figure(low)} to {say_figure(high)})"


def _percent(value: FittedQEvaluation) -> str:
    low, high = value.interval
    return f"{value.mean_return:.0%} ({low:.0%} to {high:.0%})"


def _of_data(value: FittedQEvaluation) -> str:
    return f"{say_figure(value.behaviour_return)} in {plural(len(value.returns), 'episode')}"
