"""Reports of iterations: gathered on the device, one row per agent, and read on the host once they have arrived.

If several processes train one agent, there is one row per process, and every process has all rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.program.clock import COUNTS, FAULT, MINIBATCHES
from velocirl.program.faults import check_faults, check_update, fault_of_rollout
from velocirl.program.reducing import ALONE, shares_of
from velocirl.program.rows.recording import FAULT_KINDS, Log

NO_FAULT = 2**62
SPREAD = 4  # number of sums for the explained variance


@dataclass(frozen=True)
class Report:
    """Result of one iteration."""

    steps: int  # of the run, after the iteration
    learning_rate: float
    means: Any  # of metrics by name, over all rows seen
    gradient_norm: float  # mean over the optimizer steps
    minibatches: int
    optimiser_steps: int  # of the whole run
    explained_variance: float  # of the targets, by the critic
    returns: list[float]  # of the last episodes, in the order of their ends
    lengths: list[int]
    reported: Mapping[str, list[float]] = field(default_factory=dict)  # values reported of these
    violations: int = 0  # of constraints, in the steps of the iteration


class Pending(NamedTuple):
    """Iteration that was started."""

    steps: int  # of the run, after it
    first: int  # of the run, before it
    learning_rate: float
    numbers: Any  # its report on the host, once the last mark has come
    marks: tuple[Any, ...]  # time marks; the last one follows the report


class Reports:
    """Gathering and reading of reports."""

    def __init__(self, networks: Any, program: Any, log: Log, reported: Any, spread: Any, samples: int) -> None:
        """Allocate a report's columns.

        `spread` has the sums for the explained variance, over `samples`; None without a critic.
        """
        task, (_, steps, copies) = networks.task, log.ends.shape
        self._task, self._report, self._reported = task, task.report, reported
        self._networks, self._program, self._log, self._spread = networks, program, log, spread
        self._device, self._agents, self._samples = networks.device, networks.agents, samples
        several = task.reducer is not ALONE  # a job may have a single process, too
        if not several:
            self._shares = [(0, copies)]
        elif task.recorded is not None:  # offline: no environments
            self._shares = [(rank, rank + 1) for rank in range(task.reducer.size)]
        else:
            self._shares = shares_of(task.config.num_envs, task.reducer.size)
        most = max(stop - first for first, stop in self._shares)
        self._recent, room = min(task.recent, steps * copies), min(task.recent, steps * most)
        totals, seen = program.summed()
        sizes = (
            COUNTS, 2, 1, totals.shape[1], seen.shape[1], 0 if spread is None else SPREAD, 1, 1,
            1, *[room] * (3 + len(self._report)),
        )  # fmt: skip
        stops = np.cumsum(sizes).tolist()
        self._columns = [slice(stop - size, stop) for size, stop in zip(sizes, stops, strict=True)]
        rows, width = max(self._agents, len(self._shares)), stops[-1]
        self._none, self._rest = self._device.zeros(self._agents, 1), self._device.zeros(1, room - self._recent)
        self._numbers = self._device.zeros(rows, width, dtype=np.float64)
        self._own = self._numbers[task.reducer.rank :][:1] if several else self._numbers
        self._hosts = self._device.make_hosts(rows, width)
        # If an iteration is done when it returns, its report is read in place: nothing is gathered or sent.
        self._in_place = not self._device.reports_late and not several and self._agents == 1

    def check_faults(self, first: int) -> None:
        """Raise for the first non-finite value of an iteration that began at step `first`, before it is reported.

        With several ranks, or on a GPU, the report has it.
        """
        if self._in_place:
            check_faults(np.asarray(self._log.fault), first)

    def gather(self) -> None:
        """Gather the numbers of an iteration."""
        if self._in_place:
            return
        device, log, networks = self._device, self._log, self._networks
        ends, places = device.latest(log.ends.reshape(self._agents, -1), self._recent)
        totals = [device.total(one.reshape(self._agents, -1)) for one in networks.trained_parameters]
        check = totals[0]
        for more in totals[1:]:
            check = check + more
        parts = [
            networks.clock.counts,
            networks.first_norms,
            networks.first_steps.reshape(self._agents, 1),
            *self._program.summed(),
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
        """Return the number of constraint violations, shape (agents, 1); earlier rows of `reported` are of episodes."""
        if len(self._reported) == len(self._report):
            return self._none
        return self._device.total(self._reported[-1].reshape(self._agents, -1))

    def send(self) -> Any:
        """Start copying the gathered numbers to the host. Returns their destination."""
        if self._in_place:
            return None
        self._hosts.reverse()
        return self._device.send(self._numbers, self._hosts[0])

    def read(self, pending: Pending) -> list[Report]:
        """Return the reports of a finished iteration; raise if a value was not finite."""
        if self._in_place:
            return [self._read_in_place(pending)]
        rows, processes = self._device.on_host().fetch(pending.numbers), len(self._shares)
        ranges = [rows[k : k + processes] for k in range(0, len(rows), processes)]
        return [self._read_parts(pending, [own[:, columns] for columns in self._columns]) for own in ranges]

    def _read_in_place(self, pending: Pending) -> Report:
        """Return the report of the only agent and process, from the arrays on the host; faults were checked before."""
        log, networks = self._log, self._networks
        counts, norms = np.asarray(networks.clock.counts)[0], np.asarray(networks.first_norms)[0]
        for parameters in networks.trained_parameters:
            check_update(bool(counts[FAULT]), np.asarray(parameters), pending.steps)
        last = np.flatnonzero(np.asarray(log.ends) >= 0)[-self._recent :]
        logs = [log.returns, log.lengths, *(self._reported[k] for k in range(len(self._report)))]
        returns, lengths, *reported = (np.asarray(one).reshape(-1)[last].tolist() for one in logs)
        totals, seen = self._program.summed()
        spread = np.zeros(0) if self._spread is None else np.asarray(self._spread)[0]
        return Report(
            steps=pending.steps,
            learning_rate=pending.learning_rate,
            means=self._program.means_of(totals[0], seen[0]),
            gradient_norm=float(norms[0] / max(norms[1], 1.0)),
            minibatches=int(counts[MINIBATCHES]),
            optimiser_steps=int(networks.first_steps[0]),
            explained_variance=explained_variance(spread, self._samples) if len(spread) else float("nan"),
            returns=returns,
            lengths=lengths,
            violations=int(self._reported[-1].sum()) if len(self._reported) > len(self._report) else 0,
            reported=dict(zip(self._report, reported, strict=True)),
        )

    def _read_parts(self, pending: Pending, parts: list[NDArray[Any]]) -> Report:
        """Return the report of one agent, from parts with a row for each process that trains it."""
        counts, norms, steps, totals, seen, spread, faults, check, violations, ends, *logs = parts
        counts, norms, spread, check = counts[0], norms[0], spread[0], check[0]  # equal in all processes
        self._check_faults(faults[:, 0], pending.first)
        check_update(bool(counts[FAULT]), check, pending.steps)
        order = self._order(ends)
        returns, lengths, *reported = (log.reshape(-1)[order] for log in logs)
        return Report(
            steps=pending.steps,
            learning_rate=pending.learning_rate,
            means=self._program.means_of(totals.sum(0), seen.sum(0)),
            gradient_norm=float(norms[0] / max(norms[1], 1.0)),
            minibatches=int(counts[MINIBATCHES]),
            optimiser_steps=int(steps[0, 0]),
            explained_variance=explained_variance(spread, self._samples) if len(spread) else float("nan"),
            returns=returns.tolist(),
            lengths=lengths.astype(int).tolist(),
            violations=int(violations.sum()),
            reported={name: values.tolist() for name, values in zip(self._report, reported, strict=True)},
        )

    def _order(self, ends: NDArray[np.float64]) -> NDArray[np.int64]:
        """Return the indices of the last episodes, in the order of their ends.

        `ends` are 1 + the index in the iteration, or 0 where there is no episode.
        """
        if len(self._shares) == 1:  # the newest comes first
            return np.arange(np.count_nonzero(ends))[::-1]
        places, copies = np.full(ends.shape, -1.0), self._shares[-1][1]
        for own, end, (first, stop) in zip(places, ends - 1, self._shares, strict=True):
            t, copy = np.divmod(end, stop - first)
            own[:] = np.where(end < 0, -1, t * copies + first + copy)
        return np.argsort(places, axis=None)[(places < 0).sum() :][-self._task.recent :]

    def _check_faults(self, faults: NDArray[np.float64], steps: int) -> None:
        """Raise for the first fault of the first process that has one."""
        for fault, (first, stop) in zip(faults, self._shares, strict=True):
            if fault < NO_FAULT:
                code, copy = divmod(int(fault), stop - first)
                t, kind = divmod(code - 1, FAULT_KINDS)
                raise fault_of_rollout(kind, first + copy, t, steps, self._shares[-1][1])


def explained_variance(spread: NDArray[np.float64], count: int) -> float:
    """Return the fraction of the targets' variance that the critic explains, from sums over `count` samples.

    The sums are of the targets, their squares, the errors, and their squares.
    """
    targets, squares, errors, squared_errors = spread
    variance = squares / count - (targets / count) ** 2
    unexplained = squared_errors / count - (errors / count) ** 2
    return float(1.0 - unexplained / variance) if variance > 0 else float("nan")
