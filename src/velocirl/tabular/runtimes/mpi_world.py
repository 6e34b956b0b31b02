"""The ranks of an MPI job: how they begin alike, who is heard, and how they all end where one fails."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from velocirl.training.agent import Agent, Goal, algorithm_from
from velocirl.training.settings.config import as_plain

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from velocirl.tabular.agent import TabularAgent

RUNTIMES = ("mpi", "mpi-async")
# Of Open MPI, unless somebody sets them: not to complain where there is no InfiniBand, and to let others compute while
# a rank waits.
SETTINGS = {"opal_common_ucx_verbose": "-1", "mpi_yield_when_idle": "1"}
LAUNCHED = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "MV2_COMM_WORLD_SIZE")  # what launchers tell processes


def world() -> Intracomm:
    """All ranks of this job; without mpirun, one."""
    for name, value in SETTINGS.items():
        os.environ.setdefault(f"OMPI_MCA_{name}", value)
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:  # the latter where there is mpi4py, but no MPI
        raise ValueError(f'MPI needs mpi4py and an MPI library: pip install "velocirl[mpi]" ({error})') from error
    return MPI.COMM_WORLD


def has_ranks(agent: Agent) -> bool:
    """Whether several ranks may be training this agent together."""
    return getattr(agent.config, "runtime", None) in RUNTIMES


def follows(agent: Agent) -> bool:
    """Whether this is one of several ranks and not the first, which has the run, the callbacks and the last word."""
    return has_ranks(agent) and world().rank > 0


def launched() -> bool:
    """Whether mpirun, or a launcher that does as it does, has started this process, and it can know of the others."""
    return any(name in os.environ for name in LAUNCHED) and find_spec("mpi4py") is not None


def is_follower() -> bool:
    """Whether this process was launched as a rank that is not the first."""
    return launched() and world().rank > 0


@contextmanager
def calling() -> Iterator[Callable[[dict[str, Any]], None]]:
    """For what the first rank decides alone: gives a function that calls the others, with what they must know.

    They wait in `called`, which says None to them if they were not.
    """
    document: dict[str, Any] | None = None

    def call(given: dict[str, Any]) -> None:
        nonlocal document
        document = given
        world().bcast(given)

    yield call
    if document is None and launched():
        world().bcast(None)


def called() -> dict[str, Any] | None:
    """What the first rank says to those that wait for it."""
    return world().bcast(None)


def call_of(agent: Agent) -> dict[str, Any]:
    """What other ranks must know to train with this one's agent; its table comes when training begins."""
    goal = None if agent.goal is None else (agent.goal.start, agent.goal.total)
    progress = {"steps": agent.steps, "iterations": agent.iterations, "goal": goal}
    return {"algorithm": agent.name, "config": as_plain(agent.config), **progress}


def follower(environment: Any, call: dict[str, Any]) -> Agent:
    """The agent of a rank that was called."""
    agent = algorithm_from(call["algorithm"])(environment, **call["config"])
    agent.steps, agent.iterations = call["steps"], call["iterations"]
    agent.goal = None if call["goal"] is None else Goal(*call["goal"])
    return agent


@contextmanager
def together(agent: TabularAgent, total_steps: int | None) -> Iterator[bool]:
    """Train while this context lasts, all ranks at once; says whether this is the first one, which leads the others.

    The learner of each rank meets the others at the beginning and parts from them at the end. A rank that fails ends
    the whole job, with its traceback: the others would wait for it.
    """
    comm = world()
    meeting: Any = None
    try:
        _begin_alike(agent, total_steps, comm)
        agent.prepare()
        meeting = agent.learner
        meeting.meet()
        yield comm.rank == 0
    except BaseException as error:
        by_signal = isinstance(error, (KeyboardInterrupt, SystemExit))
        if by_signal and meeting is not None and (meeting.agreed or agent.finished):
            meeting.part()  # every rank knows and has saved what it has to; this one ends as its signal asks
        elif comm.size > 1:
            abort(comm.rank)
        raise
    meeting.part()


def abort(rank: int | None = None, code: int = 1) -> None:
    """End all ranks, where there are several; with a rank, the exception at hand is told as its own."""
    comm = world()
    if rank is not None:
        lines = "".join(traceback.format_exc())
        print(f"rank {rank} of {comm.size} failed, which ends the others:\n{lines}", file=sys.stderr, flush=True)
    if comm.size == 1:
        return
    sys.stdout.flush()
    comm.Abort(code)


def _begin_alike(agent: TabularAgent, total_steps: int | None, comm: Intracomm) -> None:
    """The seed, steps and goal of the first rank become those of all; other settings must be the same already."""
    goal = None if agent.goal is None else (agent.goal.start, agent.goal.total)
    own = {"seed": agent.seed, "steps": agent.steps, "iterations": agent.iterations, "goal": goal}
    settings = {"algorithm": agent.name, "environment": agent.source.id, "total_steps": total_steps}
    settings |= {name: value for name, value in as_plain(agent.config).items() if name != "seed"}
    first, wanted = comm.bcast((own, settings))
    for name, value in wanted.items():
        if settings[name] != value:
            raise ValueError(
                f"rank {comm.rank} has {name}={settings[name]!r} and rank 0 {value!r}: all ranks train the same agent"
            )
    agent.config = replace(agent.config, seed=first["seed"])
    agent.steps, agent.iterations = first["steps"], first["iterations"]
    agent.goal = None if first["goal"] is None else Goal(*first["goal"])
