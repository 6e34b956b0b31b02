"""Parent's side of a worker process: start, communication with a deadline, and guaranteed termination."""

import contextlib
import copy
import functools
import json
import os
import pickle
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from types import ModuleType
from typing import Any, cast

import cloudpickle
import gymnasium
from gymnasium.envs.registration import EnvSpec, load_env_creator

from velocirl.engine.errors import DefinitionError
from velocirl.vector.host import worker_process
from velocirl.vector.host.copies import Preparing, Source
from velocirl.vector.host.worker_process import CLOSE, DONE, FAILED, GRACE, LENGTH, write_message
from velocirl.vector.preprocessing import wrappers

# Workers share the cores: none may start a thread per core in every library that it loads.
ONE_THREAD = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "BLIS_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"), "1"
)


class WorkerError(RuntimeError):
    """Failure of a worker to answer: its environment raised (`alive` is true), the process ended, or it timed out."""

    def __init__(self, message: str, copy: int = -1, alive: bool = False, sentence: bool = False) -> None:
        super().__init__(message)
        self.sentence = sentence  # whether the message is complete: a DefinitionError in the worker
        self.copy = copy  # the environment that was stepping, -1 if unknown
        self.alive = alive

    def reported(self, report: str) -> Exception:
        """Return the exception to raise in the parent: a DefinitionError, or a WorkerError with the report."""
        return DefinitionError(str(self)) if self.sentence else WorkerError(report, self.copy, self.alive)


