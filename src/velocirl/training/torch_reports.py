"""What came of an iteration: gathered on the device, one row for each agent, and read on the host once it is there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from velocirl.learners.faults import check_update, fault_of_rollout
from velocirl.learners.learner import Report, explained_variance
from velocirl.training.mapped_collecting import FAULT_KINDS
from velocirl.training.mapped_updating import (
    COUNTS,
    FAULT,
    MINIBATCHES,
    NORMS,
    NUMBERS,
    SAMPLES,
    STEPS,
    TAKEN,
)  # fmt: skip
from velocirl.training.torch_collectors import Records
from velocirl.training.torch_device import Device
from velocirl.training.torch_learner import SPREAD, TorchLearner
from velocirl.training.updating import METRICS

NO_FAULT = 2**62


class Pending(NamedTuple):
    """An iteration that was started."""

    steps: int
    learning_rate: float
    numbers: torch.Tensor  # its report on the host, once the last event has come
    events: tuple[Any, ...]  # before the rollout, before the update, after the report


class Reports:
    """Gathers and reads them."""

    def __init__(self, device: Device, records: Records, learner: TorchLearner, recent: int) -> None:
        self._records, self._learner = records, learner
        self._batch = records.copies * records.horizon
        self._recent = min(recent, self._batch)
        width = COUNTS + NUMBERS + METRICS + SPREAD + 2 + 3 * self._recent
        self._numbers = device.zeros(records.seeds, width, dtype=np.float64)
        pinned = device.name == "cuda"
        # Two, so that one can be read while the next is written.
        self._hosts = [torch.zeros(records.seeds, width, dtype=torch.float64, pin_memory=pinned) for _ in range(2)]

    def send(self) -> torch.Tensor:
        """Begin to copy what was gathered to the host; gives where it will be."""
        self._hosts.reverse()
        return self._hosts[0].copy_(self._numbers, non_blocking=True)

    def gather(self) -> None:
        """Gather the numbers of an iteration into one row for each agent."""
        tensors, learner, seeds = self._records.tensors, self._learner, self._records.seeds
        ends, places = torch.topk(tensors["ends"].view(seeds, -1), self._recent, 1)
        faults = tensors["fault"].view(seeds, -1).long()
        copies = torch.arange(faults.shape[1], device=faults.device)
        first = torch.where(faults > 0, faults * faults.shape[1] + copies, NO_FAULT).amin(1, keepdim=True)
        row = (
            learner.tensors["counts"],
            learner.tensors["numbers"],
            learner.tensors["totals"],
            learner.spread.view(seeds, -1, SPREAD).sum(1),
            first,
            learner.network.parameters.detach().view(seeds, -1).sum(1, keepdim=True, dtype=torch.float64),
            ends,
            tensors["end_returns"].view(seeds, -1).gather(1, places),
            tensors["end_lengths"].view(seeds, -1).gather(1, places),
        )
        torch.cat([part.double() for part in row], 1, out=self._numbers)

    def read(self, pending: Pending) -> list[Report]:
        """The reports of an iteration that is done; raises where a number was not one."""
        return [self._read_row(pending, row) for row in pending.numbers.numpy().copy()]

    def _read_row(self, pending: Pending, row: NDArray[np.float64]) -> Report:
        sizes = COUNTS, NUMBERS, METRICS, SPREAD, 1, 1, self._recent, self._recent, self._recent
        counts, numbers, totals, spread, fault, total, ends, returns, lengths = np.split(row, np.cumsum(sizes)[:-1])
        if fault[0] < NO_FAULT:
            copies = self._records.copies
            code, copy = divmod(int(fault[0]), copies)
            t, kind = divmod(code - 1, FAULT_KINDS)
            raise fault_of_rollout(kind, copy, t, pending.steps - self._batch, copies)
        check_update(bool(counts[FAULT]), total, pending.steps)
        order = np.flatnonzero(ends >= 0)[::-1]  # the last ends came first
        return Report(
            steps=pending.steps,
            learning_rate=pending.learning_rate,
            means=totals / max(counts[SAMPLES], 1),
            gradient_norm=float(numbers[NORMS] / max(numbers[TAKEN], 1)),
            minibatches=int(counts[MINIBATCHES]),
            optimiser_steps=int(counts[STEPS]),
            explained_variance=explained_variance(spread, self._batch),
            returns=returns[order].tolist(),
            lengths=lengths[order].astype(int).tolist(),
        )
