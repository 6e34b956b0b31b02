"""Safety shields: wrappers of policies and environments that keep plants within their limits."""

from velocirl.safety.shield import Shield
from velocirl.safety.shielded_env import ShieldedVectorEnv

__all__ = ["Shield", "ShieldedVectorEnv"]
