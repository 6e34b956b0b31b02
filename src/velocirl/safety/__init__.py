"""Keeping plants within their limits whatever acts on them: the shield around policies and around environments."""

from velocirl.safety.shield import Shield
from velocirl.safety.shielded_env import ShieldedVectorEnv

__all__ = ["Shield", "ShieldedVectorEnv"]
