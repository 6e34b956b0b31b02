"""Adapter from a fleet to Stable-Baselines3's VecEnv."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from stable_baselines3.common.env_util import is_wrapped  # pyright: ignore[reportMissingImports] - where installed
from stable_baselines3.common.monitor import Monitor  # pyright: ignore[reportMissingImports]
from stable_baselines3.common.vec_env import VecEnv  # pyright: ignore[reportMissingImports]


class FleetVecEnv(VecEnv):
    """VecEnv over a native or `gym:` fleet, or any Gymnasium vector environment with SAME_STEP autoreset.

    The info of a finished environment holds `terminal_observation`, `TimeLimit.truncated` and, as with a Monitor,
    `episode`. `reset_infos` holds the info of the next episode's reset. sb3-contrib finds the action masks of native
    fleets.
    """

    def __init__(self, fleet: VectorEnv) -> None:
        if fleet.metadata.get("autoreset_mode") != AutoresetMode.SAME_STEP:
            raise ValueError("Stable-Baselines3 needs a fleet with autoreset_mode=AutoresetMode.SAME_STEP")
        self.fleet = fleet
        self._copies: Any = fleet.unwrapped  # vector wrappers have neither get_attr nor call
        if getattr(self._copies, "device", "cpu") == "cuda":
            raise ValueError('Stable-Baselines3 takes observations from the host: make the fleet with device="cpu"')
        if not getattr(self._copies, "copy", True):
            raise ValueError("Stable-Baselines3 keeps observations over a step: make the fleet with copy=True")
        super().__init__(fleet.num_envs, fleet.single_observation_space, fleet.single_action_space)
        self._actions: Any = None
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        self._made = time.time()

    def reset(self) -> Any:
        """Start new episodes in all environments, with the seeds and options set before."""
        if any(options != self._options[0] for options in self._options):
            raise ValueError("a fleet begins all copies with the same options: give set_options one dict")
        seeds = None if all(seed is None for seed in self._seeds) else self._seeds
        observations, infos = self.fleet.reset(seed=seeds, options=self._options[0] or None)  # pyright: ignore
        self.reset_infos = [_of_copy(infos, copy) for copy in range(self.num_envs)]
        self._returns[:], self._lengths[:] = 0.0, 0
        self._reset_seeds()
        self._reset_options()
        return observations

    def step_async(self, actions: Any) -> None:
        """Store the actions for `step_wait`, where the fleet steps."""
        self._actions = actions

    def step_wait(self) -> tuple[Any, Any, Any, list[dict[str, Any]]]:
        """Step all environments; finished ones return the first observation of their next episode."""
        observations, rewards, terminated, truncated, infos = self.fleet.step(self._actions)
        self._returns += rewards
        self._lengths += 1
        dones = terminated | truncated
        last = {name: infos.pop(name) for name in ("final_obs", "final_info") if name in infos}
        told = [_of_copy(infos, copy) for copy in range(self.num_envs)]
        for copy in np.flatnonzero(dones).tolist():
            self.reset_infos[copy], told[copy] = told[copy], _of_copy(last.get("final_info", {}), copy)
            told[copy]["episode"] = {**told[copy].get("episode", {}), **self._episode(copy)}
            told[copy]["terminal_observation"] = last["final_obs"][copy]
            told[copy]["TimeLimit.truncated"] = bool(truncated[copy] and not terminated[copy])
        self._returns[dones], self._lengths[dones] = 0.0, 0
        return observations, rewards, dones, told

    def close(self) -> None:
        """Close the fleet."""
        self.fleet.close()

    def get_images(self) -> list[Any]:
        """Render an image of each environment."""
        return list(self.fleet.render() or ())

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Return the named attribute of the chosen environments."""
        values = self._copies.get_attr(attr_name)
        return [values[copy] for copy in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Set an attribute of the chosen environments; in a native fleet, a parameter."""
        values = [value] * self.num_envs if indices is None else list(self._copies.get_attr(attr_name))
        for copy in self._get_indices(indices):
            values[copy] = value
        self._copies.set_attr(attr_name, values)

    def env_method(self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any) -> list[Any]:
        """Call a method in all environments; `indices` select among the results."""
        results = self._copies.call(method_name, *method_args, **method_kwargs)
        return [results[copy] for copy in self._get_indices(indices)]

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """Return whether environments have a wrapper; True for Monitor, whose function this class fulfills."""
        envs = getattr(self._copies, "envs", None)
        return [
            wrapper_class is Monitor or (envs is not None and is_wrapped(envs[copy], wrapper_class))
            for copy in self._get_indices(indices)
        ]

    def _episode(self, copy: int) -> dict[str, float]:
        seconds = round(time.time() - self._made, 6)
        return {"r": round(float(self._returns[copy]), 6), "l": int(self._lengths[copy]), "t": seconds}


def _of_copy(infos: Mapping[str, Any], copy: int) -> dict[str, Any]:
    """Select one environment's infos from the batched infos, by their masks."""
    told = {}
    for name, value in infos.items():
        mask = infos.get(f"_{name}")
        if not name.startswith("_") and (mask is None or mask[copy]):
            told[name] = _of_copy(value, copy) if isinstance(value, dict) else value[copy]
    return told
