"""What ranks tell each other when they meet: what moved in their tables, and how their episodes ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.program.counting.recent import RECENT
from velocirl.tabular.learner import Outcome
from velocirl.tabular.tables.merging import Changes, Replica

if TYPE_CHECKING:
    from mpi4py.MPI import Intracomm

FIGURES = 4  # that a rank tells of its rounds, before its episodes
BLOCK = 1 << 22  # values that are summed up at a time, so that a large table needs little memory besides


def share_table(comm: Intracomm, replica: Replica) -> None:
    """The table of the first rank becomes that of all."""
    table = replica.table
    count = comm.bcast(len(table))
    rows = table.arrays.rows[:count] if comm.rank == 0 else np.empty(count, table.row)
    kind = _bytes_of(table.row)
    comm.Bcast([rows, count, kind])
    kind.Free()
    if comm.rank == 0:
        replica.agree()
    else:
        replica.take(rows)


def exchange(comm: Intracomm, replica: Replica, changes: Changes, counts: NDArray[np.int64]) -> None:
    """Merge what moved on all ranks, so many values on each.

    Of a dense table of which much has moved, everything is summed up; else ranks tell each other what has moved.
    The former takes less for each value (tools/mpi_scaling.py measures both).
    """
    table = replica.table
    if not table.sparse and 2 * int(counts.sum()) > table.states * table.actions:
        sum_up(comm, replica)
    elif table.sparse:
        list_changes(comm, replica, changes.list, counts)
    else:
        share_out(comm, replica, changes)


def share_out(comm: Intracomm, replica: Replica, changes: Changes) -> None:
    """Tell the owner of each row what moved in it on this rank; the owner tells all what came of it."""
    received = np.empty_like(changes.counts)
    comm.Alltoall(changes.counts, received)
    kind = _bytes_of(changes.list.dtype)
    own = replica.room(int(received.sum()))
    comm.Alltoallv([changes.list, _spans(changes.counts), kind], [own, _spans(received), kind])
    outcomes = replica.merge_owned(own, received)
    counts = np.empty_like(received)
    comm.Allgather(np.array([len(outcomes)]), counts)
    gathered = replica.room(int(counts.sum()))
    comm.Allgatherv([outcomes, len(outcomes), kind], [gathered, _spans(counts), kind])
    kind.Free()
    replica.take_outcomes(gathered)


def list_changes(comm: Intracomm, replica: Replica, changes: NDArray[Any], counts: NDArray[np.int64]) -> None:
    """Tell all ranks what moved on this one, so many values on each, and merge what moved on all."""
    gathered = replica.room(int(counts.sum()))
    kind = _bytes_of(changes.dtype)
    comm.Allgatherv([changes, len(changes), kind], [gathered, _spans(counts), kind])
    kind.Free()
    replica.merge(gathered)


class Said(NamedTuple):
    """What the ranks have said when they met."""

    outcome: Outcome  # of all ranks
    changes: NDArray[np.int64]  # how many values have moved on each
    stop: int  # the highest of what they said of stopping


def say(comm: Intracomm, outcome: Outcome, changes: int, stop: int, report: Sequence[str] = ()) -> Said:
    """Tell all ranks what came of this one's rounds, in one small message, and hear what came of theirs.

    Of the episodes the last ones of each rank are told, as many in all as are averaged over, with what the environment
    reports of them.
    """
    width = 2 + len(report)
    kept = -(-RECENT // comm.size)
    own = np.full(FIGURES + width * kept, np.nan)
    own[:FIGURES] = outcome.steps, outcome.error * outcome.steps, changes, stop
    episodes = own[FIGURES:].reshape(kept, width)
    told = outcome.returns, outcome.lengths, *(outcome.reported.get(name, []) for name in report)
    last = list(zip(*told, strict=True))[-kept:]
    episodes[: len(last)] = np.reshape(last, (-1, width))
    said = np.empty((comm.size, len(own)))
    comm.Allgather(own, said)
    steps, errors, moved, stops = said[:, :FIGURES].T
    ended = said[:, FIGURES:].reshape(-1, width)
    ended = ended[~np.isnan(ended[:, 1])]
    total = int(steps.sum())
    lengths = ended[:, 1].astype(np.int64).tolist()
    reported = dict(zip(report, ended[:, 2:].T.tolist(), strict=True))
    outcome = Outcome(total, float(errors.sum()) / max(total, 1), ended[:, 0].tolist(), lengths, reported)
    return Said(outcome, moved.astype(np.int64), int(stops.max()))


def sum_up(comm: Intracomm, replica: Replica) -> None:
    """Sum up how far all values of a dense table moved on all ranks, some rows at a time."""
    from mpi4py import MPI

    table = replica.table
    rows = max(1, BLOCK // (table.sets * table.actions))
    for first in range(0, table.states, rows):
        moved, visits = replica.totals(first, min(first + rows, table.states))
        comm.Allreduce(MPI.IN_PLACE, moved)
        comm.Allreduce(MPI.IN_PLACE, visits)
        replica.settle(first, moved, visits)
    replica.agree()


def _spans(counts: NDArray[np.int64]) -> tuple[list[int], list[int]]:
    """Parts of so many records, one after the other, as MPI wants to know them."""
    return counts.tolist(), (np.cumsum(counts) - counts).tolist()


def _bytes_of(record: np.dtype[Any]) -> Any:
    """A record as MPI's own type, so that counts of large tables stay small."""
    from mpi4py import MPI

    return MPI.BYTE.Create_contiguous(record.itemsize).Commit()
