"""Proximal policy optimisation (Schulman et al., 2017), and A2C, which is one configuration of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import exp, inf, sqrt
from typing import Any, ClassVar, Literal

from velocirl.buffers.returns import gae, vtrace
from velocirl.engine.records import float32
from velocirl.networks.declared import Columns, Groups, Network
from velocirl.program.stages import backward, column, each, forward, mean, step, stop, when
from velocirl.training.deep_agent import NATURE
from velocirl.training.on_policy import OnPolicyAgent, OnPolicyConfig
from velocirl.training.settings.config import require
from velocirl.training.settings.scheduled import Range
from velocirl.training.settings.words import Known, Word, absent, renamed, scaled


@dataclass(frozen=True)
class PPOConfig(OnPolicyConfig):
    """The settings of PPO. The preset of an environment replaces these defaults."""

    words: ClassVar[Mapping[str, Word]] = {
        **OnPolicyConfig.words,
        "clip_range": renamed("clip"),
        "clip_range_vf": absent(
            None, instead="value_clip= comes near, by which the larger error of the value and of the clipped one counts"
        ),
        "normalize_advantage": renamed("normalise_advantages"),
        "ent_coef": renamed("entropy_coefficient"),
        "vf_coef": scaled("value_coefficient", 2.0),  # of the squared error; PPO's value loss is half of it
        "target_kl": renamed("target_kl", none=0.0),
    }
    scheduled: ClassVar[Mapping[str, Range]] = {
        "clip": Range(zero_is_off=True),
        "value_clip": Range(zero_is_off=True),
        "dual_clip": Range(least=1.0),
        "target_kl": Range(zero_is_off=True, is_built=True),
    }
    estimator: Literal["gae", "vtrace"] = "gae"
    """How advantages are estimated: gae, or vtrace, which corrects for policy changes between epochs."""
    rho_limit: float = 1.0
    """Upper limit of the importance weight of a TD error in V-trace and, where clip is 0, of a policy gradient."""
    c_limit: float = 1.0
    """Upper limit of the importance weight of later TD errors in V-trace."""
    clip: float = 0.2
    """Clipping range of the probability ratio; 0 turns clipping off."""
    value_clip: float = 0.0
    """Clipping range of the value function; 0 turns clipping off."""
    dual_clip: float = 0.0
    """Upper limit of the ratio for negative advantages, above 1; 0 turns it off."""
    entropy_coefficient: float = 0.01
    """Weight of the entropy bonus."""
    value_coefficient: float = 0.5
    """Weight of the value loss."""
    target_kl: float = 0.0
    """Stop an update early when the KL divergence exceeds 1.5 times this; 0 never stops."""
    normalise_advantages: bool = True
    """Normalise the advantages of each minibatch to mean 0 and standard deviation 1."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("rho_limit", "c_limit"):
            require(0 < getattr(self, name) < inf, name, getattr(self, name), "above 0")
        for name in ("clip", "value_clip", "entropy_coefficient", "value_coefficient", "target_kl"):
            require(0 <= getattr(self, name) < inf, name, getattr(self, name), "at least 0")
        require(self.dual_clip == 0 or 1 < self.dual_clip < inf, "dual_clip", self.dual_clip, "above 1, or 0 for off")
        require(not self.overlap or self.follows_policy, "estimator", self.estimator, "vtrace with overlap")

    @property
    def follows_policy(self) -> bool:
        """True if advantages are re-estimated before each epoch."""
        return self.estimator == "vtrace"


def _rms_prop_eps(value: float, known: Known) -> dict[str, str]:
    return {"optimiser": f"rmsprop(epsilon={value})"} if known["optimiser"].startswith("rmsprop") else {}


@dataclass(frozen=True)
class A2CConfig(PPOConfig):
    """The settings of A2C: PPO with one pass over short rollouts, where the ratio is 1 and nothing is clipped."""

    words: ClassVar[Mapping[str, Word]] = {
        **PPOConfig.words,
        "use_rms_prop": Word(("optimiser",), lambda value, _: {"optimiser": "rmsprop" if value else "adam"}),
        "rms_prop_eps": Word(("optimiser",), _rms_prop_eps),
    }
    horizon: int = 8
    epochs: int = 1
    minibatch_size: int = 2**31 - 1
    learning_rate: float = 7e-4
    optimiser: str = "rmsprop"
    gae_lambda: float = 1.0
    clip: float = 0.0
    entropy_coefficient: float = 0.0
    normalise_advantages: bool = False


