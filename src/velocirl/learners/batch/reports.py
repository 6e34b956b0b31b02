"""What came of an iteration: gathered on the device, one row for each agent, and read on the host once it is there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.learners.batch.networks import COUNTS, FAULT, MINIBATCHES, BatchNetworks
from velocirl.learners.batch.program import BatchProgram
from velocirl.learners.faults import check_update, fault_of_rollout
from velocirl.learners.learner import Report, explained_variance
from velocirl.learners.recording import FAULT_KINDS, Log

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
        recent, self._report, self._reported = networks.task.recent, networks.task.report, reported
        self._networks, self._program, self._log, self._spread = networks, program, log, spread
        self._device, self._agents, self._samples = networks.device, networks.agents, samples
        self._first = networks.learnt[networks.first_trained]
        self._copies = log.ends.shape[2]
        self._recent = min(recent, log.ends.shape[1] * log.ends.shape[2])
        sums = program.sums
        self._sizes = (
            COUNTS, 2, 1, sums.totals.shape[1], sums.seen.shape[1], 0 if spread is None else SPREAD, 1, 1,
            1, *[self._recent] * (3 + len(self._report)),
        )  # fmt: skip
        width, self._none = sum(self._sizes), self._device.zeros(self._agents, 1)
        self._numbers = self._device.zeros(self._agents, width, dtype=np.float64)
        self._hosts = self._device.make_hosts(self._agents, width)

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
            ends,
            device.take(log.returns.reshape(self._agents, -1), places),
            device.take(log.lengths.reshape(self._agents, -1), places),
            *(device.take(self._reported[k].reshape(self._agents, -1), places) for k in range(len(self._report))),
        ]
        device.join(parts, self._numbers)

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
        return [self._read_row(pending, row) for row in self._device.on_host().fetch(pending.numbers)]

    def _read_row(self, pending: Pending, row: NDArray[np.float64]) -> Report:
        parts = np.split(row, np.cumsum(self._sizes)[:-1])
        counts, norms, steps, totals, seen, spread, fault, check, violations, ends, returns, lengths, *reported = parts
        if fault[0] < NO_FAULT:
            code, copy = divmod(int(fault[0]), self._copies)
            t, kind = divmod(code - 1, FAULT_KINDS)
            raise fault_of_rollout(kind, copy, t, pending.first, self._copies)
        check_update(bool(counts[FAULT]), check, pending.steps)
        order = np.flatnonzero(ends >= 0)[::-1]  # the last ends came first
        return Report(
            steps=pending.steps,
            learning_rate=pending.learning_rate,
            means=self._program.means_of(totals, seen),
            gradient_norm=float(norms[0] / max(norms[1], 1.0)),
            minibatches=int(counts[MINIBATCHES]),
            optimiser_steps=int(steps[0]),
            explained_variance=explained_variance(spread, self._samples) if len(spread) else float("nan"),
            returns=returns[order].tolist(),
            lengths=lengths[order].astype(int).tolist(),
            violations=int(violations[0]),
            reported={name: values[order].tolist() for name, values in zip(self._report, reported, strict=True)},
        )
