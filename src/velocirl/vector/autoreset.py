"""Gymnasium's other autoreset modes, NEXT_STEP and DISABLED, on top of a native fleet."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from numpy.typing import NDArray

from velocirl.engine.fleets.fleet import saved
from velocirl.vector.native import FleetVectorEnv


def with_autoreset(fleet: FleetVectorEnv, mode: AutoresetMode) -> VectorEnv:
    """Return the fleet itself for SAME_STEP, otherwise the adapter for the mode."""
    if mode == AutoresetMode.SAME_STEP:
        return fleet
    if fleet.device == "cuda":
        raise ValueError(f"{fleet.environment.id}: on CUDA the autoreset mode is SAME_STEP, not {mode.name}")
    return NextStep(fleet) if mode == AutoresetMode.NEXT_STEP else Disabled(fleet)


class _Adapter(VectorWrapper):
    """Base adapter: returns a finished episode's last observation in its row and records which environments wait.

    The fleet underneath has already begun the next episode; a waiting environment stays at its first observation.
    """

    env: FleetVectorEnv  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, fleet: FleetVectorEnv, mode: AutoresetMode) -> None:
        super().__init__(fleet)
        fleet.lends = False  # the adapter needs the fleet's own observations
        self.autoreset_mode = mode
        self.metadata = {**fleet.metadata, "autoreset_mode": mode}
        self._waiting = np.zeros(fleet.num_envs, np.bool_)

    def reset(
        self, *, seed: int | Sequence[int | None] | None = None, options: Mapping[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Start new episodes.

        Without a seed, a waiting environment uses the episode that has already begun, so that nothing is sampled twice.
        """
        chosen, others = self.env.split(options)
        self.env.start(seed, chosen if seed is not None or others else chosen & ~self._waiting, others)
        self._waiting = self._waiting & ~chosen
        return self._with_ends(self.env.given(self.env.seen(self.env.copies.observation))), self.env.mask_info()

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's parameter, state field, attribute or method result, see `FleetVectorEnv.call`."""
        return self.env.call(name, *args, **kwargs)

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return each environment's parameter, state field or attribute."""
        return self.env.get_attr(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set a parameter from now on: one value for all environments or, with a list or tuple, one for each."""
        self.env.set_attr(name, values)

    def get_state(self) -> dict[str, NDArray[Any]]:
        """Return the complete state, including which environments wait."""
        ends = {"waiting": self._waiting.copy(), "final_observation": self.env.copies.final_observation.copy()}
        return self.env.get_state() | ends

    def set_state(self, state: Mapping[str, NDArray[Any]]) -> Any:
        """Restore a state from `get_state`; returns the observations."""
        missing = {"waiting", "final_observation"} - set(state)
        if missing:
            raise ValueError(f"a fleet's state in this autoreset mode has {', '.join(sorted(missing))} too")
        observations = self.env.set_state({name: state[name] for name in state if name in saved(self.env.environment)})
        self._waiting = np.array(state["waiting"], np.bool_)
        self.env.copies.final_observation[...] = state["final_observation"]
        return self._with_ends(observations)

    @staticmethod
    def _leave_final_observations(infos: dict[str, Any]) -> None:
        """Remove the final observations from the infos: the returned observations are the final ones here."""
        for name in ("final_obs", "_final_obs"):
            infos.pop(name, None)

    def _with_final_masks(self, infos: dict[str, Any]) -> dict[str, Any]:
        """Return the infos with the final state's action mask for each waiting environment."""
        if "action_mask" in infos and self._waiting.any():
            final = self.env.copies.final_mask
            infos["action_mask"] = np.where(self._waiting[:, None], final, infos["action_mask"])
        return infos

    def _with_ends(self, observations: NDArray[Any]) -> NDArray[Any]:
        """Return the observations with the last observation of its episode for each waiting environment."""
        if not self._waiting.any():
            return observations
        # The fleet's own array must keep the first observation of the next episode.
        observations = observations if self.env.copy else observations.copy()
        observations[self._waiting] = self.env.seen(self.env.copies.final_observation)[self._waiting]
        return observations


class NextStep(_Adapter):
    """NEXT_STEP: a finished environment ignores its next action and returns a new episode's first observation."""

    def __init__(self, fleet: FleetVectorEnv) -> None:
        super().__init__(fleet, AutoresetMode.NEXT_STEP)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step the environments within an episode; waiting ones begin their next episode."""
        waiting = self._waiting
        standing = {name: getattr(self.env.copies, name)[waiting] for name in saved(self.env.environment)}
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._leave_final_observations(infos)
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
            for name in ("cost", "costs"):
                if name in infos:
                    infos[name] = np.where(waiting.reshape(-1, *(1,) * (infos[name].ndim - 1)), 0, infos[name])
            if "final_info" in infos:
                infos["_final_info"] = infos["_final_info"] & ~waiting
                told = infos["final_info"]
                told |= {name: infos["_final_info"] for name in ("_episode", "_cost", "_costs") if name in told}
        self._waiting = terminated | truncated
        return self._with_ends(observations), rewards, terminated, truncated, self._with_final_masks(infos)


class Disabled(_Adapter):
    """DISABLED: a finished environment stays at its end until it is reset with `options={"reset_mask": ...}`."""

    def __init__(self, fleet: FleetVectorEnv) -> None:
        super().__init__(fleet, AutoresetMode.DISABLED)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments; raises RuntimeError if one has finished."""
        if self._waiting.any():
            copies = ", ".join(map(str, np.flatnonzero(self._waiting)[:8]))
            raise RuntimeError(
                f"{self.env.environment.id}: copies {copies} have finished; call reset(options={{'reset_mask': ended}})"
            )
        observations, rewards, terminated, truncated, infos = self.env.step(actions)
        self._leave_final_observations(infos)
        self._waiting = terminated | truncated
        return self._with_ends(observations), rewards, terminated, truncated, self._with_final_masks(infos)
