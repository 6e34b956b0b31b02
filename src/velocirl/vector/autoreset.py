"""The other ways in which Gymnasium lets a vector environment start new episodes, on top of a native fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from velocirl.engine.fleet import SAVED
from velocirl.vector.native import FleetVectorEnv


def with_autoreset(fleet: FleetVectorEnv, mode: AutoresetMode) -> VectorEnv:
    """The fleet itself for SAME_STEP, or the adapter for another mode."""
    if mode == AutoresetMode.SAME_STEP:
        return fleet
    if fleet.device == "cuda":
        raise ValueError(f"{fleet.environment.id}: on CUDA the autoreset mode is SAME_STEP, not {mode.name}")
    return NextStep(fleet) if mode == AutoresetMode.NEXT_STEP else Disabled(fleet)


class _Adapter(VectorWrapper):
    """Shows the last observation of a finished episode in its place, and remembers which copies wait for a reset."""

    env: FleetVectorEnv  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, fleet: FleetVectorEnv, mode: AutoresetMode) -> None:
        super().__init__(fleet)
        self.metadata = {**fleet.metadata, "autoreset_mode": mode}
        self._waiting = np.zeros(fleet.num_envs, np.bool_)

    def _step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        final, ended = infos.pop("final_obs", None), infos.pop("_final_obs", None)
        if ended is not None and final is not None:
            # The fleet's own array must keep the first observation of the next episode.
            observations = observations if self.env.copy else observations.copy()
            observations[ended] = final[ended]
        return observations, rewards, terminated, truncated, infos


class NextStep(_Adapter):
    """NEXT_STEP: a finished copy ignores its next action and gives the first observation of a new episode instead."""

    def __init__(self, fleet: FleetVectorEnv) -> None:
        super().__init__(fleet, AutoresetMode.NEXT_STEP)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes; none is waiting for one then."""
        self._waiting[(options or {}).get("reset_mask", slice(None))] = False
        return self.env.reset(seed=seed, options=options)  # pyright: ignore[reportArgumentType]

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the copies in the midst of an episode; the others have begun theirs and stand still for this step."""
        waiting = self._waiting.copy()
        standing = {name: getattr(self.env.copies, name)[waiting] for name in SAVED}
        observations, rewards, terminated, truncated, infos = self._step(actions)
        if waiting.any():
            for name, rows in standing.items():
                getattr(self.env.copies, name)[waiting] = rows
            observations, rewards, terminated, truncated = (
                array if self.env.copy else array.copy() for array in (observations, rewards, terminated, truncated)
            )
            observations[waiting] = self.env.seen(standing["observation"])
            rewards[waiting], terminated[waiting], truncated[waiting] = 0.0, False, False
            if "action_mask" in infos:
                infos["action_mask"][waiting] = standing["mask"]
            if "_episode" in infos:
                infos["_episode"] = infos["_episode"] & ~waiting
        self._waiting = terminated | truncated
        return observations, rewards, terminated, truncated, infos


class Disabled(_Adapter):
    """DISABLED: a finished copy stays at its end until it is reset with `options={"reset_mask": ...}`."""

    def __init__(self, fleet: FleetVectorEnv) -> None:
        super().__init__(fleet, AutoresetMode.DISABLED)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes. A finished copy has its next one ready, so that without a seed nothing is drawn twice."""
        chosen = np.asarray((options or {}).get("reset_mask", np.ones(self.num_envs, np.bool_)))
        anew = chosen if seed is not None else chosen & ~self._waiting
        result = self.env.reset(seed=seed, options={**(options or {}), "reset_mask": anew})  # pyright: ignore
        self._waiting &= ~chosen
        return result

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all copies; none may have finished."""
        if self._waiting.any():
            copies = ", ".join(map(str, np.flatnonzero(self._waiting)[:8]))
            raise RuntimeError(
                f"{self.env.environment.id}: copies {copies} have finished; call reset(options={{'reset_mask': ended}})"
            )
        result = self._step(actions)
        self._waiting: NDArray[np.bool_] = result[2] | result[3]
        return result
