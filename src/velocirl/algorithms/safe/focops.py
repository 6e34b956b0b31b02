"""FOCOPS: first-order constrained optimisation in policy space (Zhang, Vuong and Ross, 2020)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf
from typing import Any, ClassVar

from velocirl.algorithms.online.ppo import add_advantage, find_scale, moved_too_far
from velocirl.algorithms.safe import ppo_lagrangian
from velocirl.algorithms.safe.ppo_lagrangian import (
    PPOLagrangian,
    cost_value_gradient,
    mix_advantages,
    policy_and_values,
    state_value,
)  # fmt: skip
from velocirl.buffers.returns import gae, gae_of_costs
from velocirl.networks.declared import Network, Number
from velocirl.program.fields import Outputs
from velocirl.program.several import several
from velocirl.program.stages import backward, column, each, forward, mean, once, step, stop, when
from velocirl.training.on_policy import OnPolicyAgent, OnPolicyConfig
from velocirl.training.settings.config import require
from velocirl.training.settings.limits import LimitedConfig, add_limited_costs, limit_numbers, limited_cost
from velocirl.training.settings.scheduled import Range
from velocirl.training.settings.words import Word, renamed


@dataclass(frozen=True)
class FOCOPSConfig(LimitedConfig, OnPolicyConfig):
    """The settings of FOCOPS. The preset of an environment replaces these defaults."""

    words: ClassVar[Mapping[str, Word]] = {**OnPolicyConfig.words, "target_kl": renamed("target_kl", none=0.0)}
    scheduled: ClassVar[Mapping[str, Range]] = {"target_kl": Range(zero_is_off=True, is_built=True)}
    temperature: float = 1.5
    """How much divergence from the last policy weighs against advantages: small follows these further."""
    trust_region: float = 0.02
    """Divergence from the last policy in a state, beyond which that state teaches the policy nothing more."""
    multiplier_rate: float = 0.01
    """What a multiplier gains in a rollout for each cost of an episode above its limit."""
    largest_multiplier: float = 2.0
    """Upper limit of a multiplier."""
    entropy_coefficient: float = 0.0
    """Weight of an entropy bonus, which the paper has not."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    cost_value_coefficient: float = 0.5
    """Weight of the loss of the cost values."""
    target_kl: float = 0.02
    """Stop an update early when the mean divergence exceeds 1.5 times this; 0 never stops."""
    normalise_advantages: bool = True
    """Normalise the advantages of each minibatch to mean 0 and standard deviation 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_limits()
        require(not self.overlap, "overlap", self.overlap, "off, as there is no correction for its lag")
        for name in ("temperature", "trust_region", "largest_multiplier"):
            require(0 < getattr(self, name) < inf, name, getattr(self, name), "above 0")
        for name in (
            "multiplier_rate", "entropy_coefficient", "value_coefficient", "cost_value_coefficient", "target_kl",
        ):  # fmt: skip
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")


def act(head, policy, row, mask, rng):
    """Sample an action, and store the policy outputs that it was sampled from."""
    ppo_lagrangian.act(head, policy, row, mask, rng)
    for k in range(len(row.old_outputs)):
        row.old_outputs[k] = policy[k]


def move_multipliers(episodes, numbers, settings):
    """multiplier = clip(multiplier + rate (J - d), 0, largest), with J the mean cost of finished episodes"""
    if episodes.count > 0.0:
        for k in range(len(numbers.multiplier)):
            excess = limited_cost(episodes.costs, k, settings) - settings.limits[k]
            moved = numbers.multiplier[k] + settings.multiplier_rate * excess
            numbers.multiplier[k] = min(max(moved, 0.0), settings.largest_multiplier)


def loss_gradient(head, policy, row, means, numbers, settings, gradient, metrics):
    """d(loss)/d(output) of one sample.

    loss = [D <= trust_region] (D - r A / temperature) + c_v (v - R)^2 / 2 - c_e H(pi),  D = KL(pi || pi_old),
    r = pi(a|s) / pi_old(a|s), with A the mixed advantage; plus c_c (C_k - target_k)^2 / 2 for each cost value.
    """
    advantage = row.advantage
    if settings.normalise_advantages > 0.0 and means.rows > 1.0:
        advantage = (advantage - means.advantage) * means.advantage_scale

    log_probability, entropy = head.evaluate(policy, row.mask, row.action, gradient)
    ratio = exp(log_probability - row.log_probability)
    divergence = head.divergence(policy, row.old_outputs, row.mask)
    trusted = 1.0 if divergence <= settings.trust_region else 0.0
    gain = ratio * advantage / settings.temperature
    head.backward(policy, row.mask, row.action, -trusted * gain, -settings.entropy_coefficient, gradient)
    head.diverge(policy, row.old_outputs, row.mask, trusted, gradient)

    error = policy[head.outputs] - row.target
    gradient[head.outputs] = settings.value_coefficient * error
    policy_loss, value_loss = trusted * (divergence - gain), 0.5 * error * error
    metrics.policy_loss += policy_loss
    metrics.value_loss += value_loss
    metrics.entropy_loss -= entropy
    metrics.approx_kl += divergence
    metrics.trusted += trusted
    metrics.loss += policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy
    cost_value_gradient(head, policy, row, settings, gradient, metrics)
    for k in range(len(row.cost_values)):
        metrics.multiplier[k] += numbers.multiplier[k]


class FOCOPS(OnPolicyAgent):
    """First-order constrained optimisation in policy space: earn as much as limits of costs allow.

    The best policy near the last one that keeps the limits is found without a network, and projected back onto those
    that there are. `FOCOPS("ChemicalReactor-v0", cost_limit=25.0)`.
    """

    name = "focops"
    Config = FOCOPSConfig
    networks = {
        "policy": Network("observation", gives=policy_and_values, together="shared"),
        "multiplier": Number("nothing_yet", each="limited"),
    }

    class Scratch(PPOLagrangian.Scratch):
        """Fields stored with each step of a rollout, in addition to those of PPO-Lagrangian."""

        old_outputs: Outputs  # of the policy that sampled the action

    act, state_value, values, explained = act, state_value, ("value", "cost_values"), ("value", "target")
    estimate = (
        column(gae, advantage="reward_advantage"),
        column(add_limited_costs),
        column(gae_of_costs, costs="limited_costs"),
        once(move_multipliers),
    )
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
        "policy_loss": "policy_gradient_loss",
        "value_loss": "value_loss",
        "cost_value_loss": "cost_value_loss",
        "entropy_loss": "entropy_loss",
        "approx_kl": "approx_kl",
        "trusted": "trusted_fraction",
        "loss": "loss",
        "multiplier": several("limited", "multiplier"),
        "advantage": None,
        "squared_advantage": None,
        "advantage_scale": None,
    }

    def numbers(self) -> dict[str, Any]:
        """Return the limits and the initial multipliers."""
        return {"nothing_yet": 0.0, **limit_numbers(self.config, self.constraints, self.source.id)}
