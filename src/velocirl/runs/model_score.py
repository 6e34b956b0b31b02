"""Scores of models: the return, preceded by episode costs for agents with constraints."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import msgspec
import numpy as np
from numpy.typing import NDArray

from velocirl.runs.intervals import CONFIDENCE, exact_share, mean_cost


class LimitedCost(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Episode cost under a limit: the mean of the episodes seen, and the upper end of its interval."""

    name: str
    limit: float
    mean: float
    high: float
    episodes: int

    @property
    def excess(self) -> float:
        """The excess of the upper end over the limit, as a multiple of the limit; 0 within it."""
        return max(self.high - self.limit, 0.0) / max(self.limit, 1.0)

    def __str__(self) -> str:
        return (
            f"{self.name} {self.mean:.4g}, at most {self.high:.4g} with {CONFIDENCE:.0%} confidence"
            f" ({self.episodes} episodes), limit {self.limit:.4g}"
        )


Costs = tuple[LimitedCost, ...]


def limited_cost(name: str, limit: float, costs: Sequence[float] | NDArray[Any], length: float) -> LimitedCost:
    """Compare the costs of episodes of mean `length` steps with a limit.

    Fewer than two episodes of nonzero cost do not prove that there are no more. One more is then assumed to cost as
    much as the most expensive one, or 1 in each step. A non-finite cost exceeds every limit.
    """
    values = np.asarray(costs, np.float64)
    values = np.where(np.isfinite(values), values, np.finfo(np.float32).max)
    mean, _, high = mean_cost(values)
    if not math.isfinite(high):
        confidence = 1.0 - (1.0 - CONFIDENCE) / 2
        high = exact_share(int(np.count_nonzero(values)), len(values), confidence)[1] * max(float(values.max()), length)
    return LimitedCost(name, float(limit), mean, high, len(values))


def limited_costs(
    limits: Mapping[str, float], costs: Mapping[str, Sequence[float] | NDArray[Any]], lengths: Sequence[float] | Any
) -> tuple[LimitedCost, ...]:
    """Compare the episode costs with their limits; limits without any known costs are omitted."""
    length = float(np.mean(lengths)) if len(lengths) else 0.0
    known = {name: limit for name, limit in limits.items() if len(costs.get(name, ()))}
    return tuple(limited_cost(name, limit, costs[name], length) for name, limit in known.items())


@dataclass(frozen=True)
class ModelScore:
    """Return of a model by a metric, and the costs that have a limit.

    A run keeps the best of several models, so the costs by which it was selected are biased downward. `fresh` are costs
    of other episodes, not used for selection; these are reported.
    """

    metric: str
    value: float
    costs: tuple[LimitedCost, ...] = ()
    fresh: tuple[LimitedCost, ...] = ()

    @property
    def reported(self) -> tuple[LimitedCost, ...]:
        """The costs of fresh episodes or, without them, the costs used for selection."""
        return self.fresh or self.costs

    @property
    def within(self) -> bool:
        """True if the upper ends of all reported costs are within their limits."""
        return all(one.high <= one.limit for one in self.reported)

    @property
    def excess(self) -> float:
        """The largest excess of the costs used for selection over their limits; 0 within them."""
        return max((one.excess for one in self.costs), default=0.0)

    def beats(self, other: ModelScore | None) -> bool:
        """Return whether this score is better: by a smaller excess first, then by a higher return."""
        return other is None or self._rank > other._rank

    @property
    def _rank(self) -> tuple[float, float]:
        return -self.excess, self.value

    def __str__(self) -> str:
        """Format the costs: within its limits: cost 18.2, at most 23.9 with 95% confidence (100 episodes), limit 25."""
        if not self.costs:
            return ""
        over = any(one.mean > one.limit for one in self.reported)
        kept = "within its limits" if self.within else "over its limits" if over else "not shown to keep its limits"
        return f"{kept}: {'; '.join(map(str, self.reported))}"

    def document(self) -> dict[str, Any]:
        """Return plain values for a saved state."""
        found: dict[str, Any] = {"metric": self.metric, "score": self.value}
        costs = {"costs": self.costs, "fresh": self.fresh}
        return found | {name: msgspec.to_builtins(one) for name, one in costs.items() if one}

    @classmethod
    def read(cls, document: Mapping[str, Any] | None) -> Self | None:
        """Return the score in such values; None where they are not a score."""
        if not isinstance(document, Mapping) or not isinstance(document.get("metric"), str):
            return None
        try:
            value = msgspec.convert(document.get("score"), float)
            costs, fresh = (msgspec.convert(document.get(name, []), Costs) for name in ("costs", "fresh"))
        except msgspec.ValidationError:
            return None
        return cls(document["metric"], value, costs, fresh)
