"""How good was an action? Estimates of advantages and value targets over one copy's column of a rollout.

Both treat the end of an episode alike: what follows a terminal state is worth nothing, what follows a cut (time limit)
is worth the value of the last observation, and nothing ever flows back from the next episode.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np


class Discount(NamedTuple):
    """How rewards and the future count."""

    reward_scale: np.float32
    reward_limit: np.float32  # of a scaled reward
    gamma: np.float32
    gae_lambda: np.float32


def gae(column, last_value, discount):
    """Generalised advantage estimation (Schulman et al., 2016).

    A_t = delta_t + gamma lambda A_{t+1},  delta_t = r_t + gamma V_{t+1} - V_t;  target_t = A_t + V_t
    """
    advantage = 0.0
    next_value = last_value
    for t in range(len(column) - 1, -1, -1):
        sample = column[t]
        if sample.ended:
            advantage = 0.0
            next_value = sample.final_value
        delta = scaled(sample.reward, discount) + discount.gamma * next_value - sample.value
        advantage = delta + discount.gamma * discount.gae_lambda * advantage
        sample.advantage = advantage
        sample.target = advantage + sample.value
        next_value = sample.value


def vtrace(column, last_value, discount, rho_limit, c_limit):
    """V-trace (Espeholt et al., 2018): the same under a policy that has moved on, corrected by clipped ratios.

    A_t = rho_t delta_t + gamma lambda c_t A_{t+1},  rho_t = min(rho_limit, ratio_t),  c_t = min(c_limit, ratio_t), with
    the values of the critic of now; what lies beyond a cut or the end of the rollout keeps the value that it had
    when it was seen. With ratios of 1 this is GAE.
    """
    advantage = 0.0
    next_value = last_value
    for t in range(len(column) - 1, -1, -1):
        sample = column[t]
        if sample.ended:
            advantage = 0.0
            next_value = sample.final_value
        delta = scaled(sample.reward, discount) + discount.gamma * next_value - sample.current_value
        decay = discount.gamma * discount.gae_lambda * min(sample.ratio, c_limit)
        advantage = min(sample.ratio, rho_limit) * delta + decay * advantage
        sample.advantage = advantage
        sample.target = advantage + sample.current_value
        next_value = sample.current_value


def scaled(reward, discount):
    """A reward at the scale of the critic."""
    return min(max(reward * discount.reward_scale, -discount.reward_limit), discount.reward_limit)
