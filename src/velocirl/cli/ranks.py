"""Commands under mpirun, srun and torchrun: who speaks, and what the first rank tells those that wait for it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from velocirl.engine.disk.writing import strict_json
from velocirl.scale.launching import launch_of
from velocirl.scale.mpi import MPIRanks
from velocirl.scale.ranks import Ranks, ranks_of
from velocirl.tabular.runtimes.mpi_world import RUNTIMES
from velocirl.training.agent import Agent
from velocirl.training.persistence import Goal, algorithm_from
from velocirl.training.settings.config import as_plain

NEEDS = {"mpi": "mpi4py", "torch": "torch"}


def several_ranks(values: dict[str, Any], algorithm: type[Agent]) -> bool:
    """Whether an agent with these settings would be trained by several processes."""
    runtime = values.get("runtime", algorithm.Config.runtime)
    if runtime in RUNTIMES and not hasattr(algorithm, "one_rank_only"):  # tables say so themselves
        return True
    return runtime in ("auto", "mpi", "torch") and launch_of(runtime).size > 1


def is_follower() -> bool:
    """Whether this process was launched as a rank that is not the first."""
    ranks = _launched()
    return ranks is not None and ranks.rank > 0


@contextmanager
def calling() -> Iterator[Callable[[dict[str, Any]], None]]:
    """For what the first rank decides alone: gives a function that calls the others, with what they must know.

    They wait in `called`, which says None to them if they were not.
    """
    ranks, is_called = _launched(), False

    def call(document: dict[str, Any]) -> None:
        nonlocal is_called
        if ranks is not None:
            is_called = True
            ranks.broadcast(strict_json(document).encode())

    yield call
    if not is_called and ranks is not None:
        ranks.broadcast(b"{}")


def called() -> dict[str, Any] | None:
    """What the first rank says to those that wait for it."""
    ranks = _launched()
    return (json.loads(ranks.broadcast(None)) or None) if ranks is not None else None


def call_of(agent: Agent) -> dict[str, Any]:
    """What other ranks must know to train with this one's agent; what it has learnt comes when training begins."""
    goal = None if agent.goal is None else [agent.goal.start, agent.goal.total]
    progress = {"steps": agent.steps, "iterations": agent.iterations, "goal": goal}
    return {"algorithm": agent.name, "config": as_plain(agent.config), **progress}


def follower(environment: Any, call: dict[str, Any]) -> Agent:
    """The agent of a rank that was called."""
    agent = algorithm_from(call["algorithm"])(environment, **call["config"])
    agent.steps, agent.iterations = call["steps"], call["iterations"]
    agent.goal = None if call["goal"] is None else Goal(*call["goal"])
    return agent


def end_others(code: int) -> None:
    """Before a process that knows of MPI exits with an error: other ranks would wait for it."""
    ranks = MPIRanks()
    if ranks.size > 1:
        ranks.abort(code)


def _launched() -> Ranks | None:
    launch = launch_of("auto")
    return None if launch.size == 1 or find_spec(NEEDS[launch.runtime]) is None else ranks_of(launch)
