"""Waiting time in development: training again after editing a custom environment or changing a setting."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from itertools import count
from pathlib import Path

from velocirl.bench.comparison import Comparison, value
from velocirl.bench.measuring import Counted
from velocirl.bench.processes import run_python, seconds_of
from velocirl.bench.registry import benchmark
from velocirl.bench.units import SECONDS

SCRIPT = """
import velocirl
from velocirl import Box, Discrete, Environment, float32, random, record

@record
class Room:
    temperature: float32
    outside: float32

def reset(room, _, rng):
    room.temperature = random.uniform(rng, 10, 30)
    room.outside = random.uniform(rng, -10, 15)

def step(room, _, heat, rng):
    room.temperature += 0.1 * (room.outside - room.temperature) + {constant} * {heat} + 0.1 * random.normal(rng)
    return -abs(room.temperature - 21), False

def observe(room, _, observation):
    observation[0] = (room.temperature - 21) / 10
    observation[1] = room.outside / 10

thermostat = Environment("Thermostat-v0", state=Room, observation=Box(-100, 100, (2,)), action={action},
                         max_steps=200, reset=reset, step=step, observe=observe)
agent = velocirl.{algorithm}(thermostat, seed=0, device="cpu", {settings})
agent.learn(1, callbacks=[lambda agent: False])
"""
CONTINUOUS, DISCRETE = ("heat[0]", "Box(-1, 1, (1,))"), ("(heat - 1)", "Discrete(3)")
ALGORITHMS = {"PPO": CONTINUOUS, "DQN": DISCRETE, "SAC": CONTINUOUS, "TD3": CONTINUOUS}
SETTINGS = {
    "activation": ("PPO", "activation='gelu'"),
    "optimiser": ("PPO", "optimiser='rmsprop'"),
    "normalisation": ("PPO", "normalise_observations=True, normalise_rewards=True"),
    "priority": ("DQN", "priority='proportional'"),
    "n_step": ("DQN", "n_step=4"),
}


@benchmark(category="compile", standard=False)
def constant_changed() -> Comparison:
    """One constant changed in an environment of one's own, from the start of Python to the end of the first iteration.

    Whole processes are timed. All but what the constant stands in is in the cache, from a run before the change.
    """
    contestants = {algorithm: _changing_a_constant(algorithm) for algorithm in ALGORITHMS}
    return Comparison(SECONDS, contestants, [value(algorithm, at_most=3.0) for algorithm in ALGORITHMS])


@benchmark(category="compile", standard=False)
def setting_changed() -> Comparison:
    """A setting changed from its default, from the start of Python to the end of the first iteration.

    Whole processes are timed. The cache holds what the defaults need; where the setting was used before, also what
    it needs itself.
    """
    contestants = {}
    for name, (algorithm, settings) in SETTINGS.items():
        contestants[f"{name}, never used"] = _changing_a_setting(algorithm, settings, used_before=False)
        contestants[f"{name}, used before"] = _changing_a_setting(algorithm, settings, used_before=True)
    limits = {name: 1.5 if "before" in name else 3.0 for name in contestants}
    return Comparison(SECONDS, contestants, [value(name, at_most=limit) for name, limit in limits.items()])


def _changing_a_constant(algorithm: str) -> Callable[[], Counted]:
    def make() -> Counted:
        home, constants = _new_home(), count()
        _train(home, algorithm, next(constants))
        return Counted(lambda: _train(home, algorithm, next(constants)), closing=lambda: shutil.rmtree(home))

    return make


def _changing_a_setting(algorithm: str, settings: str, *, used_before: bool) -> Callable[[], Counted]:
    def make() -> Counted:
        home = _new_home()
        _train(home, algorithm)
        if used_before:
            _train(home, algorithm, settings=settings)
        return Counted(lambda: _with_a_copy(home, algorithm, settings), closing=lambda: shutil.rmtree(home))

    return make


def _with_a_copy(home: Path, algorithm: str, settings: str) -> float:
    """Return the seconds of a training that leaves the compile cache in `home` unchanged."""
    copy = _new_home()
    try:
        shutil.copytree(home, copy, dirs_exist_ok=True)
        return _train(copy, algorithm, settings=settings)
    finally:
        shutil.rmtree(copy)


def _train(home: Path, algorithm: str, number: int = 0, settings: str = "") -> float:
    """Return the seconds of a process that trains for one iteration; `number` determines the constant."""
    heat, action = ALGORITHMS[algorithm]
    words = {"heat": heat, "action": action, "algorithm": algorithm, "settings": settings}
    script = home / "thermostat.py"
    script.write_text(SCRIPT.format(constant=3 + number / 1024, **words))
    return seconds_of(lambda: run_python(f"import runpy; runpy.run_path({str(script)!r})", home))


def _new_home() -> Path:
    return Path(tempfile.mkdtemp(prefix="velocirl-bench-"))
