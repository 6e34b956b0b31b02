"""The ranks of an MPI job: how they begin alike, who is heard, and how they all end where one fails."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from velocirl.scale.mpi import world
from velocirl.training.persistence import Goal
from velocirl.training.settings.config import as_plain

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

    from velocirl.tabular.agent import TabularAgent

RUNTIMES = ("mpi", "mpi-async")


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
