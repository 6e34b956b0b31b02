"""Time to solve CartPole, and time until training has started, in fresh processes."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable
from itertools import cycle
from pathlib import Path

from velocirl.bench.comparison import Comparison, UnavailableError, ratio, value
from velocirl.bench.measuring import Counted
from velocirl.bench.processes import run_python, seconds_of
from velocirl.bench.registry import benchmark
from velocirl.bench.units import SECONDS

SEEDS = 5
PATIENCE_SECONDS = 60  # with Stable-Baselines3
SOLVE = """
import velocirl

agent = velocirl.PPO("CartPole-v1", seed={seed})
agent.learn(agent.preset()["total_steps"], callbacks=velocirl.StopOnReward(475))
print("solved" if agent.stopping else agent.steps)
"""
# RL Baselines3 Zoo's settings for this environment.
SOLVE_BY_STABLE_BASELINES3 = """
import time
import numpy
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.env_util import make_vec_env

def goes_on(values, _):
    returns = [episode["r"] for episode in values["self"].ep_info_buffer]
    if len(returns) == 100 and numpy.mean(returns) >= 475:
        print("solved")
        return False
    return time.perf_counter() - began < {patience}

began = time.perf_counter()
torch.set_num_threads(1)
model = PPO(
    "MlpPolicy", make_vec_env("CartPole-v1", 8), seed=0, device="cpu", n_steps=32, batch_size=256, n_epochs=20,
    learning_rate=lambda left: 0.001 * left, clip_range=lambda left: 0.2 * left, ent_coef=0.0,
    gamma=0.98, gae_lambda=0.8,
)
model.learn(100_000, callback=goes_on)
"""
START = """
import time
import velocirl

start = time.perf_counter()
velocirl.PPO("{environment}", seed=0).learn(1)
print(time.perf_counter() - start)
"""


@benchmark(category="training", quick=False)
def time_to_solve() -> Comparison:
    """Fresh process to CartPole-v1 solved by PPO.

    Solved is a mean return of at least 475 over the last 100 episodes of training. Whole processes are timed: Python's
    start, imports, compiled functions from a warm cache, training with the settings that the environment brings, with 5
    seeds in turns. Stable-Baselines3 has the settings of RL Baselines3 Zoo, one thread of torch, and is trained once,
    with one seed, before the rounds; its one figure stands in each of them.
    """
    ours, theirs = "velocirl", "Stable-Baselines3"
    return Comparison(
        unit=SECONDS,
        contestants={
            ours: lambda: velocirl_solving(SOLVE, SEEDS),
            theirs: lambda: stable_baselines3_solving(SOLVE_BY_STABLE_BASELINES3.format(patience=PATIENCE_SECONDS)),
        },
        claims=(value(ours, at_most=2.5), ratio(ours, theirs)),
        peers=(theirs,),
    )


@benchmark(category="compile", quick=False)
def training_start() -> Comparison:
    """The beginning of training: PPO on CartPole-v1 made, compiled, and taken through one iteration.

    In fresh processes, from after `import velocirl` to the end of the first iteration. The cold cache is an empty
    VELOCIRL_HOME.
    """
    cold, warm = "cold cache", "warm cache"
    return Comparison(
        unit=SECONDS,
        contestants=_starts("CartPole-v1", cold, warm),
        claims=(value(cold, at_most=8.0), value(warm, at_most=1.0)),
    )


@benchmark(category="compile", standard=False, quick=False)
def plant_start() -> Comparison:
    """The beginning of training: PPO on ChemicalReactor-v0 made, compiled, and taken through one iteration.

    As for `training_start`, with equations that are longer.
    """
    return Comparison(unit=SECONDS, contestants=_starts("ChemicalReactor-v0", "cold cache", "warm cache"))


def velocirl_solving(script: str, count: int) -> Counted:
    """Measure the seconds of processes that run a velocirl script until it is solved, with `count` seeds in turns."""
    seeds = cycle(range(count))
    for seed in range(count):  # solving is deterministic per seed: a failure must not spoil the whole run later
        said = run_python(script.format(seed=seed)).strip()  # the first run may compile
        if said != "solved":
            raise UnavailableError(f"not solved in {said} steps with seed {seed}")
    return Counted(lambda: seconds_of(lambda: run_python(script.format(seed=next(seeds)))))


def stable_baselines3_solving(script: str) -> Counted:
    """Measure the seconds of one process that runs a Stable-Baselines3 script until solved."""
    if importlib.util.find_spec("stable_baselines3") is None:
        raise UnavailableError("stable_baselines3 is not installed")
    said: list[str] = []
    seconds = seconds_of(lambda: said.append(run_python(script)))
    if said[0].strip() != "solved":
        raise UnavailableError(f"not solved in {seconds:.0f} s")
    return Counted(lambda: seconds)


def _starts(environment: str, cold: str, warm: str) -> dict[str, Callable[[], Counted]]:
    script = START.format(environment=environment)

    def cold_start() -> float:
        with tempfile.TemporaryDirectory(prefix="velocirl-bench-") as home:
            return float(run_python(script, Path(home)))

    def warm_start() -> Counted:
        run_python(script)  # fills the compile cache
        return Counted(lambda: float(run_python(script)))

    return {cold: lambda: Counted(cold_start), warm: warm_start}
