"""What came of an iteration of off-policy learning: gathered on the device, read on the host once it is there."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch

from velocirl.learners.faults import check_update, fault_of_rollout
from velocirl.learners.learner import Report
from velocirl.training.mapped_collecting import FAULT_KINDS
from velocirl.training.mapped_replaying import ACTOR_TAKEN, CLOCK, FAULT, NORMS, NUMBERS, TAKEN, UPDATES
from velocirl.training.off_policy import ACTOR_METRICS, METRICS
from velocirl.training.torch_device import Device
from velocirl.training.torch_off_policy_ring import TorchClock
from velocirl.training.torch_off_policy_steps import Records
from velocirl.training.torch_reports import NO_FAULT


class Pending(NamedTuple):
    """An iteration that was started."""

    steps: int  # of the run, after it
    first: int  # of the run, before it
    learning_rate: float
    numbers: torch.Tensor  # its report on the host, once the last event has come
    events: tuple[Any, ...]  # before it and after the report
    laps: list[tuple[Any, Any, Any]]  # of some rounds: before the step, after it, and after its updates


class Reports:
    """Gathers and reads them."""

    def __init__(
        self, device: Device, records: Records, update: Any, clock: TorchClock, batch_size: int, recent: int
    ) -> None:
        self._records, self._update, self._clock = records, update, clock
        self._batch_size, self._device = batch_size, device
        self._recent = min(recent, records.tensors["ends"].numel())
        width = CLOCK + NUMBERS + METRICS + 2 + 3 * self._recent
        self._numbers = device.zeros(width, dtype=np.float64)
        pinned = device.name == "cuda"
        # Two, so that one can be read while the next is written.
        self._hosts = [torch.zeros(width, dtype=torch.float64, pin_memory=pinned) for _ in range(2)]

    def gather(self) -> None:
        """Gather the numbers of an iteration into one row."""
        tensors, clock = self._records.tensors, self._clock.tensors
        ends, places = torch.topk(tensors["ends"].view(-1), self._recent)
        faults = tensors["fault"].long()
        copies = torch.arange(len(faults), device=faults.device)
        first = torch.where(faults > 0, faults * len(faults) + copies, NO_FAULT).amin(0, keepdim=True)
        episodes = ends, tensors["end_returns"].view(-1)[places], tensors["end_lengths"].view(-1)[places]
        row = clock["counts"], clock["numbers"], self._update.totals, self._update.checked().view(1), first, *episodes
        place = self._device.torch  # what steps on the host is sent there
        torch.cat([part.to(place, torch.float64) for part in row], out=self._numbers)

    def send(self) -> torch.Tensor:
        """Begin to copy what was gathered to the host; gives where it will be."""
        self._hosts.reverse()
        return self._hosts[0].copy_(self._numbers, non_blocking=True)

    def read(self, pending: Pending) -> Report:
        """The report of an iteration that is done; raises where a number was not one."""
        sizes = CLOCK, NUMBERS, METRICS, 1, 1, self._recent, self._recent, self._recent
        parts = np.split(pending.numbers.numpy().copy(), np.cumsum(sizes)[:-1])
        counts, numbers, totals, total, fault, ends, returns, lengths = parts
        copies = self._records.copies
        if fault[0] < NO_FAULT:
            code, copy = divmod(int(fault[0]), copies)
            t, kind = divmod(code - 1, FAULT_KINDS)
            raise fault_of_rollout(kind, copy, t, pending.first, copies)
        check_update(bool(counts[FAULT]), total, pending.steps)
        order = np.flatnonzero(ends >= 0)[::-1]  # the last ends came first
        taken = np.where(np.arange(METRICS) < ACTOR_METRICS, counts[TAKEN], counts[ACTOR_TAKEN])
        return Report(
            steps=pending.steps,
            learning_rate=pending.learning_rate,
            means=totals / np.maximum(taken * self._batch_size, 1),
            gradient_norm=float(numbers[NORMS] / max(counts[TAKEN], 1)),
            minibatches=int(counts[TAKEN]),
            optimiser_steps=int(counts[UPDATES]),
            explained_variance=float("nan"),
            returns=returns[order].tolist(),
            lengths=lengths[order].astype(int).tolist(),
        )
