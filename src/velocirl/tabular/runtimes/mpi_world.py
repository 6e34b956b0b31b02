"""Ranks of an MPI job: equal start, output by rank 0, and abort if one fails."""

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
    """Train within this context, on all ranks at once. Yields whether this is rank 0, which leads the others.

    The learner of each rank synchronizes with the others at the beginning and at the end. A rank that fails aborts the
    whole job, with its traceback: the others would wait for it forever.
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
            meeting.part()  # every rank is informed and has saved its data; this one ends as its signal asks
        elif comm.size > 1:
            abort(comm.rank)
        raise
    meeting.part()


def abort(rank: int | None = None, code: int = 1) -> None:
    """End all ranks, if there are several; with `rank`, print the current exception as that rank's."""
    comm = world()
    if rank is not None:
        lines = "".join(traceback.format_exc())
        print(f"rank {rank} of {comm.size} failed, which ends the others:\n{lines}", file=sys.stderr, flush=True)
    if comm.size == 1:
        return
    sys.stdout.flush()
    comm.Abort(code)


def _begin_alike(agent: TabularAgent, total_steps: int | None, comm: Intracomm) -> None:
    """Broadcast seed, progress and goal from rank 0; other settings must already match."""
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
