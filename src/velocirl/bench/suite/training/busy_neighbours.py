"""Default threads next to busy processes, compared with one thread under the same conditions."""

from __future__ import annotations

import importlib.util
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, ratio
from velocirl.bench.measuring import Sampler, Settings, Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import Longer, vector_steps
from velocirl.bench.suite.training.ppo import FOUR_EPOCHS, settings
from velocirl.bench.units import STEPS
from velocirl.engine.targets.cores import available_cores

# Exits when its parent does, even if the parent was killed.
BUSY = "import os; parent = os.getppid()\nwhile os.getppid() == parent:\n    for _ in range(10**6): pass"
FLEET = 65_536


class Neighbours:
    """Busy processes, stopped except during a measurement."""

    def __init__(self) -> None:
        self._processes: list[subprocess.Popen[bytes]] = []

    @contextmanager
    def busy(self, count: int) -> Iterator[None]:
        """Run `count` processes inside the context."""
        while len(self._processes) < count:
            process = subprocess.Popen([sys.executable, "-c", BUSY])  # noqa: S603 - our own loop
            process.send_signal(signal.SIGSTOP)
            self._processes.append(process)
        self._send(signal.SIGCONT, count)
        try:
            yield
        finally:
            self._send(signal.SIGSTOP, count)

    def close(self) -> None:
        """Kill all processes."""
        for process in self._processes:
            process.kill()
            process.wait()
        self._processes.clear()

    def _send(self, what: signal.Signals, count: int) -> None:
        for process in self._processes[:count]:
            process.send_signal(what)


@dataclass
class Beside:
    """Sampler that measures while `busy` other processes run."""

    sampler: Sampler
    neighbours: Neighbours
    busy: int

    @property
    def iterations(self) -> int:
        """Number of calls per sample."""
        return self.sampler.iterations

    @property
    def cost(self) -> None:
        """Unknown: the cores are shared."""

    def prepare(self, settings: Settings) -> None:
        """Warm up under the same conditions."""
        with self.neighbours.busy(self.busy):
            self.sampler.prepare(settings)

    def sample(self) -> float:
        """Take one sample."""
        with self.neighbours.busy(self.busy):
            return self.sampler.sample()

    def close(self) -> None:
        """Close the sampler, and kill the processes."""
        self.sampler.close()
        self.neighbours.close()


Make = Callable[[int | None], Timed]  # creates a sampler for a number of threads; None: the default


def training(kind: Any, environment: str, steps: int, given: dict[str, Any], threads: int | None) -> Timed:
    """Time training of an agent."""
    agent = kind(environment, **{"seed": 0, "device": "cpu", **given, "threads": threads})
    return Timed(lambda: agent.learn(steps), amount=steps)


def torch_training(threads: int | None) -> Timed:
    """Time training of a torch network."""
    if importlib.util.find_spec("torch") is None:
        raise UnavailableError("torch is not installed")
    return training(velocirl.PPO, "CartPole-v1", 16_384, {"network": "mlp(64, 64)"}, threads)


def table_learning(threads: int | None) -> Timed:
    """Time tabular learning with threads."""
    runtime = "serial" if threads == 1 else "threads"
    agent = velocirl.QLearning("TicTacToe-v1", seed=0, runtime=runtime, workers=None if threads == 1 else threads)
    return Timed(lambda: agent.learn(8_000_000), amount=8_000_000)


def fleet_steps(threads: int | None) -> Timed:
    """Time steps of a fleet through `VectorEnv.step`."""
    return vector_steps(lambda: velocirl.make_vec("CartPole-v1", FLEET, threads=threads, copy=False))()


LARGE = settings(FOUR_EPOCHS)
WORKS: dict[str, Make] = {
    "PPO CartPole": partial(training, velocirl.PPO, "CartPole-v1", 200_000, {}),
    "PPO 4096 x 32": partial(training, velocirl.PPO, "CartPole-v1", FOUR_EPOCHS.steps, LARGE),
    "SAC Pendulum": partial(training, velocirl.SAC, "Pendulum-v1", 1_000, {"learning_starts": 256}),
    "DQN CartPole": partial(training, velocirl.DQN, "CartPole-v1", 5_000, {"learning_starts": 256}),
    "PPO gym:CartPole": partial(training, velocirl.PPO, "gym:CartPole-v1", 8_192, {}),
    "PPO, torch network": torch_training,
    "Q-learning TicTacToe": table_learning,
    "fleet of 65,536": fleet_steps,
}


def condition(work: str, threads: int | None, busy: int) -> str:
    """Return the name of a measured variant."""
    shown = "default threads" if threads is None else "1 thread" if threads == 1 else f"{threads} threads"
    return f"{work}: {shown}, {busy} busy"


@benchmark(category="scaling", standard=False)
def busy_neighbours() -> Comparison:
    """Default threads next to busy processes, compared with one thread next to the same processes.

    With no busy process, one, and one less than there are cores; these are loops of Python, started here. The first
    work, PPO with CartPole's preset, is also measured with each number of threads on the quiet machine. A ratio of 1
    to one thread says that a neighbour takes away no more than its core.
    """
    cores, neighbours = available_cores(), Neighbours()
    numbers = [2**power for power in range(1, 10) if 2**power <= cores]
    contestants: dict[str, Callable[[], Sampler]] = {}
    claims = []

    def add(work: str, threads: int | None, busy: int) -> str:
        name = condition(work, threads, busy)
        contestants[name] = lambda: Beside(Longer(WORKS[work](threads)), neighbours, busy)
        return name

    for work in WORKS:
        quiet = add(work, None, 0)
        own = [add(work, threads, 0) for threads in (1, *(numbers if work == "PPO CartPole" else []))]
        claims += [ratio(quiet, name, at_least=0.95) for name in own]
        for busy in sorted({1, max(cores - 1, 1)}):
            beside, alone = add(work, None, busy), add(work, 1, busy)
            claims.append(ratio(beside, alone, at_least=1.0 if cores > 1 else None))
            claims.append(ratio(beside, quiet))
    return Comparison(unit=STEPS, contestants=contestants, claims=claims)
