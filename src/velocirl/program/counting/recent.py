"""Recent training episodes: their returns, lengths and reported values."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.constraints import cost_names
from velocirl.engine.disk.saved import ArraySpec, Specs

RECENT = 100  # episodes over which returns and lengths are averaged, as Stable-Baselines3 does


class RecentEpisodes:
    """The last 100 episodes, and the number of constraint violations in all training steps."""

    def __init__(self, report: tuple[str, ...], constraints: tuple[str, ...], *, native: bool) -> None:
        """Set the reported fields and the constraints; `native` environments report costs at every step."""
        self._report, self._costs, self._native = report, cost_names(constraints), native
        self.returns: deque[float] = deque(maxlen=RECENT)
        self.lengths: deque[int] = deque(maxlen=RECENT)
        self.reported: dict[str, deque[float]] = {name: deque(maxlen=RECENT) for name in (*report, *self._costs)}
        self.violations = 0

    def take(
        self,
        returns: Sequence[float],
        lengths: Sequence[int],
        reported: Mapping[str, Sequence[float]],
        violations: int = 0,
    ) -> None:
        """Add finished episodes, the oldest first."""
        self.returns.extend(returns)
        self.lengths.extend(lengths)
        self.violations += violations
        for name, values in reported.items():
            unknown = name in self._costs and not self._native  # NaN for episodes whose infos have no cost
            self.reported[name].extend([value for value in values if not np.isnan(value)] if unknown else values)

    def metrics(self) -> dict[str, float | int | None]:
        """Return means over these episodes; None for unknown values."""
        means = {"rollout/ep_rew_mean": self.returns, "rollout/ep_len_mean": self.lengths}
        tells_costs = self._native or self.violations > 0 or bool(self.reported.get("cost"))
        costs = self._costs if tells_costs else ()
        means |= {f"episode/{name}": self.reported[name] for name in (*self._report, *costs)}
        row: dict[str, float | int | None] = {name: _mean(values) for name, values in means.items()}
        return {**row, "rollout/violations": self.violations} if costs else row

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays for a saved agent."""
        return {
            "recent.returns": np.array(self.returns, np.float64),
            "recent.lengths": np.array(self.lengths, np.int64),
            **{f"reported.{name}": np.array(values, np.float64) for name, values in self.reported.items()},
            **({"recent.violations": np.array([self.violations], np.int64)} if self._costs else {}),
        }

    def specs(self) -> Specs:
        """Return the specs of these arrays."""
        reported = ArraySpec(np.float64, (None,), finite=False, optional=True)
        return {
            "recent.returns": ArraySpec(np.float64, (None,)),
            "recent.lengths": ArraySpec(np.int64, (None,), 0, 2**62),
            "recent.violations": ArraySpec(np.int64, (1,), 0, 2**62, optional=True),
            **{f"reported.{name}": reported for name in self.reported},
        }

    def load(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        """Restore saved arrays."""
        reported = {name: arrays.get(f"reported.{name}", np.zeros(0)).tolist() for name in self.reported}
        violations = int(arrays.get("recent.violations", np.zeros(1))[0])
        self.take(arrays["recent.returns"].tolist(), arrays["recent.lengths"].tolist(), reported, violations)


def _mean(values: Sequence[float]) -> float | None:
    mean = float(np.mean(values)) if values else np.nan
    return mean if np.isfinite(mean) else None
