"""A toy: a critic of several actions for each sample, pushed down by the logarithm of the sum of their exponentials."""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log

from velocirl.engine import random
from velocirl.engine.records import float32
from velocirl.networks import squashed
from velocirl.networks.declared import Columns, Groups, Network
from velocirl.networks.heads import Head
from velocirl.program.fields import Action
from velocirl.program.stages import backward, each, forward, step
from velocirl.training.off_policy import NoisyConfig, OffPolicyAgent


@dataclass(frozen=True)
class SoftMaximumConfig(NoisyConfig):
    samples: int = 4
    hidden: tuple[int, ...] = (8, 8)


def policy(agent: SoftMaximum) -> Groups:
    return [[Columns(agent.head.outputs)]]


def one_value(agent: SoftMaximum) -> Groups:
    return [[Columns(1)]]


def act(actor, row, rng):
    squashed.sample(actor, rng, row.action)


def draw_candidates(row, settings, rng):
    for q in range(int(settings.samples)):
        for k in range(row.candidates.shape[1]):
            row.candidates[q, k] = random.uniform(rng, -1.0, 1.0)


def value_gradient(critic, row, gradient, metrics):
    """(Q(s, a) - r)^2 / 2"""
    error = critic[0] - row.reward
    gradient[0] = error
    metrics.loss += 0.5 * error * error


def soft_maximum_gradient(candidate_values, row, gradient, metrics):
    """log of the sum of exp Q(s, a_q) over the candidates"""
    highest = candidate_values[0, 0]
    for q in range(len(candidate_values)):
        highest = max(highest, candidate_values[q, 0])
    total = 0.0
    for q in range(len(candidate_values)):
        total += exp(candidate_values[q, 0] - highest)
    for q in range(len(candidate_values)):
        gradient[q, 0] = exp(candidate_values[q, 0] - highest) / total
    row.soft_maximum = highest + log(total)
    metrics.soft_maximum += row.soft_maximum


def climb(critic, gradient):
    gradient[0] = -1.0


def actor_gradient(actor, row, new_action_slope, gradient):
    squashed.gradient(actor, row.new_action, row.noise, new_action_slope, 0.1, gradient)


def new_action(actor, row, rng):
    squashed.sample_keeping_noise(actor, rng, row.new_action, row.noise)


class SoftMaximum(OffPolicyAgent):
    name = "toy-soft-maximum"
    Config = SoftMaximumConfig
    networks = {
        "actor": Network("observation", gives=policy),
        "critic": Network("observation", "action", gives=one_value, setting="critic"),
    }

    class Scratch:
        candidates: Action["samples"]  # noqa: F821, UP037 - the name of a setting
        soft_maximum: float32
        new_action: Action
        noise: Action

    act = act
    update = (
        forward("critic", "observation", "action"),
        each(value_gradient),
        backward("critic"),
        each(draw_candidates),
        forward("critic", "observation", "candidates", name="candidate_values", rows="samples"),
        each(soft_maximum_gradient),
        backward("candidate_values"),
        step("critic"),
        forward("actor", "observation"),
        each(new_action),
        forward("critic", "observation", "new_action", name="new_value"),
        each(climb),
        backward("new_value", into="new_action"),
        each(actor_gradient),
        backward("actor"),
        step("actor"),
    )
    reports = {"loss": "loss", "soft_maximum": "soft_maximum"}

    def make_head(self) -> Head:
        return squashed.squashed_gaussian(self.check_numbers())
