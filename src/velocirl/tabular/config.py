"""Settings of tabular algorithms: meanings, defaults and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import Any, ClassVar, Literal

from velocirl.engine.random import require_seed
from velocirl.scale.launching import LaunchError, launch_of, let_first_speak
from velocirl.training.settings.config import require, require_whole
from velocirl.training.settings.scheduled import Range, check_schedules


def chosen_runtime(runtime: str) -> str:
    """Resolve runtime="auto": "mpi" if mpirun or srun started several processes, else "serial"."""
    if runtime != "auto":
        return runtime
    launch = launch_of(runtime)
    if launch.runtime == "torch":
        let_first_speak()
        raise LaunchError(
            f"tables learn together on MPI, and {launch.launcher} has started {launch.size} processes: start them with"
            ' mpirun, or give runtime="serial" to let each train by itself'
        )
    return "mpi" if launch.size > 1 else "serial"


@dataclass(frozen=True)
class TableConfig:
    """Settings of all tabular algorithms. An environment's preset overrides the defaults."""

    scheduled: ClassVar[Mapping[str, Range]] = {
        "learning_rate": Range(least=0.0, most=1.0),
        "exploration_rate": Range(least=0.0),
    }
    num_envs: int | None = None
    """Copies that learn side by side; 64 of a compiled environment (128 a thread, 65,536 on a GPU), else 1 a worker."""
    learning_rate: float = 0.1
    """How far a value moves towards its target, or a schedule of it: a name, points of progress (0:0.5,1:0.01) or, in
    Python, a function of the remaining progress."""
    learning_rate_schedule: str = "constant"
    """How it changes over training: constant, linear, exponential, two_phase, and those of the networks."""
    gamma: float = 0.99
    """Discount of later rewards."""
    exploration: Literal["epsilon_greedy", "softmax", "ucb"] = "epsilon_greedy"
    """How actions are chosen in training."""
    exploration_rate: float = 1.0
    """At first: the probability of a random action, the temperature of the softmax, or the weight of what is unsure.
    Or a schedule of it, as of learning_rate."""
    exploration_schedule: str = "linear(end=0.05)"
    """How that changes over training."""
    initial_value: float = 0.0
    """Of every action; a high one makes an agent try them all."""
    storage: Literal["auto", "dense", "sparse"] = "auto"
    """A row for every state, or for every state that was met; auto is dense up to 256 MiB."""
    dtype: Literal["float32", "float64"] = "float32"
    """Of the values."""
    runtime: Literal["auto", "serial", "threads", "processes", "mpi", "mpi-async", "cuda"] = "auto"
    """What runs the copies: one core, threads or processes that share a table, MPI ranks, or a GPU. auto is mpi where
    mpirun or srun has started several processes, recognised by their environment variables, else serial."""
    workers: int | None = None
    """Threads or processes; as many as there are cores unless given."""
    pin: bool = False
    """Keep each thread or process on a core of its own."""
    steps_per_sync: int = 100_000
    """With MPI, the steps of each rank from one exchange to the next."""
    params: dict[str, Any] | None = None
    """Parameters of the environment to change: numbers, one for each copy as [5, 15], or drawn anew for each copy and
    episode as uniform(5, 15) or log_uniform(0.1, 10). Of a gym: environment, any keyword arguments."""
    scenario: str | None = None
    """Scenario in which a native environment is operated: parameters of it by a name, of which `params` replace
    some."""
    seed: int | None = None
    """Seed of all random numbers. Drawn at random if not given."""
    check: bool = False
    """Test every index of the environment's functions, and every division of whole numbers: a wrong one is named with
    its line, copy and step. Slower; for environments that are compiled, on the CPU."""

    def __post_init__(self) -> None:
        require_whole(self, 1, 2**24, "num_envs")
        require_whole(self, 1, 1024, "workers")
        require_whole(self, 1, 2**62, "steps_per_sync")
        require(0 < self.learning_rate <= 1, "learning_rate", self.learning_rate, "above 0 and at most 1")
        require(0 <= self.gamma <= 1, "gamma", self.gamma, "from 0 to 1")
        require(abs(self.initial_value) < inf, "initial_value", self.initial_value, "finite")
        self._check_exploration()
        if self.seed is not None:
            require_seed(self.seed)
        for name in ("workers", "pin"):
            if getattr(self, name) and self.runtime not in ("threads", "processes"):
                raise ValueError(f'{name} is for runtime="threads" or "processes", not "{self.runtime}"')
        if self.check and self.runtime in ("processes", "cuda"):
            raise ValueError(f'check is for runtime="serial" or "threads", not "{self.runtime}"')
        check_schedules(self)

    def _check_exploration(self) -> None:
        rate = self.exploration_rate
        if self.exploration == "epsilon_greedy":
            require(0 <= rate <= 1, "exploration_rate", rate, "from 0 to 1, as it is a probability")
        elif self.exploration == "softmax":
            require(0 < rate < inf, "exploration_rate", rate, "above 0, as it is a temperature")
        else:
            require(0 <= rate < inf, "exploration_rate", rate, "at least 0")


@dataclass(frozen=True)
class TabularConfig(TableConfig):
    """Settings of algorithms with one-step or n-step updates."""

    n_step: int = 1
    """Steps whose rewards are counted before the table's own estimate follows."""

    def __post_init__(self) -> None:
        super().__post_init__()
        require(1 <= self.n_step <= 1000, "n_step", self.n_step, "from 1 to 1000")