def policy_and_value(agent: PPO) -> Groups:
    """Declare the policy's outputs, then the value. The network outputs means; standard deviations are free."""
    head = agent.head
    policy = [Columns(head.outputs - head.numbers, 0.01)]
    if head.numbers:
        policy.append(Columns(head.numbers, free=agent.config.log_deviation))
    return [policy, [Columns(1)]]


def act(head, policy, row, mask, rng):
    """Sample an action, and store its log-probability and the state value."""
    row.log_probability = head.sample(policy, mask, rng, row.action)
    row.value = policy[head.outputs]


def state_value(head, policy, row):
    """Store V(s) of an observation without taking an action."""
    row.value = policy[head.outputs]


def compare_policies(head, policy, row, policy_gradient):
    """V-trace: compute the importance ratio and the value of a step under the current policy and critic."""
    log_probability, _ = head.evaluate(policy, row.mask, row.action, policy_gradient)
    row.ratio = exp(log_probability - row.log_probability)
    row.current_value = policy[head.outputs]


def add_advantage(row, metrics):
    """Accumulate advantages and their squares, for the mean and standard deviation."""
    metrics.advantage += row.advantage
    metrics.squared_advantage += row.advantage * row.advantage


def find_scale(means):
    """Compute 1 / the sample standard deviation of a minibatch's advantages; 0 for a single row."""
    spread = max(means.squared_advantage - means.advantage * means.advantage, 0.0)
    many = means.rows > 1.0
    means.advantage_scale = 1.0 / (sqrt(spread * means.rows / (means.rows - 1.0)) + 1e-8) if many else 0.0


def loss_gradient(head, policy, row, means, settings, gradient, metrics):
    """d(loss)/d(output) of one sample.

        loss = -min(r A, clip(r, 1 - eps, 1 + eps) A) + c_v (v - R)^2 / 2 - c_e H(pi),  r = pi(a|s) / pi_old(a|s)

    Without clipping, r is limited to `weight_limit`, as IMPALA limits rho; this weight is a constant for the gradient.
    With a dual clip d, the loss of a negative A is at most -d A (Ye et al., 2020). With a value clip, the value's error
    is the larger of the errors of v and of v clipped to within eps_v of the old value.
    """
    advantage = row.advantage
    if settings.normalise_advantages > 0.0 and means.rows > 1.0:
        advantage = (advantage - means.advantage) * means.advantage_scale

    log_probability, entropy = head.evaluate(policy, row.mask, row.action, gradient)
    log_ratio = log_probability - row.log_probability
    ratio = exp(log_ratio)
    low, high = 1.0 - settings.clip, 1.0 + settings.clip
    clipped = settings.clip > 0.0 and ((advantage > 0.0 and ratio > high) or (advantage < 0.0 and ratio < low))
    weight = min(ratio, settings.weight_limit)
    held = min(max(ratio, low), high) if clipped else weight
    given_up = settings.dual_clip > 0.0 and advantage < 0.0 and ratio > settings.dual_clip
    held = settings.dual_clip if given_up else held
    policy_weight = 0.0 if clipped or given_up else -advantage * weight
    head.backward(policy, row.mask, row.action, policy_weight, -settings.entropy_coefficient, gradient)

    estimate = policy[head.outputs]
    error = estimate - row.target
    slope = error
    if settings.value_clip > 0.0:
        change = estimate - row.value
        near = row.value + min(max(change, -settings.value_clip), settings.value_clip)
        held_error = near - row.target
        if held_error * held_error > error * error:
            error = held_error
            slope = 0.0 if abs(change) > settings.value_clip else held_error
    gradient[head.outputs] = settings.value_coefficient * slope

    policy_loss, value_loss = -advantage * held, 0.5 * error * error
    metrics.policy_loss += policy_loss
    metrics.value_loss += value_loss
    metrics.entropy_loss -= entropy
    metrics.approx_kl += (ratio - 1.0) - log_ratio
    metrics.clip_fraction += 1.0 if abs(ratio - 1.0) > settings.clip else 0.0
    metrics.loss += policy_loss + settings.value_coefficient * value_loss - settings.entropy_coefficient * entropy


