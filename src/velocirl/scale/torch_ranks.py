"""Ranks of torch.distributed: processes of torchrun, or any with its environment variables.

Ranks communicate by gloo. Sums among the ranks of a machine use shared memory (see `shared_sums`): when all cores
compute, gloo's threads wait for a free one.
"""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import distributed
from torch.distributed.rendezvous import rendezvous

from velocirl.scale.launching import LIMIT, Launch, LaunchError
from velocirl.scale.ranks import LostRankError
from velocirl.scale.shared_sums import Machine, share_machines
from velocirl.scale.watching import Channel, News

PATIENCE = timedelta(minutes=30)  # timeout: a rank may compile, evaluate or save while the others wait


class TorchRanks:
    """Ranks of torch.distributed; see `ranks.Ranks`."""

    def __init__(self, launch: Launch, seconds: float = LIMIT) -> None:
        self.rank, self.size, self._local_rank = launch.rank, launch.size, launch.local_rank
        self._asked = False  # whether sharing this machine's memory was tried
        self._machine: Machine | None = None
        self._firsts: Any = None  # group of the first rank of each machine
        if distributed.is_initialized():  # by a script, which may use NCCL itself
            self._group: Any = distributed.new_group(backend="gloo", timeout=PATIENCE)
            return
        try:
            limit = timedelta(seconds=seconds)
            store, _, _ = next(rendezvous("env://", self.rank, self.size, timeout=limit))
            store.set_timeout(limit)
            atexit.register(_leave)
            distributed.init_process_group("gloo", store=store, rank=self.rank, world_size=self.size, timeout=PATIENCE)
        except (RuntimeError, ValueError) as error:
            said = " ".join(str(error).split())
            raise LaunchError(
                f"rank {self.rank} of {self.size} has not found the others in {seconds:.0f} s: start all with the same"
                f" MASTER_ADDR and MASTER_PORT and a RANK of their own ({said})"
            ) from error
        self._group = None

    def sum(self, array: NDArray[Any]) -> None:
        """Sum within each machine, then all-reduce among one rank of each."""
        if not self._asked:
            self._asked = True
            self._share()
        if self._machine is None:
            self._all_reduce(array, self._group)
            return
        sums, firsts = self._machine
        if sums is not None:
            sums.sum(array)
        if len(firsts) > 1:
            if self.rank in firsts:
                self._all_reduce(array, self._firsts)
            if sums is not None:
                sums.spread(array)

    def broadcast(self, data: bytes | None) -> bytes:
        """Broadcast the length, then the data."""
        with self._heard():
            length = torch.tensor([0 if data is None else len(data)])
            distributed.broadcast(length, 0, group=self._group)
            given = np.empty(int(length[0]), np.uint8) if data is None else np.frombuffer(data, np.uint8).copy()
            distributed.broadcast(torch.from_numpy(given), 0, group=self._group)
            return given.tobytes()

    def gather(self, data: bytes) -> list[bytes]:
        """Gather the lengths, then the data padded to equal length."""
        with self._heard():
            lengths = torch.zeros(self.size, dtype=torch.int64)
            lengths[self.rank] = len(data)
            distributed.all_reduce(lengths, group=self._group)
            own = torch.zeros(int(lengths.max()), dtype=torch.uint8)
            own[: len(data)] = torch.from_numpy(np.frombuffer(data, np.uint8).copy())
            given = [torch.zeros_like(own) for _ in range(self.size)] if self.rank == 0 else None
            distributed.gather(own, given, 0, group=self._group)
            return [one[:length].numpy().tobytes() for one, length in zip(given or [], lengths.tolist(), strict=False)]

    def assemble(self, seconds: float) -> None:
        """Wait in a barrier in which rank 0 waits for each other rank, and they for it."""
        began = time.monotonic()
        try:
            distributed.monitored_barrier(self._group, timedelta(seconds=seconds), wait_all_ranks=True)
        except RuntimeError as error:
            if time.monotonic() - began < seconds:
                raise self._lost() from error
            raise LaunchError(
                f"rank {self.rank} of {self.size} has waited {seconds:.0f} s for the others: all ranks have to train"
                f" the same agent, in the same order ({' '.join(str(error).split())})"
            ) from error

    def open_channel(self) -> Channel:
        """Open a channel on the rendezvous store."""
        store: Any = distributed.distributed_c10d._get_default_store()
        return StoreChannel(store.clone(), self.rank, self.size)

    def abort(self, code: int) -> None:
        """Do nothing: torchrun ends all ranks once this rank has ended."""

    def _all_reduce(self, array: NDArray[Any], group: Any) -> None:
        with self._heard():
            distributed.all_reduce(torch.from_numpy(array), group=group)

    def _share(self) -> None:
        """Share the memory of this machine with the other ranks on it; until then, sums use gloo."""
        machine = share_machines(self, self._local_rank, PATIENCE.total_seconds())
        if machine is not None and len(machine.firsts) > 1:
            self._firsts = distributed.new_group(machine.firsts, timeout=PATIENCE, backend="gloo")
        self._machine = machine

    @contextmanager
    def _heard(self) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            raise self._lost() from error

    def _lost(self) -> LostRankError:
        return LostRankError(f"rank {self.rank} of {self.size} has lost another one, which ended")


class StoreChannel:
    """Reports of ranks in the rendezvous store; see `watching.Channel`.

    A thread of its own uses the store, because a call never returns if the process that keeps the store was stopped.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        self._store, self._rank = store, rank
        self._peers = range(1, size) if rank == 0 else (0,)
        self._asked, self._heard = threading.Event(), threading.Event()
        self._rows, self._news = np.zeros((0, 0)), []
        self._heard.set()
        threading.Thread(target=self._carry, name="velocirl-store", daemon=True).start()

    def exchange(self, rows: NDArray[np.float64]) -> News:
        """Hand rows to the thread, unless it is still busy. Returns what the thread has received."""
        if not self._heard.is_set():
            return []
        news, self._rows = self._news, rows
        self._heard.clear()
        self._asked.set()
        return news

    def _carry(self) -> None:
        try:
            while self._asked.wait():
                self._asked.clear()
                self._store.set(f"velocirl/{self._rank}", self._rows.tobytes())
                there = [peer for peer in self._peers if self._store.check([f"velocirl/{peer}"])]
                told = [np.frombuffer(self._store.get(f"velocirl/{peer}")) for peer in there]
                self._news = [
                    (peer, one.reshape(-1, self._rows.shape[1])) for peer, one in zip(there, told, strict=True)
                ]
                self._heard.set()
        except RuntimeError:  # the store is gone, and the job with it
            return


def _leave() -> None:
    """Let gloo's threads end before the interpreter does: a remaining one aborts the process."""
    if distributed.is_initialized():
        distributed.destroy_process_group()
