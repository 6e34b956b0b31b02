"""Vector environment of any Gymnasium environment, over worker processes and shared memory."""

import itertools
import mmap
import os
import tempfile
import time
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, NoReturn

import cloudpickle
import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv

from velocirl.vector.host.copies import (
    Arrays,
    Carver,
    Description,
    Preparing,
    Records,
    Source,
    map_arrays,
    read_row,
    write_row,
)
from velocirl.vector.host.interface import HostInterface, copy_seeds, find_source
from velocirl.vector.host.worker_handle import WorkerError, WorkerHandle, pickle_source, stop_workers
from velocirl.vector.host.worker_process import ATTACH, CALL, RESET, SET, STEP

START_TIMEOUT = 60.0  # seconds for a worker to import and make its environments


def open_memory() -> int:
    """Open a nameless file: it disappears with the processes, however they end."""
    if hasattr(os, "memfd_create"):  # not limited by the size of /dev/shm, which is small in containers
        return os.memfd_create("velocirl")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def release(workers: list[WorkerHandle], memory: int, owner: int) -> None:
    """End the workers and close the descriptor of the shared memory."""
    stop_workers(workers, owner)
    os.close(memory)


class WorkerVectorEnv(HostInterface, VectorEnv):  # repeated for skrl, which inspects only direct bases
    """Vector environment that steps Gymnasium environments in parallel worker processes; results as `HostVectorEnv`.

    A worker that raises, ends or takes longer than `timeout` seconds causes a WorkerError, and all workers are shut
    down. With `restarts`, up to that many workers are replaced instead, with a warning; their environments start new
    episodes. Such an environment reports reward 0, `terminated` False, `truncated` True and its last valid observation
    as the final one. A learner therefore bootstraps there and learns no terminal state that never occurred. The episode
    is not counted in `episode`. `infos["restarted"]` marks the environments, so that their fabricated transition can be
    skipped.
    """

    def __init__(
        self,
        environment: str | Source,
        num_envs: int,
        *,
        workers: int,
        timeout: float = 60.0,
        restarts: int = 0,
        seed: int | Sequence[int | None] | None = None,
        autoreset_mode: AutoresetMode = AutoresetMode.SAME_STEP,
        copy: bool = True,
        infos: bool = False,
        prepare: Preparing | None = None,
        **make_kwargs: Any,
    ) -> None:
        super().__init__(source := find_source(environment), num_envs, seed, autoreset_mode, copy, infos, make_kwargs)
        if os.name != "posix":
            raise ValueError("worker processes need Linux or macOS; leave workers= out here")
        if not isinstance(workers, (int, np.integer)) or not 1 <= workers <= self.num_envs:
            raise ValueError(f"workers must be from 1 to num_envs={self.num_envs}, one copy each, got {workers!r}")
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        if not isinstance(restarts, (int, np.integer)) or restarts < 0:
            raise ValueError(f"restarts must be a whole number of at least 0, got {restarts!r}")
        self._timeout = timeout
        self._restarts_left = int(restarts)
        self._restarted = 0  # workers
        self._waited = 0.0  # seconds
        self._fresh_seed_count = 0
        self._pickled = pickle_source(source, make_kwargs, prepare)
        bounds = np.linspace(0, self.num_envs, workers + 1).astype(int).tolist()
        self._groups = [range(start, stop) for start, stop in itertools.pairwise(bounds)]
        self._memory = open_memory()
        self._workers: list[WorkerHandle] = []
        self._finalizer = weakref.finalize(self, release, self._workers, self._memory, os.getpid())
        self._start_workers()

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's attribute of that name or, for a method, its result; results are pickled."""
        self._require_open()
        payload = cloudpickle.dumps((name, args, kwargs))
        return tuple(itertools.chain(*self._ask(CALL, [payload] * len(self._groups))))

    def gauges(self) -> dict[str, float]:
        """Return the number of workers, the seconds spent waiting for them so far, and the number of restarts."""
        return {"workers": len(self._workers), "waiting_seconds": self._waited, "restarts": self._restarted}

    def close_extras(self, **kwargs: Any) -> None:  # noqa: ARG002
        """End all workers."""
        self._finalizer()

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"{self.name} runs in worker processes, which can be neither copied nor pickled: leave workers= out, or "
            "call make_vec where the fleet is needed"
        )

    def _set_attr(self, name: str, values: list[Any]) -> None:
        self._ask(SET, [cloudpickle.dumps((name, values[group.start : group.stop])) for group in self._groups])

    def _ask(self, command: bytes, payloads: list[bytes]) -> list[Any]:
        """Send a command to all workers; a failure in an environment leaves the workers running."""
        if not self._workers:
            raise RuntimeError(f"{self.name} was interrupted: call reset() first")
        replies = self._exchange(command, payloads)
        for number, reply in enumerate(replies):
            if isinstance(reply, WorkerError):
                if not reply.alive:
                    self._fail(number, reply)
                raise WorkerError(self._report(number, reply))
        return replies

    def _reset_copies(
        self, seeds: dict[int, int | None], options: dict[str, Any] | None
    ) -> tuple[Records, np.ndarray | None]:
        if not self._workers:  # ended by an interrupt, together with their random streams
            self._start_workers()
            seeds = {copy: fresh if seeds[copy] is None else seeds[copy] for copy, fresh in self._fresh_seeds().items()}
        payloads = [self._reset_payload(group, seeds, options) for group in self._groups]
        return self._settle(self._exchange(RESET, payloads), seeds, options)

    def _step_copies(self) -> tuple[Records, np.ndarray | None]:
        arrays = self._arrays
        before = map_arrays(np.copy, arrays.observations) if self._restarts_left > 0 else None
        masks = arrays.action_masks.copy() if self._restarts_left > 0 else None
        same_step = self.autoreset_mode == AutoresetMode.SAME_STEP
        records, restarted = self._settle(self._exchange(STEP), {} if same_step else None, None)
        if restarted is not None:
            arrays.rewards[restarted] = 0.0
            arrays.terminated[restarted] = False
            arrays.truncated[restarted] = True
            final = arrays.final_observations if same_step else arrays.observations
            for copy in np.flatnonzero(restarted).tolist():
                write_row(final, copy, read_row(before, copy))
                arrays.final_masks[copy] = masks[copy] if masks is not None and arrays.has_mask[copy] else 0
        return records, restarted

    def _exchange(self, command: bytes, payloads: list[bytes] | None = None) -> list[Any]:
        """Send a command to all workers and collect the replies, with a WorkerError for each missing one."""
        try:
            for number, worker in enumerate(self._workers):
                worker.send(command, None if payloads is None else payloads[number])
            began = time.monotonic()
            replies = [self._receive(worker, began + self._timeout) for worker in self._workers]
            self._waited += time.monotonic() - began
            return replies
        except BaseException:
            self._stop()
            raise

    def _receive(self, worker: WorkerHandle, deadline: float) -> Any:
        try:
            return worker.receive(deadline)
        except WorkerError as error:
            return error

    def _settle(
        self, replies: list[Any], seeds: dict[int, int | None] | None, options: dict[str, Any] | None
    ) -> tuple[Records, np.ndarray | None]:
        """Merge the replies; replace failed workers and, if seeds are given, reset all of their environments."""
        records: Records = []
        restarted: np.ndarray | None = None
        for number, reply in enumerate(replies):
            while isinstance(reply, WorkerError):
                restarted = np.zeros(self.num_envs, np.bool_) if restarted is None else restarted
                restarted[self._groups[number]] = True
                try:
                    reply = self._replace(number, reply, seeds, options)
                except BaseException:
                    self._stop()
                    raise
            records.extend(reply or ())
        return records, restarted

    def _replace(
        self, number: int, error: WorkerError, seeds: dict[int, int | None] | None, options: dict[str, Any] | None
    ) -> Any:
        if self._restarts_left == 0 or error.sentence:
            self._fail(number, error)
        self._restarts_left -= 1
        self._restarted += 1
        report = f"{self._report(number, error)}\nIt is replaced, and its copies start new episodes; "
        warnings.warn(f"{report}{self._restarts_left} restarts left", RuntimeWarning, stacklevel=5)
        self._workers[number].kill()
        try:
            self._workers[number] = worker = self._start(self._groups[number])
            self._welcome(worker)
            self._attach(worker)
            if seeds is None:
                return None
            worker.send(RESET, self._reset_payload(self._groups[number], {**self._fresh_seeds(), **seeds}, options))
            return worker.receive(time.monotonic() + self._timeout)
        except WorkerError as another:
            return another

    def _start_workers(self) -> None:
        try:
            for group in self._groups:
                self._workers.append(self._start(group))
            for number, worker in enumerate(self._workers):
                try:
                    self._welcome(worker)
                    self._attach(worker)
                except WorkerError as error:
                    self._fail(number, error)
        except BaseException:
            self._stop()
            raise

    def _start(self, group: range) -> WorkerHandle:
        setup = (self._pickled, group, self.num_envs, self.autoreset_mode, self._keep_infos)
        return WorkerHandle(self._memory, cloudpickle.dumps(setup))

    def _welcome(self, worker: WorkerHandle) -> None:
        """Wait for a new worker's description of its environments; the first one determines the memory's layout."""
        description = Description(**worker.receive(time.monotonic() + max(self._timeout, START_TIMEOUT)))
        if not hasattr(self, "_arrays"):
            self._adopt(description)
            carver = Carver()
            Arrays.allocate(description, self.num_envs, carver)
            os.truncate(self._memory, carver.size)
            self._arrays = Arrays.allocate(description, self.num_envs, Carver(mmap.mmap(self._memory, carver.size)))
        if (description.observation_space, description.action_space) != (
            self.single_observation_space,
            self.single_action_space,
        ):
            raise WorkerError("made an environment with spaces other than the first worker's")

    def _attach(self, worker: WorkerHandle) -> None:
        worker.send(ATTACH)
        worker.receive(time.monotonic() + self._timeout)

    def _stop(self) -> None:
        """End all workers, because they are out of sync with the parent; the next reset starts new ones."""
        self._resets_needed = True
        stop_workers(self._workers, os.getpid())

    def _fail(self, number: int, error: WorkerError) -> NoReturn:
        report = self._report(number, error)
        self._closed_because = f"after a failure of worker {number}"
        self._workers[number].kill()  # it may hang: only the others are worth waiting for
        self.close()
        raise error.reported(report) from None

    def _report(self, number: int, error: WorkerError) -> str:
        group = self._groups[number]
        copies = f"copy {group.start}" if len(group) == 1 else f"copies {group.start} to {group.stop - 1}"
        current = int(self._arrays.current[group.start]) if hasattr(self, "_arrays") else -1
        if error.alive:
            who = f"copy {error.copy}" if error.copy >= 0 else "an environment"
            return f"{self.name}: {who} raised in worker {number}, which has {copies}:\n{error}"
        where = f" while copy {current} was at work" if current >= 0 else ""
        return f"{self.name}: worker {number}, which has {copies}, {error}{where}"

    def _fresh_seeds(self) -> dict[int, int | None]:
        """Return seeds not yet used by any episode, or None for each if no seeds were given."""
        if self._entropy is None:
            return dict.fromkeys(range(self.num_envs))
        self._fresh_seed_count += 1
        return dict(enumerate(copy_seeds([*self._entropy, self._fresh_seed_count], self.num_envs)))

    @staticmethod
    def _reset_payload(group: range, seeds: dict[int, int | None], options: dict[str, Any] | None) -> bytes:
        return cloudpickle.dumps(({copy - group.start: seeds[copy] for copy in group if copy in seeds}, options))
