"""Start of training by algorithm: with an empty compile cache, and with a warm one."""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path

from velocirl.bench.comparison import Comparison, ratio
from velocirl.bench.measuring import Counted
from velocirl.bench.processes import run_python
from velocirl.bench.registry import benchmark
from velocirl.bench.units import SECONDS

START = """
import time
import velocirl

start = time.perf_counter()
velocirl.{algorithm}({environment!r}, {settings}).learn({steps})
print(time.perf_counter() - start)
"""
SETTINGS: dict[str, dict[str, str | int]] = {
    "DQN": {
        "algorithm": "DQN", "environment": "CartPole-v1",
        "settings": "num_envs=1, learning_starts=64, threads=1, seed=0, device='cpu'", "steps": 128,
    },
    "SAC": {
        "algorithm": "SAC", "environment": "Pendulum-v1",
        "settings": "num_envs=1, learning_starts=300, threads=1, seed=0, device='cpu'", "steps": 310,
    },
    "Q-learning": {
        "algorithm": "QLearning", "environment": "TicTacToe-v1", "settings": "num_envs=64, seed=0", "steps": 640,
    },
}  # fmt: skip


def cold(script: str) -> float:
    """Return the seconds of the first steps and updates with an empty cache."""
    with tempfile.TemporaryDirectory(prefix="velocirl-bench-") as home:
        return float(run_python(script, Path(home)))


def cached(script: str) -> Counted:
    """Measure the seconds of the first steps and updates with a cache filled by an earlier process."""
    run_python(script)
    return Counted(lambda: float(run_python(script)))


def comparison(name: str) -> Comparison:
    """Compare a cold with a warm cache."""
    script = START.format(**SETTINGS[name])
    contestants = {"cold cache": lambda: Counted(partial(cold, script)), "warm cache": lambda: cached(script)}
    return Comparison(SECONDS, contestants, (ratio("warm cache", "cold cache"),))


@benchmark(category="compile", standard=False)
def q_learning_start() -> Comparison:
    """The beginning of training: Q-learning of TicTacToe made, compiled, and taken through its first steps.

    In fresh processes, from after `import velocirl` on. The cold cache is an empty VELOCIRL_HOME.
    """
    return comparison("Q-learning")


@benchmark(category="compile", standard=False)
def dqn_start() -> Comparison:
    """The beginning of training: DQN on CartPole-v1 made, compiled, and taken through its first updates.

    As with Q-learning.
    """
    return comparison("DQN")


@benchmark(category="compile", standard=False)
def sac_start() -> Comparison:
    """The beginning of training: SAC on Pendulum-v1 made, compiled, and taken through its first updates.

    As with Q-learning.
    """
    return comparison("SAC")
