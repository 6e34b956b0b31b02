"""Fleets as other libraries want them. A library is imported when its adapter is asked for."""

from typing import Any

from gymnasium.vector import VectorEnv


def sb3_vec_env(fleet: VectorEnv) -> Any:
    """A fleet, native or of Gymnasium's environments, as Stable-Baselines3's VecEnv."""
    from velocirl.vector.adapters.sb3 import FleetVecEnv  # needs stable-baselines3

    return FleetVecEnv(fleet)
