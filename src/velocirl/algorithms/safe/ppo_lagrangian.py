"""PPO-Lagrangian: PPO that pays for costs, at prices that PID control moves (Stooke, Achiam and Abbeel, 2020)."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Any, Literal

from velocirl.algorithms.online import ppo
from velocirl.algorithms.online.ppo import PPO, PPOConfig, add_advantage, find_scale, moved_too_far, policy_and_value
from velocirl.buffers.returns import gae, gae_of_costs
from velocirl.engine.records import float32
from velocirl.networks.declared import Columns, Groups, Network, Number
from velocirl.program.fields import Costs, Limits
from velocirl.program.several import several
from velocirl.program.stages import backward, column, each, forward, mean, once, step, stop, when
from velocirl.training.settings.config import require
from velocirl.training.settings.limits import (
    ControlledConfig,
    add_limited_costs,
    excess_of,
    limit_numbers,
    limited_cost,
)  # fmt: skip


@dataclass(frozen=True)
class PPOLagrangianConfig(ControlledConfig, PPOConfig):
    """The settings of PPO-Lagrangian: those of PPO, limits, and how multipliers follow them."""

    estimator: Literal["gae"] = "gae"
    """How advantages are estimated, of rewards and of costs."""
    cost_value_coefficient: float = 0.5
    """Weight of the loss of the cost values."""

    def __post_init__(self) -> None:
        require(not self.overlap, "overlap", self.overlap, "off, as costs have no correction for its lag")
        super().__post_init__()
        self.check_control()
        require(0 <= self.cost_value_coefficient < inf, "cost_value_coefficient", self.cost_value_coefficient,
                "at least 0")  # fmt: skip


def policy_and_values(agent: PPOLagrangian) -> Groups:
    """Declare the policy's outputs, the value, and one cost value per limit, which has layers of its own."""
    return [*policy_and_value(agent), [Columns(len(agent.config.limited))]]


def act(head, policy, row, mask, rng):
    """Sample an action, and store its log-probability and the state values."""
    ppo.act(head, policy, row, mask, rng)
    state_value(head, policy, row)


def state_value(head, policy, row):
    """Store V(s) and C_k(s) of an observation: its value and its cost values."""
    row.value = policy[head.outputs]
    for k in range(len(row.cost_values)):
        row.cost_values[k] = policy[head.outputs + 1 + k]


def move_multipliers(episodes, numbers, settings):
    """Move each multiplier with the mean cost J of finished episodes, by PID control.

        e = excess of J over d;  I = clip(I + K_i e, 0, largest)
        multiplier = clip(K_p e + I + K_d max(e - last e, 0), 0, largest)

    The bounds of e and I prevent windup. Without a finished episode, nothing moves.
    """
    if episodes.count > 0.0:
        for k in range(len(numbers.multiplier)):
            limit, most = settings.limits[k], settings.largest_multiplier
            excess = excess_of(limited_cost(episodes.costs, k, settings), limit)
            integral = min(max(numbers.integral[k] + settings.integral_gain * excess, 0.0), most)
            growth = max(excess - numbers.excess[k], 0.0)
            price = settings.proportional_gain * excess + integral + settings.derivative_gain * growth
            numbers.multiplier[k] = min(max(price, 0.0), most)
            numbers.integral[k] = integral
            numbers.excess[k] = excess


def mix_advantages(row, numbers):
    """(A - sum of multiplier_k A_k) / (1 + sum of multipliers), with A_k the advantage of cost k."""
    mixed, total = row.reward_advantage, 1.0
    for k in range(len(row.cost_advantages)):
        mixed -= numbers.multiplier[k] * row.cost_advantages[k]
        total += numbers.multiplier[k]
    row.advantage = mixed / total


def loss_gradient(head, policy, row, means, numbers, settings, gradient, metrics):
    """PPO's loss with the mixed advantage, plus c_c (C_k - target_k)^2 / 2 for each cost value."""
    ppo.loss_gradient(head, policy, row, means, settings, gradient, metrics)
    cost_value_gradient(head, policy, row, settings, gradient, metrics)
    for k in range(len(row.cost_values)):
        metrics.multiplier[k] += numbers.multiplier[k]


def cost_value_gradient(head, policy, row, settings, gradient, metrics):
    """c_c (C_k - target_k)^2 / 2 for each cost value."""
    for k in range(len(row.cost_values)):
        error = policy[head.outputs + 1 + k] - row.cost_targets[k]
        gradient[head.outputs + 1 + k] = settings.cost_value_coefficient * error
        loss = 0.5 * error * error
        metrics.cost_value_loss += loss
        metrics.loss += settings.cost_value_coefficient * loss


class PPOLagrangian(PPO):
    """PPO that earns as much as limits of costs allow: maximise J(reward) with J(cost k) <= limit k.

    `PPOLagrangian("ChemicalReactor-v0", cost_limits={"temperature": 5.0})`: episodes spend 5 steps above the limit of
    temperature on average, at most. `cost_limit=25.0` limits the sum over all constraints.
    """

    name = "ppo-lagrangian"
    Config = PPOLagrangianConfig
    networks = {
        "policy": Network("observation", gives=policy_and_values, together="shared"),
        "multiplier": Number("nothing_yet", each="limited"),
        "integral": Number("nothing_yet", each="limited"),
        "excess": Number("nothing_yet", each="limited"),
    }

    class Scratch(PPO.Scratch):
        """Fields stored with each step of a rollout, beside those of PPO; `advantage` combines rewards and costs."""

        costs: Costs  # of the step, per constraint
        limited_costs: Limits  # of the step, per limit
        cost_values: Limits  # of the observation, by the cost critics at that time
        cost_targets: Limits  # regression targets of the cost values
        cost_advantages: Limits
        reward_advantage: float32

    act, state_value, values = act, state_value, ("value", "cost_values")
    estimate = (
        column(gae, advantage="reward_advantage"),
        column(add_limited_costs),
        column(gae_of_costs, costs="limited_costs"),
        once(move_multipliers),
    )
    before_epoch, reestimate = (), ()
    update = (
        each(mix_advantages),
        when("normalise_advantages", mean(add_advantage, then=find_scale)),
        forward("policy", "observation"),
        each(loss_gradient),
        backward("policy"),
        when("target_kl", stop(moved_too_far)),
        step("policy"),
    )
    reports = {
        **PPO.reports,
        "cost_value_loss": "cost_value_loss",
        "multiplier": several("limited", "multiplier"),
    }

    def numbers(self) -> dict[str, Any]:
        """Return the limits and the initial multipliers."""
        return {**super().numbers(), "nothing_yet": 0.0, **limit_numbers(self.config, self.constraints, self.source.id)}