def moved_too_far(means, settings):
    """Return whether the mean KL divergence exceeds 1.5 times `target_kl`."""
    return means.approx_kl > 1.5 * settings.target_kl


class PPO(OnPolicyAgent):
    """Proximal policy optimisation: collect a rollout, estimate advantages, improve the policy a bounded way.

    `PPO("CartPole-v1").learn(200_000)`. `network` is the description of a torch network, or a torch.nn.Module of your
    own: see `velocirl.networks.torch.network` for what it takes and gives.
    """

    name = "ppo"
    Config = PPOConfig
    # Chosen from 11 settings, tried for 300,000 steps in native environments without their presets (3 seeds from 1000).
    # Layer norms improve 7 of 13; without them, MountainCarContinuous is sometimes solved. A gamma of 0.995 is worse in
    # plants (ChemicalReactor 262 instead of 293), a learning rate of 1e-3 in MountainCar (-115 instead of -99).
    generic_defaults = {"num_envs": 32, "horizon": 64, "entropy_coefficient": 0.0, "layer_norm": True}
    # Chosen from 70 settings, tried for 100,000 steps on Gymnasium's robots and landers, with other seeds than those of
    # `tools/compare_untuned.py`. Layer norms, a learning rate annealed to 0 and a gamma of 0.995 helped in all robots
    # except HalfCheetah, which learns most with less noise (log_deviation -1). In compiled environments, these settings
    # reach less than larger rollouts with a gamma of 0.99 (ChemicalReactor 210 instead of 289), in 2.5 times the time.
    python_steps = {
        "num_envs": 4, "horizon": 256, "epochs": 10, "minibatch_size": 64, "learning_rate": 6e-4, "gamma": 0.995,
        "log_deviation": -0.5,
    }  # fmt: skip
    # The paper's settings for Atari games.
    pictures = {
        **NATURE, "num_envs": 8, "horizon": 128, "epochs": 4, "minibatch_size": 256, "learning_rate": 2.5e-4,
        "gamma": 0.99, "clip": 0.1, "entropy_coefficient": 0.01, "layer_norm": None, "normalise_rewards": False,
    }  # fmt: skip
    networks = {"policy": Network("observation", gives=policy_and_value, together="shared")}

    class Scratch:
        """Fields stored with each step of a rollout."""

        log_probability: float32  # of the action when it was sampled
        value: float32  # of the observation, by the critic at that time
        ratio: float32  # pi(action) now / pi(action) then, for V-trace
        current_value: float32  # of the observation, by the current critic
        advantage: float32
        target: float32  # regression target of the value

    act, state_value, values, explained = act, state_value, ("value",), ("value", "target")
    estimate = (column(gae),)
    before_epoch = (when("follows_policy", forward("policy", "observation"), each(compare_policies)),)
    reestimate = (when("follows_policy", column(vtrace)),)
    update = (
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
        "entropy_loss": "entropy_loss",
        "approx_kl": "approx_kl",
        "clip_fraction": "clip_fraction",
        "loss": "loss",
        "advantage": None,
        "squared_advantage": None,
        "advantage_scale": None,
    }

    def numbers(self) -> dict[str, Any]:
        """Return the upper limit of the importance weight, used if clipping does not limit it."""
        config = self.config
        return {"weight_limit": config.rho_limit if config.follows_policy and config.clip == 0 else inf}


class A2C(PPO):
    """Advantage actor-critic (Mnih et al., 2016): the configuration of PPO that it is."""

    name = "a2c"
    Config = A2CConfig
    # In 300,000 steps without a preset, Pendulum rises from -1226 to -200, ChemicalReactor from 81 to 123 (3 seeds).
    generic_defaults, python_steps = {"layer_norm": True}, {}
    pictures = {**NATURE, "layer_norm": None}
