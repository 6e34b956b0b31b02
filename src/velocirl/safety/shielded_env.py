"""Shield around environments: policies that learn in them cannot leave the limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper

from velocirl.safety.action_filter import ActionFilter
from velocirl.safety.shield import Interventions


class ShieldedVectorEnv(VectorWrapper):
    """Vector environment that replaces unsafe actions by the nearest safe ones, see `Shield`.

    For each environment, `infos["shield"]` is whether its action was replaced, and `infos["emergency"]` whether the
    fallback acted because no action was safe. `interventions` counts both.
    """

    def __init__(self, envs: VectorEnv, fallback: Any = None, **options: Any) -> None:
        """Wrap a vector environment; `options` as for `ActionFilter`."""
        super().__init__(envs)
        if envs.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP:
            raise ValueError("a shield steps copies that begin anew within the same step: use AutoresetMode.SAME_STEP")
        self._filter = ActionFilter(envs, fallback, **options)
        self.interventions = Interventions()
        self._observations: Any = None
        self._memory: Any = None
        self._starts = np.ones(envs.num_envs, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes and reset the fallback's state."""
        chosen = (options or {}).get("reset_mask")
        self._starts = self._starts | True if chosen is None else self._starts | np.asarray(chosen, np.bool_)
        self._observations, infos = self.env.reset(seed=seed, options=options)  # pyright: ignore[reportArgumentType]
        return self._observations, infos

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step every environment with the requested action, or the nearest safe one."""
        if self._observations is None:
            raise RuntimeError("call reset() before step()")
        filtered = self._filter.filter(self._observations, actions, self._memory, self._starts)
        self.interventions.count(filtered)
        self._memory = filtered.memory
        self._observations, rewards, terminated, truncated, infos = self.env.step(filtered.actions)
        self._starts = np.asarray(terminated | truncated)
        told = {"shield": filtered.replaced, "emergency": filtered.emergency}
        return self._observations, rewards, terminated, truncated, {**infos, **told}
