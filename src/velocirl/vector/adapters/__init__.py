"""Fleets as other libraries want them. A library is imported when its adapter is asked for."""

from typing import Any

import gymnasium
from gymnasium.vector import VectorEnv

from velocirl.vector.adapters.safety import FromSafetyEnv, SafetyEnv


def sb3_vec_env(fleet: VectorEnv) -> Any:
    """A fleet, native or of Gymnasium's environments, as Stable-Baselines3's VecEnv."""
    from velocirl.vector.adapters.sb3 import FleetVecEnv  # needs stable-baselines3

    return FleetVecEnv(fleet)


def safety_env(env: gymnasium.Env | VectorEnv) -> SafetyEnv:
    """An environment or a fleet whose infos have a `cost` as Safety-Gymnasium and OmniSafe have them.

    Its `step` gives (observation, reward, cost, terminated, truncated, info).
    """
    return SafetyEnv(env)


def from_safety_env(env: Any) -> gymnasium.Env:
    """An environment whose `step` gives six values, the third of which is a cost, as one of Gymnasium's.

    The cost is in its infos: `PPO(lambda: from_safety_env(safety_gymnasium.make("SafetyPointGoal1-v0")))`.
    """
    return FromSafetyEnv(env)
