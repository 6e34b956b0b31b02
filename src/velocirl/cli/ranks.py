"""Commands under mpirun, srun and torchrun: rank 0 prints, and broadcasts the settings to the other ranks."""

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
    """Return whether an agent with these settings would be trained by several processes."""
    runtime = values.get("runtime", algorithm.Config.runtime)
    if runtime in RUNTIMES and not hasattr(algorithm, "one_rank_only"):  # tabular agents raise their own error
        return True
    return runtime in ("auto", "mpi", "torch") and launch_of(runtime).size > 1


def is_follower() -> bool:
    """Return whether this process was launched as a rank other than 0."""
    ranks = _launched()
    return ranks is not None and ranks.rank > 0


@contextmanager
def calling() -> Iterator[Callable[[dict[str, Any]], None]]:
    """Yield a function that broadcasts a document from rank 0 to the other ranks, which wait in `called`.

    If it was not called when the context ends, `called` returns None on them.
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
    """Receive the document that rank 0 broadcasts; None if there is none."""
    ranks = _launched()
    return (json.loads(ranks.broadcast(None)) or None) if ranks is not None else None


def call_of(agent: Agent) -> dict[str, Any]:
    """Return what other ranks need to train with this agent; its learned state is synced when training begins."""
    goal = None if agent.goal is None else [agent.goal.start, agent.goal.total]
    progress = {"steps": agent.steps, "iterations": agent.iterations, "goal": goal}
    return {"algorithm": agent.name, "config": as_plain(agent.config), **progress}


def follower(environment: Any, call: dict[str, Any]) -> Agent:
    """Build the agent of another rank from the document."""
    agent = algorithm_from(call["algorithm"])(environment, **call["config"])
    agent.steps, agent.iterations = call["steps"], call["iterations"]
    agent.goal = None if call["goal"] is None else Goal(*call["goal"])
    return agent


def end_others(code: int) -> None:
    """Abort the other ranks before a process that uses MPI exits with an error, as they would wait for it."""
    ranks = MPIRanks()
    if ranks.size > 1:
        ranks.abort(code)


def _launched() -> Ranks | None:
    launch = launch_of("auto")
    return None if launch.size == 1 or find_spec(NEEDS[launch.runtime]) is None else ranks_of(launch)
