"""Program of a worker process: a group of environments, driven by commands from a pipe.

Started by the path of this file, without velocirl imports: importing numba would delay the start. A message is one
byte, optionally followed by a length and pickled bytes. Arrays pass through shared memory. If a module is named, its
`Worker` replaces this file's.
"""

import contextlib
import importlib
import importlib.util
import json
import mmap
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from velocirl.vector.host import copies as host_copies

START, ATTACH, RESET, STEP, CALL, SET, CLOSE = b"!", b"a", b"r", b"s", b"m", b"w", b"c"
DONE, RESULT, FAILED = b"d", b"o", b"f"
LENGTH = struct.Struct("=Q")
STOP_SIGNALS = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
PACKAGE = "velocirl_host"  # this folder's package name in a process without velocirl
SENTENCES = ("ContractError", "DefinitionError")  # errors with a complete message
GRACE = 2.0  # seconds for environments to close when the parent is done or gone

AWAKE = 100e-6  # seconds that an idle worker polls for the next command before it sleeps


def write_message(descriptor: int, kind: bytes, payload: bytes) -> None:
    """Write a message with a payload of any length."""
    rest = memoryview(kind + LENGTH.pack(len(payload)) + payload)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_payload(descriptor: int) -> bytes:
    """Read what follows the first byte of a message; raises EOFError if the other side is gone."""

    def read(size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            if not (part := os.read(descriptor, size - len(data))):
                raise EOFError("the parent process closed the pipe")
            data += part
        return bytes(data)

    return read(LENGTH.unpack(read(LENGTH.size))[0])


def end_with_parent(commands: int, parent: int) -> None:
    """End this process soon after the parent is gone, even while an environment is busy."""

    def watch() -> None:
        poller = select.poll()
        poller.register(commands, 0)  # no events: only the hang-up of the other side
        # The parent's id is checked too: a process that the parent forked may hold the pipe open.
        while not poller.poll(1000) and os.getppid() == parent:
            pass
        time.sleep(GRACE)
        os._exit(1)

    threading.Thread(target=watch, name="end with parent", daemon=True).start()


def load_host(name: str) -> Any:
    """Import a module of this folder as part of its own package, because `import velocirl` would load numba."""
    if PACKAGE not in sys.modules:
        here = Path(__file__).parent
        spec = importlib.util.spec_from_file_location(
            PACKAGE, here / "__init__.py", submodule_search_locations=[str(here)]
        )
        if spec is None or spec.loader is None:
            raise ImportError(f"__init__.py is not beside {__file__}")
        sys.modules[PACKAGE] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return importlib.import_module(f"{PACKAGE}.{name}")


class Worker:
    """Worker's side of the protocol."""

    def __init__(self, commands: int, replies: int, memory: int) -> None:
        self.commands = commands
        self.replies = replies
        self.memory = memory
        self.poller = select.poll()
        self.poller.register(commands, select.POLLIN)
        self.environments: list[Any] = []
        self.copies: host_copies.Copies | None = None

    def start(self) -> bytes:
        """Make this worker's environments and return their description."""
        setup = read_payload(self.commands)
        import cloudpickle

        self.host_copies = load_host("copies")
        environment, self.numbers, self.num_envs, self.mode, self.keep_infos = pickle.loads(setup)  # noqa: S301
        source, arguments, prepare = pickle.loads(environment)  # noqa: S301
        self.environments = self.host_copies.make_environments(source, self.numbers, arguments, prepare)
        self.dumps = cloudpickle.dumps
        self.description = self.host_copies.Description.of(self.environments)
        return self.dumps(vars(self.description))

    def answer(self, command: bytes) -> bytes | None:
        """Execute one command; returns the payload of the reply, or None."""
        if command == ATTACH:
            memory = mmap.mmap(self.memory, 0)
            os.close(self.memory)
            arrays = self.host_copies.Arrays.allocate(
                self.description, self.num_envs, self.host_copies.Carver(memory)
            ).rows(self.numbers)
            self.copies = self.host_copies.Copies(
                self.environments, arrays, self.numbers.start, self.mode, self.keep_infos
            )
            return None
        if self.copies is None:
            raise RuntimeError("a worker cannot work before its memory is attached")
        if command == STEP:
            result = self.copies.step()
        else:
            payload = pickle.loads(read_payload(self.commands))  # noqa: S301
            if command == CALL:
                return self.dumps(self.copies.call(*payload))
            if command == SET:
                return self.copies.set_attr(*payload)
            result = self.copies.reset(*payload)
        return self.dumps(result) if self.keep_infos else None

    def serve(self) -> None:
        """Answer commands until the parent is done; an exception is also an answer."""
        command = START
        while command not in (CLOSE, b""):
            try:
                result = self.start() if command == START else self.answer(command)
            except Exception as error:  # noqa: BLE001 - whatever the environment raises is reported to the parent
                sentence = any(kind.__name__ in SENTENCES for kind in type(error).__mro__)
                text = str(error) if sentence else load_host("contract").own_traceback(error)
                write_message(self.replies, FAILED, pickle.dumps((self.current(), text, sentence)))
            else:
                if result is None:
                    os.write(self.replies, DONE)
                else:
                    write_message(self.replies, RESULT, result)
            command = self.next_command()

    def current(self) -> int:
        """Return the environment that is stepping, or -1."""
        return -1 if self.copies is None else int(self.copies.arrays.current[0])

    def next_command(self) -> bytes:
        """Wait for a command: poll at first, because a step mostly follows soon and waking a core takes longer."""
        asleep = time.perf_counter() + AWAKE
        while not self.poller.poll(0) and time.perf_counter() < asleep:
            os.sched_yield()
        return os.read(self.commands, 1)

    def close(self) -> None:
        """Close every environment."""
        for environment in self.environments:
            environment.close()


def main(parent: int, commands: int, replies: int, memory: int, module: str = "") -> None:
    """Serve the parent. Stop signals, which may reach the whole process group, are left to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for number in (signal.SIGTERM, signal.SIGHUP):
        # Not SIG_IGN: programs started by an environment would inherit it and could not be terminated.
        signal.signal(number, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOP_SIGNALS)  # blocked by the parent until here
    for descriptor in (commands, replies, memory):
        os.set_inheritable(descriptor, False)
    end_with_parent(commands, parent)
    with contextlib.suppress(BrokenPipeError, EOFError):  # the parent is gone: nobody reads a report
        sys.path[:] = json.loads(read_payload(commands))
        kind = importlib.import_module(module).Worker if module else Worker
        with contextlib.closing(kind(commands, replies, memory)) as worker:
            worker.serve()


if __name__ == "__main__":
    parent, commands, replies, memory = (int(argument) for argument in sys.argv[1:5])
    main(parent, commands, replies, memory, *sys.argv[5:])
