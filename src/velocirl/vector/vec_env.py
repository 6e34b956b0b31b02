"""External vector environments of Stable-Baselines3: their contents and their normalization.

They are recognized by their methods and class names; the library itself is never imported.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import gymnasium
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from velocirl.engine.warning import warn_caller
from velocirl.vector.given_vector import flat_mask

METHODS = ("step_async", "step_wait", "env_method", "get_attr", "reset", "observation_space", "action_space")
NEEDLESS = ("VecMonitor", "VecCheckNan")  # agents count returns and check for NaN themselves
UNSEEN = 1e-3  # observations below which statistics have not begun: their count starts at 1e-4


def is_vec_env(given: Any) -> bool:
    """Return whether an object follows Stable-Baselines3's VecEnv protocol."""
    return not isinstance(given, (type, VectorEnv)) and all(hasattr(given, name) for name in METHODS)


@dataclass(frozen=True)
class Normalized:
    """Normalization of a VecNormalize, as settings."""

    observations: bool
    rewards: bool
    gamma: float
    clip_observations: float
    clip_rewards: float
    training: bool  # whether training updates its statistics
    # Count, mean and sum of squared deviations of the data so far (3, numbers); None without data.
    seen: NDArray[np.float64] | None
    seen_returns: NDArray[np.float64] | None

    @property
    def settings(self) -> dict[str, Any]:
        """Agent settings with the same effect; rewards are scaled by returns with the agent's own discount factor."""
        asked = {"normalise_observations": self.observations, "normalise_rewards": self.rewards}
        return {**asked, "gamma": self.gamma} if self.rewards else asked


def opened(given: Any, *, trains: bool = True) -> tuple[Sequence[gymnasium.Env] | VectorEnv, Normalized | None]:
    """Return the environments in a VecEnv, or a wrapper that steps it, and its normalization.

    With `trains`, a warning lists the log files that are not written.
    """
    layer, normalized = given, None
    while (name := _kind(layer, "VecNormalize", *NEEDLESS)) and hasattr(layer, "venv"):
        if name == "VecNormalize":
            if normalized is not None:
                raise ValueError("the environment is in a VecNormalize twice: take one of them off")
            normalized = _normalized(layer)
        _tell_of_file(layer, trains)
        layer = layer.venv
    inner = layer
    while hasattr(inner, "venv"):
        inner = inner.venv
        if _kind(inner, "VecNormalize"):
            raise ValueError(
                f"VecNormalize is inside of {type(layer).__name__}: put it outermost, where it becomes settings"
            )
    if isinstance(getattr(layer, "fleet", None), VectorEnv):  # our own, see `adapters.sb3`
        return layer.fleet, normalized
    if _kind(layer, "DummyVecEnv"):
        return [without_monitor(one, trains=trains) for one in layer.envs], normalized
    return VecEnvVector(layer), normalized


def without_monitor(environment: gymnasium.Env, *, trains: bool = True) -> gymnasium.Env:
    """Remove a Monitor around an environment: agents count returns and lengths themselves."""
    while isinstance(environment, gymnasium.Wrapper) and _kind(environment, "Monitor"):
        _tell_of_file(environment, trains)
        environment = environment.env
    return environment


