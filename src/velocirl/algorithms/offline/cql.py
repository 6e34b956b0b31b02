"""Conservative Q-learning, CQL(H) (Kumar et al., 2020): soft actor-critic whose values of actions unseen are low."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, inf, log

from velocirl.algorithms.online.sac import (
    actor_gradient,
    mean_and_deviation,
    q_value,
    sample_action,
    sample_next_action,
    temperature_gradient,
    two_values,
    value_slope,
)  # fmt: skip
from velocirl.engine import random
from velocirl.engine.records import float32
from velocirl.networks import squashed
from velocirl.networks.declared import Network, Number, TargetNetwork
from velocirl.networks.heads import Head
from velocirl.program.fields import Action
from velocirl.program.stages import backward, each, every, follow, forward, once, step, when
from velocirl.training.offline import OfflineAgent, OfflineCriticConfig
from velocirl.training.settings.config import require, require_whole
from velocirl.training.settings.entropy import EntropyConfig

LOG_HALF = -0.6931471805599453  # log-density of a number that is uniform in [-1, 1]


@dataclass(frozen=True)
class CQLSettings:
    """What the rule of CQL has to set, whether it learns from data or from steps."""

    conservatism: float = 5.0
    """Weight of the gap between the values of all actions and that of the data's."""
    samples: int = 10
    """Number of actions of each kind by which the values of all actions are known: random ones, those of the policy,
    and those of the policy at the next state."""

    def check_rule(self) -> None:
        """Validate the settings of CQL's update rule."""
        require(0 <= self.conservatism < inf, "conservatism", self.conservatism, "at least 0")
        require_whole(self, 1, 16, "samples")

    @property
    def tried(self) -> int:
        """Number of actions sampled to estimate the values of all actions."""
        return 3 * self.samples


@dataclass(frozen=True)
class CQLConfig(CQLSettings, EntropyConfig, OfflineCriticConfig):
    """The settings of CQL. The preset of an environment replaces these defaults."""

    actor_every: int = 1
    """Number of critic updates per actor update."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_entropy()
        self.check_rule()
        require_whole(self, 1, 2**31 - 1, "actor_every")


def draw_random_and_next(actor, row, settings, rng):
    """Sample random actions, and actions of the policy at s', with the log-densities of their numbers."""
    count, size = int(settings.samples), len(row.action)
    for q in range(count):
        for k in range(size):
            row.candidates[q, k] = random.uniform(rng, -1.0, 1.0)
            row.densities[q, k] = LOG_HALF
            number, density = squashed.squash(actor[k], actor[size + k], random.normal(rng))
            row.candidates[count + q, k] = number
            row.densities[count + q, k] = density


def draw_own(actor, row, settings, rng):
    """Sample actions of the policy at s, with the log-densities of their numbers."""
    count, size = int(settings.samples), len(row.action)
    for q in range(2 * count, 3 * count):
        for k in range(size):
            number, density = squashed.squash(actor[k], actor[size + k], random.normal(rng))
            row.candidates[q, k] = number
            row.densities[q, k] = density


def critic_gradient(critics, target_critics, row, settings, gradient, metrics):
    """(Q_i(s, a) - y)^2 / 2 - conservatism Q_i(s, a),  y = r + discount min Q'(s', a')

    The target leaves out the entropy of a', as the authors' own code does.
    """
    target = row.reward
    if row.discount > 0.0:  # nothing follows a terminal state: not even an infinite value may count
        target += row.discount * squashed.smaller(target_critics)
    for k in range(2):
        error = critics[k] - target
        gradient[k] = row.weight * (error - settings.conservatism)
        metrics.critic_loss += row.weight * 0.5 * error * error
        metrics.action_value += 0.5 * critics[k]
        metrics.gap -= 0.5 * critics[k]
    row.error = 0.5 * (abs(critics[0] - target) + abs(critics[1] - target))
    metrics.td_error += row.error


def conservative_gradient(candidate_values, row, settings, gradient, metrics):
    """conservatism log of the mean over candidates of exp(Q_i(s, a) - log density of a)

    Importance weights make the mean estimate the integral of exp Q_i(s, .) over all actions, whatever distribution the
    candidates came from.
    """
    count = len(candidate_values)
    for i in range(2):
        highest = -inf
        for q in range(count):
            value = candidate_values[q, i]
            for k in range(row.densities.shape[1]):
                value -= row.densities[q, k]
            gradient[q, i] = value
            highest = value if not value <= highest else highest  # keeps a NaN as the highest, so that it is detected
        total = 0.0
        for q in range(count):
            gradient[q, i] = exp(gradient[q, i] - highest)
            total += gradient[q, i]
        for q in range(count):
            gradient[q, i] *= row.weight * settings.conservatism / total
        metrics.gap += 0.5 * (highest + log(total / count))


class CQL(OfflineAgent):
    """Conservative Q-learning: soft actor-critic on recorded data, where actions that it does not have count less.

    critics' loss = (Q(s, a) - y)^2 / 2 + conservatism (log of the sum over actions of exp Q(s, .) - Q(s, a)).
    `CQL("ChemicalReactor-v0", data="reactor.vds").learn(100_000)` makes so many updates.
    """

    name = "cql"
    Config = CQLConfig
    networks = {
        "actor": Network("observation", gives=mean_and_deviation),
        "critics": Network("observation", "action", gives=two_values, setting="critic"),
        "target_critics": TargetNetwork("critics"),
        "log_temperature": Number("initial_log_temperature"),
    }

    class Scratch:
        """Fields of a transition in an update."""

        next_action: Action
        next_log_probability: float32
        candidates: Action["tried"]  # noqa: F821, UP037 # pyright: ignore - the name of a setting
        densities: Action["tried"]  # noqa: F821, UP037 # pyright: ignore - logarithms, of each number
        new_action: Action
        noise: Action
        log_probability: float32

    q_value = q_value
    update = (
        forward("actor", "next_observation"),
        each(sample_next_action),
        each(draw_random_and_next),
        forward("actor", "observation"),
        each(draw_own),
        forward("target_critics", "next_observation", "next_action"),
        forward("critics", "observation", "action"),
        each(critic_gradient),
        backward("critics"),
        forward("critics", "observation", "candidates", name="candidate_values", rows="tried"),
        each(conservative_gradient),
        backward("candidate_values"),
        step("critics"),
        every(
            "actor_every",
            forward("actor", "observation"),
            each(sample_action),
            forward("critics", "observation", "new_action"),
            each(value_slope),
            backward("critics", into="new_action"),
            each(actor_gradient),
            backward("actor"),
            step("actor"),
            when("learns_temperature", once(temperature_gradient, steps="log_temperature")),
        ),
        every("target_every", follow("target_critics", "critics", "tau")),
    )
    reports = {
        "critic_loss": "critic_loss",
        "gap": "gap",
        "action_value": "action_value",
        "td_error": "td_error",
        "actor_loss": "actor_loss",
        "entropy": "entropy",
        "temperature": "ent_coef",
        "temperature_loss": "ent_coef_loss",
        "log_probability": None,
    }

    def make_head(self) -> Head:
        """Return the head of a squashed Gaussian actor within the action bounds."""
        return squashed.squashed_gaussian(self.check_numbers())

    def numbers(self) -> dict[str, float]:
        """Return the initial temperature and the target entropy."""
        return self.config.entropy_numbers(-self.head.action_size)
