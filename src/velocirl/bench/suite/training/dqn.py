"""DQN: one update of its network, and training on CartPole, compared with Stable-Baselines3."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import numpy as np

import velocirl
from velocirl import Box, Discrete, Environment, float32, record
from velocirl.algorithms.online.dqn import DQNConfig
from velocirl.bench.comparison import Comparison, ratio, value
from velocirl.bench.machine.arithmetic import backward_operations, forward_operations, phase_facts
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.units import STEPS, UPDATES
from velocirl.buffers.replay import ReplayBuffer
from velocirl.program.pace import ANY_PACE

INPUTS, WIDTH, ACTIONS, BATCH = 64, 256, 16, 32
RECORDS, IN_A_CALL = 10_000, 20
LAYERS = (4, 64, 64, 2)  # of CartPole's network
FEWEST_UPDATES, LEAST_RATIO = 1 / 450e-6, 30.0
PEER_STEPS, OWN_STEPS = 512, 16_384
PLAIN = DQNConfig(
    num_envs=1, buffer_size=100_000, learning_starts=100, train_every=4, learning_rate=1e-4, double=False,
    dueling=False, hidden=(64, 64), activation="relu", seed=0, threads=1, device="cpu",
)  # fmt: skip


def nowhere() -> Environment:
    """Create an environment with the update's sizes; it is never stepped."""

    @record
    class State:
        number: float32

    def reset(state, params, rng):  # noqa: ARG001
        state.number = 0.0

    def step(state, params, action, rng):  # noqa: ARG001
        return 0.0, False

    def observe(state, params, observation):  # noqa: ARG001
        for k in range(len(observation)):
            observation[k] = state.number

    return Environment(
        "Nowhere-v0", state=State, observation=Box(-1.0, 1.0, (INPUTS,)), action=Discrete(ACTIONS), reset=reset,
        step=step, observe=observe,
    )  # fmt: skip


def fill(buffer: ReplayBuffer, seed: int = 0) -> None:
    """Fill a replay buffer with random transitions."""
    generator = np.random.default_rng(seed)
    rows = np.zeros(RECORDS, buffer.rows.dtype)
    for name in ("observation", "reward", "next_observation"):
        rows[name] = generator.normal(size=rows[name].shape)
    rows["action"] = generator.integers(0, ACTIONS, (RECORDS, 1))
    buffer.add(rows)


def operations(sizes: tuple[int, ...], batch: int) -> int:
    """Return an update's matrix-product operations: both networks forward, one of them backward."""
    return batch * (2 * forward_operations(sizes) + backward_operations(sizes))


class Updates:
    """Single-threaded updates of a network from random transitions."""

    def __init__(self) -> None:
        sizes = {"hidden": (WIDTH, WIDTH), "batch_size": BATCH, "buffer_size": RECORDS}
        self.agent = velocirl.DQN(nowhere(), **{**asdict(PLAIN), **sizes, "max_grad_norm": 10.0, "target_every": 125})
        self.agent.prepare()
        learner: Any = self.agent.learner
        fill(learner.ring.buffer)
        self.updates, self.done = learner.updates, 0
        self._pace = ANY_PACE._replace(learning_rate=1e-4, max_grad_norm=10.0)

    def call(self) -> None:
        """Run `IN_A_CALL` updates."""
        self.updates.begin(self._pace, 0)
        self.updates.run(IN_A_CALL, 0)
        self.done += IN_A_CALL


def velocirl_updating() -> Timed:
    """Time updates."""
    cost = Cost(operations=operations((INPUTS, WIDTH, WIDTH, ACTIONS), BATCH))
    return Timed(Updates().call, amount=IN_A_CALL, cost=cost)


def stable_baselines3_updating() -> Peer:
    """Time the same updates in Stable-Baselines3 with one torch thread."""
    sizes = INPUTS, ACTIONS, WIDTH, BATCH, IN_A_CALL
    return Peer("sb3_dqn", "updating", *sizes, needs="stable_baselines3", amount=IN_A_CALL)


def velocirl_training(batch_size: int, steps: int = OWN_STEPS) -> Timed:
    """Time CartPole steps of one environment, with an update every four."""
    agent = velocirl.DQN("CartPole-v1", **{**asdict(PLAIN), "batch_size": batch_size})
    per_step = forward_operations(LAYERS) + operations(LAYERS, batch_size) / PLAIN.train_every
    cost = Cost(operations=per_step)
    return Timed(lambda: agent.learn(steps), amount=steps, cost=cost, facts=lambda: phase_facts(agent))


def stable_baselines3_training(batch_size: int) -> Peer:
    """Time the same training in Stable-Baselines3."""
    return Peer("sb3_dqn", "training", batch_size, PEER_STEPS, needs="stable_baselines3", amount=PEER_STEPS)


def training(batch_size: int) -> Comparison:
    """Compare both with this batch size."""
    return Comparison(
        unit=STEPS,
        contestants={
            "velocirl": lambda: velocirl_training(batch_size),
            "Stable-Baselines3": lambda: stable_baselines3_training(batch_size),
        },
        claims=(ratio("velocirl", "Stable-Baselines3", at_least=LEAST_RATIO),),
        peers=("Stable-Baselines3",),
    )


@benchmark(category="learning")
def dqn_update() -> Comparison:
    """One update of DQN, 32 transitions through a network of 64, 256, 256 and 16, on one thread.

    Drawing the batch, both networks, loss, backward and a step of Adam with the gradient clipped by its norm; neither
    double nor dueling, and the target network is copied every 125 updates (by Stable-Baselines3 outside of this). Of
    arithmetic, only the multiplications and additions of the layers count.
    """
    return Comparison(
        unit=UPDATES,
        contestants={"velocirl": velocirl_updating, "Stable-Baselines3": stable_baselines3_updating},
        claims=(value("velocirl", at_least=FEWEST_UPDATES), ratio("velocirl", "Stable-Baselines3")),
        peers=("Stable-Baselines3",),
    )


@benchmark(category="training")
def dqn_cartpole() -> Comparison:
    """Training DQN on CartPole-v1, one copy, an update of 32 transitions every 4 steps.

    A 64x64 network on one thread, neither double nor dueling; Stable-Baselines3 steps Gymnasium's CartPole. Of
    arithmetic, only the multiplications and additions of the layers count, when acting and learning.
    """
    return training(32)


@benchmark(category="training", standard=False)
def dqn_cartpole_128() -> Comparison:
    """Training DQN on CartPole-v1, one copy, an update of 128 transitions every 4 steps.

    As with 32.
    """
    return training(128)
