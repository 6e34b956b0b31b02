"""Advantage and value-target estimates over one environment's column of a rollout.

Columns have an entry per step and one more, which has only a value. All estimates treat the end of an episode alike.
After a terminal state the value is 0; after truncation (time limit) it is the value of the last observation. Nothing
flows back from the next episode.
"""

from __future__ import annotations

import numpy as np


def gae(reward, value, final_value, ended, advantage, target, settings):
    """Compute generalized advantage estimates (Schulman et al., 2016).

    A_t = delta_t + gamma lambda A_{t+1},  delta_t = r_t + gamma V_{t+1} - V_t;  target_t = A_t + V_t
    """
    following, next_value = np.float32(0), value[len(value) - 1]
    for t in range(len(reward) - 2, -1, -1):
        if ended[t]:
            following, next_value = np.float32(0), final_value[t]
        delta = reward[t] + settings.gamma * next_value - value[t]
        following = delta + settings.gamma * settings.gae_lambda * following
        advantage[t] = following
        target[t] = following + value[t]
        next_value = value[t]


def gae_of_costs(costs, cost_values, final_cost_values, ended, cost_advantages, cost_targets, settings):
    """Compute GAE of the costs; in every entry, the columns have a number for each constraint."""
    steps, constraints = costs.shape[0] - 1, costs.shape[1]
    for k in range(constraints):
        following, next_value = np.float32(0), cost_values[steps, k]
        for t in range(steps - 1, -1, -1):
            if ended[t]:
                following, next_value = np.float32(0), final_cost_values[t, k]
            delta = costs[t, k] + settings.gamma * next_value - cost_values[t, k]
            following = delta + settings.gamma * settings.gae_lambda * following
            cost_advantages[t, k] = following
            cost_targets[t, k] = following + cost_values[t, k]
            next_value = cost_values[t, k]


def vtrace(reward, value, current_value, final_value, ended, ratio, advantage, target, settings):
    """Compute V-trace estimates (Espeholt et al., 2018): GAE under a newer policy, corrected by clipped ratios.

    target_t = V_t + D_t,  D_t = rho_t delta_t + gamma lambda c_t D_{t+1},  A_t = delta_t + gamma lambda D_{t+1}

    with rho_t = min(rho_limit, ratio_t) and c_t = min(c_limit, ratio_t). With lambda 1, A_t = r_t + gamma target_{t+1}
    - V_t, as in IMPALA: its weight rho_t belongs to the policy loss, and is not applied again here. Values are the
    current critic's. Values beyond a truncation or the end of the rollout are those from collection time. With ratios
    of 1 this is GAE.
    """
    following, next_value = np.float32(0), value[len(value) - 1]
    for t in range(len(reward) - 2, -1, -1):
        if ended[t]:
            following, next_value = np.float32(0), final_value[t]
        delta = reward[t] + settings.gamma * next_value - current_value[t]
        later = settings.gamma * settings.gae_lambda * following
        advantage[t] = delta + later
        following = min(ratio[t], settings.rho_limit) * delta + min(ratio[t], settings.c_limit) * later
        target[t] = following + current_value[t]
        next_value = current_value[t]


def scale_rewards(reward, scale):
    """Scale and clip the rewards of a column for the critic."""
    for t in range(len(reward)):
        reward[t] = min(max(reward[t] * scale.reward_scale, -scale.reward_limit), scale.reward_limit)


def add_spread(value, target, sums):
    """Compute a column's sums for the explained variance: of targets, errors, and their squares."""
    for k in range(len(sums)):
        sums[k] = 0.0
    for t in range(len(target) - 1):
        wanted, error = np.float64(target[t]), np.float64(target[t]) - np.float64(value[t])
        sums[0] += wanted
        sums[1] += wanted * wanted
        sums[2] += error
        sums[3] += error * error
