"""What recorded data says for and against deploying a policy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.info import DatasetInfo
from velocirl.judging.acting import actions_at_recorded, policy_for
from velocirl.judging.coverage import Coverage, coverage_of
from velocirl.judging.fitted import FITS, UPDATES, Fit, FittedQEvaluation, Progress
from velocirl.judging.process import Stretches
from velocirl.monitor.words import plural, say_figure
from velocirl.runs.seeds import mean_and_reach
from velocirl.trajectories.policies import Policy, name_of

MOST_UNUSUAL = 3.0  # times as many unusual actions as the data has itself: more than that is another way to act


@dataclass(frozen=True)
class OfflineJudgement:
    """A policy beside the data by which it is judged."""

    value: FittedQEvaluation  # of its return
    check: float  # what the same method says of whoever acted in the data, whose return is known
    cost: FittedQEvaluation | None  # steps of an episode that violate a constraint; None where the data has no such
    coverage: Coverage
    info: DatasetInfo

    @property
    def speaks_for(self) -> list[str]:
        """What speaks for deploying the policy."""
        return [text for good, text in self._arguments() if good]

    @property
    def speaks_against(self) -> list[str]:
        """What speaks against it."""
        return [text for good, text in self._arguments() if not good]

    def _arguments(self) -> list[tuple[bool, str]]:
        found, (low, high), behaviour = [], self.value.interval, self.value.behaviour_return
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
        else:
            found.append((True, "it acts as the data did in similar states, but for a few actions"))
        error = abs(self.check - behaviour)
        if error > max((high - low) / 2, reach):
            found.append((False, f"on the data's own policy the method is off by {say_figure(error)}, more than it says"
                                 " of itself"))  # fmt: skip
        if self.cost is not None and self.cost.interval[0] > self.cost.behaviour_return:
            found.append((False, "it is estimated to violate constraints more often than the data did"))
        return found

    def rows(self) -> list[tuple[str, str, str]]:
        """The figures: what, of the policy, of the data."""
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
        found.append(("actions unlike the data's", f"{coverage.unusual:.0%}", f"{coverage.own:.0%}"))
        return found

    def __str__(self) -> str:
        rows = self.rows()
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        for words, arguments in (("For", self.speaks_for), ("Against", self.speaks_against)):
            if arguments:
                lines.append(f"{words} deploying it: {'; '.join(arguments)}.")
        return "\n".join(lines)

    def as_dict(self) -> dict[str, Any]:
        """All figures, as JSON can hold them."""
        return {
            "return": self.value.as_dict(),
            "check": self.check,
            "cost": None if self.cost is None else self.cost.as_dict(),
            "unusual": self.coverage.unusual,
            "unusual_of_data": self.coverage.own,
            "references": dict(self.info.references),
            "for": self.speaks_for,
            "against": self.speaks_against,
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
    seed: int = 0,
    progress: Progress | None = None,
    **settings: Any,
) -> OfflineJudgement:
    """Judge a policy by recorded data alone: what it would return and cost, and how much of what it does is known.

    Beside `fitted_q_evaluation`, which has the same arguments, it has the returns of the data, what the same method
    says of the policy that made the data (which shows how far to trust it), the estimated cost where constraints were
    violated, and the share of actions that are unlike those of the data in similar states.
    """
    if fits < 1:
        raise ValueError(f"fits must be at least 1, got {fits}")
    data = data if isinstance(data, Dataset) else Dataset.load(data)
    stretches, name = Stretches.of(data, horizon), name_of(policy)
    actions = actions_at_recorded(policy_for(policy, data), data, deterministic=deterministic)
    costs = data.costs.sum(1)
    total = 2 * fits + 1 if costs.any() else fits + 1

    def after(before: int) -> Progress:
        return lambda fit, _: None if progress is None else progress(before + fit, total)

    fit = Fit(stretches, data.rewards, gamma, updates, settings)
    value = fit.evaluation(name, fit.estimates(actions, fits, seed, after(0)))
    check = float(fit.estimates(None, 1, seed, after(fits))[0])
    cost = None
    if costs.any():
        fit = Fit(stretches, costs, gamma, updates, settings)
        cost = fit.evaluation(name, fit.estimates(actions, fits, seed, after(fits + 1)))
    return OfflineJudgement(value, check, cost, coverage_of(data, actions, seed=seed), data.info)


def _spread(value: FittedQEvaluation) -> str:
    low, high = value.interval
    return f"{say_figure(value.mean_return)} ({say_figure(low)} to {say_figure(high)})"


def _of_data(value: FittedQEvaluation) -> str:
    return f"{say_figure(value.behaviour_return)} in {plural(len(value.returns), 'episode')}"
