"""What came of an iteration: gathered on the device, one row for each agent, and read on the host once it is there.

Where several processes train one agent there is a row for each of them, and all have all rows.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.batch.networks import COUNTS, FAULT, MINIBATCHES, BatchNetworks
from velocirl.learners.batch.program import BatchProgram
from velocirl.learners.faults import check_update, fault_of_rollout
from velocirl.learners.learner import Report, explained_variance
from velocirl.learners.reducing import ALONE, shares_of
from velocirl.learners.rows.recording import FAULT_KINDS, Log

NO_FAULT = 2**62
SPREAD = 4  # sums from which the explained variance follows


class Pending(NamedTuple):
    """An iteration that was started."""

    steps: int  # of the run, after it
    first: int  # of the run, before it
    learning_rate: float
    numbers: Any  # its report on the host, once the last mark has come
    marks: tuple[Any, ...]  # moments of it, the last one after the report


class Reports:
    """Gathers and reads them."""

    def __init__(
        self, networks: BatchNetworks, program: BatchProgram, log: Log, reported: Any, spread: Any, samples: int
    ) -> None:
        task, (_, steps, copies) = networks.task, log.ends.shape
        self._task, self._report, self._reported = task, task.report, reported
        self._networks, self._program, self._log, self._spread = networks, program, log, spread
        self._device, self._agents, self._samples = networks.device, networks.agents, samples
        self._first = networks.learnt[networks.first_trained]
        several = task.reducer is not ALONE  # one may be all there is of a job
        if not several:
            self._shares = [(0, copies)]
        elif task.recorded is not None:  # nothing is stepped
            self._shares = [(rank, rank + 1) for rank in range(task.reducer.size)]
        else:
            self._shares = shares_of(task.config.num_envs, task.reducer.size)
        most = max(stop - first for first, stop in self._shares)
        self._recent, room = min(task.recent, steps * copies), min(task.recent, steps * most)
        sums = program.sums
        self._sizes = (
            COUNTS, 2, 1, sums.totals.shape[1], sums.seen.shape[1], 0 if spread is None else SPREAD, 1, 1,
            1, *[room] * (3 + len(self._report)),
        )  # fmt: skip
        rows, width = max(self._agents, len(self._shares)), sum(self._sizes)
        self._none, self._rest = self._device.zeros(self._agents, 1), self._device.zeros(1, room - self._recent)
        self._numbers = self._device.zeros(rows, width, dtype=np.float64)
        self._own = self._numbers[task.reducer.rank :][:1] if several else self._numbers
        self._hosts = self._device.make_hosts(rows, width)

    def gather(self) -> None:
        """Gather the numbers of an iteration."""
        device, log, sums, networks = self._device, self._log, self._program.sums, self._networks
        ends, places = device.latest(log.ends.reshape(self._agents, -1), self._recent)
        learnt = [one.parameters.reshape(self._agents, -1) for one in networks.learnt.values()]
        totals = [device.total(one) for one in (*learnt, networks.numbers)]
        check = totals[0]
        for more in totals[1:]:
            check = check + more
        parts = [
            networks.clock.counts,
            self._first.norms,
            self._first.steps.reshape(self._agents, 1),
            sums.totals,
            sums.seen,
            *([] if self._spread is None else [self._spread]),
            device.first_fault(log.fault.reshape(self._agents, -1), NO_FAULT),
            check,
            self._violations(),
        ]
        logs = [log.returns, log.lengths, *(self._reported[k] for k in range(len(self._report)))]
        for latest in (ends + 1, *(device.take(one.reshape(self._agents, -1), places) for one in logs)):
            parts += [latest] if self._rest.shape[1] == 0 else [latest, self._rest]
        if self._own is self._numbers:
            device.join(parts, self._numbers)
        else:
            device.fill(self._numbers, 0.0)
            device.join(parts, self._own)
            networks.reduce(self._numbers)

    def _violations(self) -> Any:
        """How many constraints were violated, (agents, 1); the rows before tell of episodes."""
        if len(self._reported) == len(self._report):
            return self._none
        return self._device.total(self._reported[-1].reshape(self._agents, -1))

    def send(self) -> Any:
        """Begin to copy what was gathered to the host; gives where it will be."""
        self._hosts.reverse()
        return self._device.send(self._numbers, self._hosts[0])

    def read(self, pending: Pending) -> list[Report]:
        """The reports of an iteration that is done; raises where a number was not one."""
        rows, processes = self._device.on_host().fetch(pending.numbers), len(self._shares)
        return [self._read_rows(pending, rows[k : k + processes]) for k in range(0, len(rows), processes)]

    def _read_rows(self, pending: Pending, rows: NDArray[np.float64]) -> Report:
        """The report of one agent, from the row of each process that trains it."""
        parts = np.split(rows, np.cumsum(self._sizes)[:-1], axis=1)
        counts, norms, steps, _, _, spread, _, check, *_ = (part[0] for part in parts)  # the same of all processes
        _, _, _, totals, seen, _, faults, _, violations, ends, *logs = parts
        self._check_faults(faults[:, 0], pending.first)
        check_update(bool(counts[FAULT]), check, pending.steps)
        places, copies = np.full(ends.shape, -1.0), self._shares[-1][1]  # in the order of their ends
        for own, end, (first, stop) in zip(places, ends - 1, self._shares, strict=True):
            t, copy = np.divmod(end, stop - first)
            own[:] = np.where(end < 0, -1, t * copies + first + copy)
        order = np.argsort(places, axis=None)[(places < 0).sum() :][-self._task.recent :]
        returns, lengths, *reported = (log.reshape(-1)[order] for log in logs)
        return Report(
            steps=pending.steps,
            learning_rate=pending.learning_rate,
            means=self._program.means_of(totals.sum(0), seen.sum(0)),
            gradient_norm=float(norms[0] / max(norms[1], 1.0)),
            minibatches=int(counts[MINIBATCHES]),
            optimiser_steps=int(steps[0]),
            explained_variance=explained_variance(spread, self._samples) if len(spread) else float("nan"),
            returns=returns.tolist(),
            lengths=lengths.astype(int).tolist(),
            violations=int(violations.sum()),
            reported={name: values.tolist() for name, values in zip(self._report, reported, strict=True)},
        )

    def _check_faults(self, faults: NDArray[np.float64], steps: int) -> None:
        """Raise for the first number that was not one, of the first process that has one."""
        for fault, (first, stop) in zip(faults, self._shares, strict=True):
            if fault < NO_FAULT:
                code, copy = divmod(int(fault), stop - first)
                t, kind = divmod(code - 1, FAULT_KINDS)
                raise fault_of_rollout(kind, first + copy, t, steps, self._shares[-1][1])
