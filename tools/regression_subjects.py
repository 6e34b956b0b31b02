"""What `regression_trials.py` measures: four kinds of work and, where asked for, each of them planted slower.

`VELOCIRL_PLANTED=0.15` lets every call last 15% longer than it took, busy until then, as slower code would be.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import gymnasium

import velocirl
from velocirl.bench import Comparison, Timed, benchmark
from velocirl.bench.suite.training.gae import random_rollout, velocirl_gae
from velocirl.bench.suite.training.ppo import Work, settings
from velocirl.bench.units import STEPS

PLANTED = float(os.environ.get("VELOCIRL_PLANTED", "0"))
CALLS_OF_PYTHON = 200


def slowed(call: Callable[[], object]) -> Callable[[], None]:
    """The same call, as much longer as is planted."""

    def longer() -> None:
        start = time.perf_counter()
        call()
        until = start + (1.0 + PLANTED) * (time.perf_counter() - start)
        while time.perf_counter() < until:
            pass

    return longer


def alone(make: Callable[[], Timed]) -> Comparison:
    """A contestant that nobody is compared with."""

    def contestant() -> Timed:
        timed = make()
        return Timed(slowed(timed.call), timed.amount, timed.closing)

    return Comparison(STEPS, {"velocirl": contestant})


@benchmark(category="trial")
def compiled_steps() -> Comparison:
    """4096 CartPoles in one compiled loop on one core."""

    def make() -> Timed:
        env = velocirl.make_vec("CartPole-v1", 4096, seed=0, threads=1)
        return Timed(lambda: env.run_randomly(256), amount=4096 * 256, closing=env.close)

    return alone(make)


@benchmark(category="trial")
def advantages() -> Comparison:
    """Advantages of a rollout that is larger than the caches of a core."""
    return alone(lambda: velocirl_gae(random_rollout(4096, 32), threads=1))


@benchmark(category="trial")
def training() -> Comparison:
    """Training PPO on CartPole-v1 on two threads."""

    def make() -> Timed:
        work = Work(num_envs=1024, minibatch_size=4096)
        agent = velocirl.PPO("CartPole-v1", **settings(work, threads=2))
        return Timed(lambda: agent.learn(2 * work.steps), amount=2 * work.steps)

    return alone(make)


@benchmark(category="trial")
def python_steps() -> Comparison:
    """Gymnasium's CartPole, stepped by Python."""

    def make() -> Timed:
        env = gymnasium.make("CartPole-v1")
        env.reset(seed=0)

        def steps() -> None:
            for step in range(CALLS_OF_PYTHON):
                *_, terminated, truncated, _ = env.step(step % 2)
                if terminated or truncated:
                    env.reset()

        return Timed(steps, amount=CALLS_OF_PYTHON, closing=env.close)

    return alone(make)
