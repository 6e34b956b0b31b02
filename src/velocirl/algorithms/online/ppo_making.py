"""What the parts of PPO are made from."""

from __future__ import annotations

from typing import Any, NamedTuple

from velocirl.algorithms.online.ppo_config import PPOConfig
from velocirl.networks.encoding import Encoding
from velocirl.networks.heads import Head
from velocirl.learners.normalising import RunningMoments
from velocirl.learners.seeding import Seeds
from velocirl.training.source import Source
from velocirl.training.updating import Schedule


class Making(NamedTuple):
    """All that a machine is made from."""

    algorithm: str
    config: PPOConfig
    source: Source
    policy: Any  # NativePolicy or TorchPolicy
    head: Head
    encoding: Encoding
    seeds: Seeds
    observation_moments: RunningMoments
    reward_moments: RunningMoments
    recent: int  # episodes that a report tells of at most
    phases: dict[str, float]


def schedule_of(config: PPOConfig, learning_rate: float) -> Schedule:
    """The numbers of one update."""
    return Schedule(
        learning_rate=learning_rate,
        epochs=config.epochs,
        minibatches=config.num_minibatches,
        accumulate=config.gradient_accumulation,
        unit=config.horizon if config.minibatches == "environments" else 1,
        max_grad_norm=config.max_grad_norm,
        max_grad_value=config.max_grad_value,
        target_kl=config.target_kl,
        normalise=config.normalise_advantages,
    )
