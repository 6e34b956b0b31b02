"""Small agents of every algorithm that is registered, for tools that put all of them to the test."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from velocirl.algorithms import load_algorithms
from velocirl.training.agent import Agent
from velocirl.training.offline import OfflineAgent
from velocirl.training.persistence import ALGORITHMS

# Each algorithm is tried on the first one that it fits; those that keep limits, on a plant.
ENVIRONMENTS = ("GridWorld-v0", "CartPole-v1", "Pendulum-v1", "ChemicalReactor-v0")
# What is made beside every algorithm in its simplest form.
MORE: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("ppo", "TicTacToe-v1", {"normalise_observations": True}),
    ("ppo", "CartPole-v1", {"network": "mlp(8)"}),
    ("ppo", "CartPole-v1", {"network": "lstm(8)"}),
    ("ppo", "gym:CartPole-v1", {"overlap": True, "estimator": "vtrace"}),
    ("dqn", "GridWorld-v0", {"priority": "rank", "n_step": 2}),
    ("dqn", "TicTacToe-v1", {"priority": "proportional"}),
    ("dqn", "CartPole-v1", {"network": "mlp(8)"}),
    ("sac", "Pendulum-v1", {"network": "mlp(8)"}),
    ("q-learning", "GridWorld-v0", {"n_step": 3}),
    ("q-learning", "TicTacToe-v1", {"storage": "sparse", "exploration": "ucb"}),
)
SMALL = {"num_envs": 4, "hidden": (8,), "threads": 1, "buffer_size": 400, "learning_starts": 64, "batch_size": 16,
         "horizon": 16, "minibatch_size": 32, "gradient_steps": 1, "seed": 0}  # fmt: skip


class SmallAgent(NamedTuple):
    """What an agent is made of."""

    algorithm: str
    environment: str
    settings: dict[str, Any]  # all of them
    special: dict[str, Any]  # those that tell it from the others

    @property
    def label(self) -> str:
        """What it is called."""
        return f"{self.algorithm} {self.environment}" + "".join(f" {k}={v}" for k, v in self.special.items())

    def make(self) -> Agent:
        """The agent."""
        return ALGORITHMS[self.algorithm](self.environment, **self.settings)


def small_agents(only: str = "") -> Iterator[SmallAgent]:
    """Those of all algorithms, or those whose labels begin like `only`."""
    load_algorithms()
    stepping = {name: kind for name, kind in ALGORITHMS.items() if not issubclass(kind, OfflineAgent)}
    plain = [(name, _environment_for(kind), {}) for name, kind in sorted(stepping.items())]
    for algorithm, environment, special in (*plain, *MORE):
        fields = {one.name for one in dataclasses.fields(ALGORITHMS[algorithm].Config)}
        settings = {name: value for name, value in SMALL.items() if name in fields}
        agent = SmallAgent(algorithm, environment, {**settings, **special}, special)
        if agent.label.startswith(only):
            yield agent


def _environment_for(kind: type[Agent]) -> str:
    for environment in ENVIRONMENTS:
        with contextlib.suppress(ValueError):
            if kind(environment) is not None:
                return environment
    raise ValueError(f"no environment for {kind.name}")
