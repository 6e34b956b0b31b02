"""MPI exchange of table deltas and episode statistics."""

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

FIGURES = 4  # numbers that a rank sends of its rounds, before its episodes
BLOCK = 1 << 22  # values summed at a time, so that a large table needs little extra memory


def share_table(comm: Intracomm, replica: Replica) -> None:
    """Broadcast the table of rank 0."""
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
    """Merge what moved on all ranks; `counts` has the number of changed values of each rank.

    If much of a dense table has moved, all its values are summed. Otherwise the ranks exchange lists of changes.
    Summing takes less time per value (tools/mpi_scaling.py measures both).
    """
    table = replica.table
    if not table.sparse and 2 * int(counts.sum()) > table.states * table.actions:
        sum_up(comm, replica)
    elif table.sparse:
        list_changes(comm, replica, changes.list, counts)
    else:
        share_out(comm, replica, changes)


def share_out(comm: Intracomm, replica: Replica, changes: Changes) -> None:
    """Send the changes of each row to its owner, who merges them and sends the result to all ranks."""
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
    """Gather the changes of all ranks, `counts` on each, and merge them."""
    gathered = replica.room(int(counts.sum()))
    kind = _bytes_of(changes.dtype)
    comm.Allgatherv([changes, len(changes), kind], [gathered, _spans(counts), kind])
    kind.Free()
    replica.merge(gathered)


class Said(NamedTuple):
    """Round statistics of all ranks."""

    outcome: Outcome  # combined over all ranks
    changes: NDArray[np.int64]  # number of changed values per rank
    stop: int  # the highest stop code of all ranks


def say(comm: Intracomm, outcome: Outcome, changes: int, stop: int, report: Sequence[str] = ()) -> Said:
    """Gather the statistics of all ranks' rounds, in one small message.

    Each rank sends its last episodes with the environment's reported fields. Together they are as many as metrics
    average over.
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
    """Sum how far all values of a dense table moved on all ranks, some rows at a time."""
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
    """Return counts and offsets of adjacent parts, as MPI expects them."""
    return counts.tolist(), (np.cumsum(counts) - counts).tolist()


def _bytes_of(record: np.dtype[Any]) -> Any:
    """Return the record as an MPI type, so that counts of large tables stay small."""
    from mpi4py import MPI

    return MPI.BYTE.Create_contiguous(record.itemsize).Commit()
