"""Training with collectors on slow environments, compared with Stable-Baselines3, whose learner waits for them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

import velocirl
from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.peers.slow_cartpole import SlowCartPole
from velocirl.bench.registry import benchmark
from velocirl.bench.suite.training.dqn import PLAIN
from velocirl.bench.units import STEPS

COPIES, BATCH, TRAIN_EVERY, STEPS_OF_A_CALL = 8, 64, 4, 800
LEAST_RATIO = 2.0


def velocirl_collecting() -> Timed:
    """Time training steps with one collector per environment."""
    agent = velocirl.DQN(
        SlowCartPole,
        **{
            **asdict(PLAIN), "num_envs": COPIES, "batch_size": BATCH, "train_every": TRAIN_EVERY, "collectors": COPIES,
        },
    )  # fmt: skip
    agent.learn(200)  # fills the replay buffer: the first measured call already updates
    learner: Any = agent.learner
    return Timed(lambda: agent.learn(STEPS_OF_A_CALL), amount=STEPS_OF_A_CALL, closing=learner.close)


def stable_baselines3_collecting() -> Peer:
    """Time the same training in Stable-Baselines3 with one process per environment."""
    sizes = COPIES, BATCH, TRAIN_EVERY, STEPS_OF_A_CALL
    return Peer("sb3_dqn", "training_slowly", *sizes, needs="stable_baselines3", amount=STEPS_OF_A_CALL)


@benchmark(category="training", quick=False)
def dqn_slow_environment() -> Comparison:
    """Training DQN on an environment that takes 2 ms a step, 8 copies, an update of 64 transitions every 4 steps.

    CartPole with a pause in each step, as for a simulator or a robot: what is compared is how much of the time between
    learning and waiting is saved. A 64x64 network; each copy has a process, a collector here and one of SubprocVecEnv
    there. Both hold the ratio of updates to steps exactly; collectors are two steps ahead of the learner.
    """
    return Comparison(
        unit=STEPS,
        contestants={
            "velocirl": velocirl_collecting,
            "Stable-Baselines3": stable_baselines3_collecting,
        },
        claims=(ratio("velocirl", "Stable-Baselines3", at_least=LEAST_RATIO),),
        peers=("Stable-Baselines3",),
    )