def importable(module: str) -> bool:
    """Return whether a fresh interpreter with this sys.path would find the module; `sys.modules` does not count."""
    path = None
    names = module.split(".")
    for depth in range(1, len(names) + 1):
        name = ".".join(names[:depth])
        found = (finder.find_spec(name, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((spec for spec in found if spec is not None), None)
        if spec is None:
            return False
        path = spec.submodule_search_locations
    return True


@contextlib.contextmanager
def pickled_by_value(creator: Any) -> Iterator[None]:
    """Pickle code by value in this context if workers cannot import it: a script run by path, a test module."""
    while isinstance(creator, functools.partial):
        creator = creator.func
    module = sys.modules.get(getattr(creator, "__module__", None) or "__main__")
    if module is None or module.__name__ == "__main__" or importable(module.__name__):
        yield  # cloudpickle sends the contents of __main__ by value anyway
        return
    with sent_by_value(module):
        yield


@contextlib.contextmanager
def sent_by_value(module: ModuleType) -> Iterator[None]:
    """Pickle a module's functions by value in this context, not by name."""
    if module.__name__ in cloudpickle.list_registry_pickle_by_value():  # several functions of one module
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def pickle_source(source: Source, arguments: dict[str, Any], prepare: Preparing | None = None) -> bytes:
    """Pickle the environment source and its wrappers so that a worker can make it, wherever it was defined."""
    creator = source
    if isinstance(source, EnvSpec):
        creator = source.entry_point
        if isinstance(creator, str) and (creator.startswith("__main__:") or not importable(creator.split(":")[0])):
            source = copy.copy(source)  # the registry's own specification stays unchanged
            creator = load_env_creator(creator)
            source.entry_point = cast("Callable[..., gymnasium.Env]", creator)
    try:
        with ExitStack() as stack:
            for one in creator if isinstance(creator, list) else [creator]:
                stack.enter_context(pickled_by_value(one))
            stack.enter_context(sent_by_value(wrappers))  # so that a worker need not import velocirl
            return cloudpickle.dumps((source, arguments, prepare))
    except Exception as error:
        raise ValueError(
            f"{source!r} cannot be sent to worker processes ({error}); "
            "let the callable build what it needs inside, or leave workers= out"
        ) from error


class WorkerHandle:
    """Worker process with a pipe for commands and one for replies."""

    def __init__(self, memory: int, setup: bytes, module: str = "") -> None:
        """Start a worker on the shared memory of this descriptor: `module`'s, or by default one for environments."""
        command_end, self._commands = os.pipe()
        self._replies, reply_end = os.pipe()
        arguments = [str(number) for number in (os.getpid(), command_end, reply_end, memory)]
        # Signals stay blocked in the child, so that none can stop it before its handlers are installed.
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, worker_process.STOP_SIGNALS)
        try:
            # -P: the script's directory, whose names are ours, must not shadow the standard library.
            self._process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-P", worker_process.__file__, *arguments, *([module] if module else [])],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **ONE_THREAD},
                pass_fds=(command_end, reply_end, memory),
            )
        except BaseException:
            os.close(self._commands)
            os.close(self._replies)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            raise
        finally:
            os.close(command_end)
            os.close(reply_end)
        try:
            self._poller = select.poll()
            self._poller.register(self._replies, select.POLLIN)
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)  # an interrupt may arrive from here on
            self.send(b"", json.dumps([entry for entry in sys.path if isinstance(entry, str)]).encode())
            self.send(b"", setup)
        except BaseException:
            self.kill()
            raise

    @property
    def alive(self) -> bool:
        """True if the process still runs."""
        return self._process.poll() is None

    @property
    def process(self) -> int:
        """Process id."""
        return self._process.pid

    def fileno(self) -> int:
        """Return the file descriptor on which to wait for a reply."""
        return self._replies

    def send(self, kind: bytes, payload: bytes | None = None) -> None:
        """Send a command; a dead worker is detected when it does not reply."""
        with contextlib.suppress(BrokenPipeError):
            if payload is None:
                os.write(self._commands, kind)
            else:
                write_message(self._commands, kind, payload)

    def receive(self, deadline: float) -> Any:
        """Wait for the reply to the last command; returns None or the reply's payload."""
        kind = self._read(1, deadline)
        if kind == DONE:
            return None
        size = LENGTH.unpack(self._read(LENGTH.size, deadline))[0]
        payload = pickle.loads(self._read(size, deadline))  # noqa: S301
        if kind == FAILED:
            number, text, sentence = payload
            raise WorkerError(text, number, alive=True, sentence=sentence)
        return payload

    def ask_to_close(self) -> None:
        """Ask the worker to close its environments and to end after its current command."""
        if self._commands >= 0:
            self.send(CLOSE)

    def wait(self, deadline: float) -> None:
        """Wait until the worker has ended, or until the deadline."""
        with contextlib.suppress(WorkerError):
            while True:
                self._read(1, deadline)

    def kill(self) -> None:
        """Kill the process if it still runs, and release its pipes; can be called repeatedly."""
        self._process.kill()
        self._process.wait()
        descriptors, self._commands, self._replies = (self._commands, self._replies), -1, -1
        for descriptor in descriptors:
            if descriptor >= 0:
                os.close(descriptor)

    def _read(self, size: int, deadline: float) -> bytes:
        data = b""
        while len(data) < size:
            while not self._poller.poll(max(0.0, min(1.0, deadline - time.monotonic())) * 1000):
                if time.monotonic() >= deadline:
                    raise WorkerError("did not answer in time")
                # A process started by the environment may hold the pipe open after the worker's end.
                if self._process.poll() is not None:
                    break
            part = b"" if self._process.returncode is not None else os.read(self._replies, size - len(data))
            if not part:
                raise WorkerError(self._ending())
            data += part
        return data

    def _ending(self) -> str:
        try:
            status = self._process.wait(GRACE)
        except subprocess.TimeoutExpired:
            return "closed its pipe"
        return f"was killed by {signal.Signals(-status).name}" if status < 0 else f"exited with status {status}"


def stop_workers(workers: list[WorkerHandle], owner: int) -> None:
    """End all workers, by request first, then by force. A forked child of the owner leaves them alone."""
    if os.getpid() != owner:
        return
    try:
        for worker in workers:
            worker.ask_to_close()
        deadline = time.monotonic() + GRACE
        for worker in workers:
            worker.wait(deadline)
    finally:
        for worker in workers:
            worker.kill()
        workers.clear()
