"""Adapters to and from the interface of Safety-Gymnasium and OmniSafe, whose `step` returns a cost after the reward.

The interface is recognized by its signature alone. Their packages are not needed here; they require a years-old
Gymnasium.
"""

from __future__ import annotations

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv


class SafetyEnv:
    """Environment or vector environment whose `step` returns (observation, reward, cost, terminated, truncated, info).

    Everything else is passed on from the wrapped environment. For vector environments, `info` also holds the episodes'
    last observations as `final_observation`, their name before Gymnasium 1.0.
    """

    def __init__(self, env: gymnasium.Env | VectorEnv) -> None:
        self.env = env

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes."""
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, Any, dict[str, Any]]:
        """Take a step; the third value is the step's cost."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "cost" not in info:
            raise ValueError(
                f"{self.env} tells no cost of its steps: declare Environment(constraints=...), or give info['cost']"
            )
        if "final_obs" in info:
            info = {**info, "final_observation": info["final_obs"], "_final_observation": info["_final_obs"]}
        return observation, reward, info["cost"], terminated, truncated, info

    def __getattr__(self, name: str) -> Any:
        if name == "env":  # in a copy under construction, `env` is not set yet
            raise AttributeError(name)
        return getattr(self.env, name)

    def __repr__(self) -> str:
        return f"SafetyEnv({self.env!r})"


class FromSafetyEnv(gymnasium.Env):
    """Inverse adapter: a single environment whose steps return a cost, which moves to its infos."""

    def __init__(self, env: Any) -> None:
        self.env = env
        self.observation_space, self.action_space = env.observation_space, env.action_space
        self.metadata, self.render_mode = getattr(env, "metadata", {}), getattr(env, "render_mode", None)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        return self.env.reset(seed=seed, options=options)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Take a step."""
        given = self.env.step(action)
        if len(given) != 6:
            raise ValueError(
                f"{self.env} gives {len(given)} values with a step; from_safety_env takes (observation, reward, cost,"
                " terminated, truncated, info)"
            )
        observation, reward, cost, terminated, truncated, info = given
        return observation, float(reward), bool(terminated), bool(truncated), {**info, "cost": float(cost)}

    def render(self) -> Any:
        """Render a frame."""
        return self.env.render()

    def close(self) -> None:
        """Close the environment."""
        self.env.close()
