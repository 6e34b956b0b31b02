"""Tabular learning by threads, processes and MPI ranks, compared with one core."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import shutil
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
from gymnasium.spaces import Discrete

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.processes import run_python
from velocirl.bench.registry import benchmark
from velocirl.bench.samplers import require_cores
from velocirl.bench.scaling import scaling
from velocirl.bench.suite.tables.tabular import GAME, SETTINGS, velocirl_training

STEPS_PER_CALL = 20_000_000  # contains many synchronizations of threads and ranks
LEAST_BY_THREADS, LEAST_BY_PROCESSES, LEAST_BY_RANKS = 1.5, 1.6, 1.6
SLOW, SLOW_SECONDS, SLOW_STEPS = "VelocirlSlowWalk-v0", 20e-6, 4000
MARK = "steps per second of all ranks: "
RANKS_SCRIPT = """
import json, time, velocirl
agent = velocirl.QLearning({game!r}, **{settings!r}, runtime={runtime!r}, steps_per_sync=100_000)
agent.learn({steps} // 50, progress=False)
rates = []
for _ in range(3):
    began = time.perf_counter()
    agent.learn({steps}, progress=False)
    rates.append({steps} / (time.perf_counter() - began))
from mpi4py import MPI
if MPI.COMM_WORLD.rank == 0:
    print({mark!r} + json.dumps(rates))
"""
# Open MPI starts ranks as root, for example in a container, only if both variables allow it. It counts hardware threads
# as cores, as this process does, only if oversubscription is allowed.
JOB = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}


class SlowWalk(gymnasium.Env):
    """Walk along 64 cells; each step keeps Python busy for 20 us."""

    observation_space, action_space = Discrete(64), Discrete(2)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[int, dict[str, Any]]:
        """Start in the middle."""
        super().reset(seed=seed, options=options)
        self.at = 32
        return self.at, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, Any]]:
        """Move left or right, slowly."""
        over = time.perf_counter() + SLOW_SECONDS
        while time.perf_counter() < over:
            pass
        self.at += 1 if action else -1
        return min(self.at, 63), float(self.at == 63), self.at in (0, 63), False, {}


if SLOW not in gymnasium.registry:
    gymnasium.register(SLOW, entry_point=f"{__name__}:SlowWalk", disable_env_checker=True)


def threads_training(threads: int) -> Timed:
    """Time training with `threads` threads, each with the default number of environments."""
    require_cores(threads)
    return velocirl_training(STEPS_PER_CALL, runtime="threads", workers=threads, num_envs=None)


def processes_training(workers: int) -> Timed:
    """Time training with `workers` processes, each with one environment of the slow walk."""
    require_cores(workers)
    agent = velocirl.QLearning(f"gym:{SLOW}", runtime="processes", workers=workers, seed=0)
    steps = SLOW_STEPS * workers
    return Timed(lambda: agent.learn(steps), amount=steps, closing=lambda: agent.learner.close())


def ranks_training(ranks: int, runtime: str = "mpi") -> Counted:
    """Time training with `ranks` MPI ranks.

    Each run of mpirun yields several samples and then ends, because waiting ranks keep their cores busy.
    """
    require_cores(ranks)
    if importlib.util.find_spec("mpi4py") is None:
        raise UnavailableError('mpi4py is not installed (pip install "velocirl[mpi]")')
    samples: list[float] = []

    def sample() -> float:
        if not samples:
            samples.extend(run_ranks(ranks, runtime))
        return samples.pop()

    return Counted(sample)


def run_ranks(ranks: int, runtime: str, steps: int = STEPS_PER_CALL) -> list[float]:
    """Return the total steps per second of all ranks, for several calls of `learn`."""
    places = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    mpirun = shutil.which("mpirun", path=places)
    if mpirun is None:
        raise UnavailableError("there is no mpirun")
    script = RANKS_SCRIPT.format(game=GAME, settings=SETTINGS, runtime=runtime, steps=steps, mark=MARK)
    return rates_in(run_python(script, through=(mpirun, "-n", str(ranks)), environment=JOB))


def rates_in(output: str) -> list[float]:
    """Return the rates printed by rank 0, ignoring all other output of the job."""
    found = re.search(rf"{re.escape(MARK)}(\[[^]]*\])", output)
    if found is None:
        raise RuntimeError(f"the ranks printed no rates:\n{output}")
    return [float(rate) for rate in json.loads(found[1])]


@benchmark(category="scaling")
def q_learning_threads() -> Comparison:
    """Q-learning of TicTacToe by threads that learn into one table.

    128 games for each thread, which takes rounds as it comes to them, learns in a copy of the table and exchanges that
    with the others'; beside the serial runtime.
    """
    serial = {"serial": lambda: velocirl_training(STEPS_PER_CALL)}
    return scaling("thread", threads_training, at_least=LEAST_BY_THREADS, beside=serial)


@benchmark(category="scaling", quick=False)
def q_learning_processes() -> Comparison:
    """Q-learning of a Gymnasium environment whose step takes 20 us of Python, by processes that share a table.

    One copy for each process.
    """
    return scaling("process", processes_training, at_least=LEAST_BY_PROCESSES)


@benchmark(category="scaling", standard=False)
def q_learning_ranks() -> Comparison:
    """Q-learning of TicTacToe by MPI ranks, which bring their tables together every 100,000 steps of each.

    64 games for each rank; the steps of all ranks are counted.
    """
    return scaling("rank", ranks_training, at_least=LEAST_BY_RANKS)


@benchmark(category="scaling", standard=False)
def q_learning_ranks_async() -> Comparison:
    """Q-learning of TicTacToe by MPI ranks that accumulate into one table and wait for nobody.

    The asynchronous runtime, `mpi-async`; each rank reads and writes the table every 100,000 of its steps. 64 games for
    each rank; the steps of all ranks are counted.
    """
    return scaling("rank", partial(ranks_training, runtime="mpi-async"))