class VecEnvVector(VectorEnv):
    """VecEnv as a Gymnasium vector environment; its creator owns it, and it steps where it did before."""

    def __init__(self, venv: Any) -> None:
        self.venv, self.num_envs = venv, venv.num_envs
        self.metadata = {**(getattr(venv, "metadata", None) or {}), "autoreset_mode": AutoresetMode.SAME_STEP}
        self.render_mode = getattr(venv, "render_mode", None)
        self.single_observation_space, self.single_action_space = venv.observation_space, venv.action_space
        self.observation_space = batch_space(self.single_observation_space, self.num_envs)
        self.action_space = batch_space(self.single_action_space, self.num_envs)
        # has_attr first: looking up a missing attribute directly ends the processes of a SubprocVecEnv.
        self.masked = hasattr(venv, "has_attr") and venv.has_attr("action_masks")

    @property
    def called(self) -> str:
        """Class name to show to users."""
        return type(self.venv).__name__

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes in all environments."""
        if seed is not None:
            self.venv.seed(int(seed if np.ndim(seed) == 0 else seed[0]))
        if options:
            self.venv.set_options(options)
        return self.venv.reset(), self._masks()

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Step all environments; finished ones return the first observation of the next episode."""
        self.venv.step_async(actions)
        observations, rewards, dones, told = self.venv.step_wait()
        dones = np.asarray(dones, np.bool_)
        truncated = dones & [bool(one.get("TimeLimit.truncated", False)) for one in told]
        infos = self._masks()
        if dones.any():
            infos["final_obs"] = last = np.empty(self.num_envs, object)
            for place in np.flatnonzero(dones).tolist():
                last[place] = told[place].get("terminal_observation")
        costs = [one.get("cost") for one in told]
        if None not in costs:
            infos["cost"] = np.array(costs, np.float64)
        return observations, np.asarray(rewards, np.float64), dones & ~truncated, truncated, infos

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's attribute of that name or, for a method, its result."""
        values = tuple(self.venv.get_attr(name))
        return tuple(self.venv.env_method(name, *args, **kwargs)) if all(map(callable, values)) else values

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute of each environment to its value."""
        for place, value in enumerate(values):
            self.venv.set_attr(name, value, place)

    def render(self) -> Any:
        """Render images of all environments."""
        return tuple(self.venv.get_images())

    def close_extras(self, **kwargs: Any) -> None:
        """Do nothing: the creator closes the VecEnv."""

    def _masks(self) -> dict[str, Any]:
        if not self.masked:
            return {}
        return {"action_mask": np.stack([flat_mask(mask) for mask in self.venv.env_method("action_masks")])}


def _normalized(layer: Any) -> Normalized:
    space = layer.venv.observation_space
    if layer.norm_obs and isinstance(space, gymnasium.spaces.Dict):
        boxes = {name for name, part in space.spaces.items() if isinstance(part, gymnasium.spaces.Box)}
        if boxes != set(layer.norm_obs_keys):
            raise ValueError(
                f"norm_obs_keys={layer.norm_obs_keys!r} of VecNormalize: normalise_observations=True normalizes all of"
                f" {', '.join(sorted(boxes))}: leave norm_obs_keys out, or give the environment without VecNormalize"
            )
    return Normalized(
        observations=bool(layer.norm_obs),
        rewards=bool(layer.norm_reward),
        gamma=float(layer.gamma),
        clip_observations=float(layer.clip_obs),
        clip_rewards=float(layer.clip_reward),
        training=bool(layer.training),
        seen=_moments(getattr(layer, "obs_rms", None)) if layer.norm_obs else None,
        seen_returns=_moments(layer.ret_rms) if layer.norm_reward else None,
    )


def _moments(statistics: Any) -> NDArray[np.float64] | None:
    """Convert the statistics of a RunningMeanStd, or of one for each part by name, to this library's format."""
    if statistics is None:
        return None
    if isinstance(statistics, dict):
        parts = [_moments(statistics[name]) for name in sorted(statistics)]
        return None if any(one is None for one in parts) else np.concatenate(parts, 1)  # pyright: ignore
    if statistics.count < UNSEEN:
        return None
    mean, variance = (np.ravel(np.asarray(one, np.float64)) for one in (statistics.mean, statistics.var))
    return np.stack([np.full_like(mean, statistics.count), mean, variance * statistics.count])


def _kind(one: Any, *names: str) -> str:
    """Return the first of these class names among an object's base classes, or an empty string."""
    return next((kind.__name__ for kind in type(one).__mro__ if kind.__name__ in names), "")


def _tell_of_file(layer: Any, trains: bool) -> None:
    if trains and getattr(layer, "results_writer", None) is not None:
        warn_caller(f"{type(layer).__name__} writes no file here: learn(run_dir=...) keeps returns and lengths")
