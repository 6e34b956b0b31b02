"""Adapters between fleets and other libraries; a library is imported when its adapter is called."""

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from velocirl.vector.adapters.safety import FromSafetyEnv, SafetyEnv


def sb3_vec_env(fleet: VectorEnv) -> Any:
    """Wrap a fleet, native or of Gymnasium environments, as Stable-Baselines3's VecEnv."""
    from velocirl.vector.adapters.sb3 import FleetVecEnv  # needs stable-baselines3

    return FleetVecEnv(fleet)


def safety_env(env: gymnasium.Env | VectorEnv) -> SafetyEnv:
    """Wrap an environment or fleet with `cost` in its infos in the interface of Safety-Gymnasium and OmniSafe.

    Its `step` returns (observation, reward, cost, terminated, truncated, info).
    """
    return SafetyEnv(env)


def from_safety_env(env: Any) -> gymnasium.Env:
    """Wrap an environment whose `step` returns six values, the third a cost, as a Gymnasium environment.

    The cost is stored in its infos: `PPO(lambda: from_safety_env(safety_gymnasium.make("SafetyPointGoal1-v0")))`.
    """
    return FromSafetyEnv(env)
