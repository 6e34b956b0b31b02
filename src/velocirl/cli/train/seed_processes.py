"""Agents of a group as processes: each runs its own command, as many at once as cores allow."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import IO, Any, Self

from velocirl.cli.train.given import PROGRAM as GIVEN_PROGRAM
from velocirl.runs.metrics import RETURN, STEP
from velocirl.runs.signals import StopSignals

LOOK_EVERY = 0.1  # seconds between checks of signals and updates of the display
PATIENCE = 10.0  # seconds for a process to save its run before it is killed
# -P: a file in the current directory must not shadow the package.
PROGRAM = [sys.executable, "-P", "-c", "from velocirl.cli.main import main; main()"]


@dataclass
class SeedProcess:
    """One agent: the command that trains it, and its reported progress."""

    seed: int
    command: Sequence[str]  # arguments of velocirl
    total: int  # steps at the end
    steps: int = 0
    # In order: "waiting", "starting", "compiling", "running", "ending", then "finished", "stopped" or "failed".
    state: str = "waiting"
    mean: float | None = None
    rate: float = 0.0  # steps per second
    error: str = ""
    stderr: str = ""
    given: bytes = field(default=b"", repr=False)  # the environment for `cli.train.given`, if it has no name
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)
    _errors: IO[str] | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        """True if the process was started and has not ended."""
        return self.state in ("starting", "compiling", "running", "ending")

    @property
    def seconds_left(self) -> float | None:
        """The remaining seconds at the speed so far; None if it is not running."""
        return max(self.total - self.steps, 0) / self.rate if self.rate and self.state == "running" else None

    def start(self, threads: int, said: queue.Queue[tuple[SeedProcess, str | None]]) -> None:
        """Start the process; its lines, and None after the last one, are put into the queue."""
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed at its end
        process = subprocess.Popen(  # noqa: S603 - our own code, in our own interpreter
            [*(GIVEN_PROGRAM if self.given else PROGRAM), *self.command],
            stdin=subprocess.PIPE if self.given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            errors="replace",
            env={"OMP_NUM_THREADS": str(threads), **os.environ},  # otherwise each would use all cores
            process_group=0,  # Ctrl-C reaches only this process, which forwards it once: a second one would end at once
        )
        self._process, self.state = process, "starting"

        def read() -> None:
            assert process.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
            stdin: Any = process.stdin
            if stdin is not None:
                with contextlib.suppress(BrokenPipeError), stdin.buffer as bytes_:
                    bytes_.write(self.given)
            for line in process.stdout:
                said.put((self, line))
            said.put((self, None))

        threading.Thread(target=read, daemon=True).start()

    def note(self, event: dict[str, Any]) -> None:
        """Update the progress from an event of the process."""
        self.steps = int(event.get("steps", event.get(STEP, self.steps)) or 0)
        self.mean = event.get("return", event.get(RETURN, self.mean))
        self.rate = float(event.get("time/fps") or self.rate)
        self.total = int(event.get("total_steps") or self.total)
        self.error = event.get("error", self.error)
        self.state = {"start": "running", "end": "ending"}.get(event["event"], self.state)

    def conclude(self, *, stopping: bool) -> None:
        """Wait for the process after its output has ended, and set its final state and error."""
        assert self._process is not None and self._errors is not None  # noqa: S101, PT018 - it was started
        code = self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.seek(0)
        lines = [line.rstrip() for line in self._errors if line.strip()]
        self._errors.close()
        self.state = "finished" if code == 0 else "failed"
        if stopping and code in (128 + signal.SIGTERM, -signal.SIGTERM):
            self.state, self.error = "stopped", ""
        elif code != 0 and not self.error:
            said = next((line for line in reversed(lines) if line.startswith("error: ")), lines[-1] if lines else "")
            self.error = said.removeprefix("error: ").removesuffix(" (VELOCIRL_DEBUG=1 shows where)") or _say(code)
        self.stderr = "\n".join(line for line in lines if not line.startswith("error: "))

    def send(self, number: signal.Signals) -> None:
        """Send a signal, if the process still exists."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, seconds: float) -> None:
        """Wait for the end of the process, and kill it after `seconds`."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class SeedProcesses:
    """Runner of processes, at most `at_once` at a time; the first one runs alone until it has compiled the shared code.

    `on_event` receives every line of JSON that a process prints, and `on_text` any other line. `on_end` is called at
    the end of each process, `on_look` ten times a second.
    """

    def __init__(
        self,
        processes: Sequence[SeedProcess],
        at_once: int,
        threads: int,
        *,
        on_event: Callable[[SeedProcess, dict[str, Any]], None],
        on_text: Callable[[SeedProcess, str], None],
        on_end: Callable[[SeedProcess], None],
        on_look: Callable[[], None],
    ) -> None:
        self.processes = processes
        self._at_once, self._threads = at_once, threads
        self._on_event, self._on_text, self._on_end, self._on_look = on_event, on_text, on_end, on_look
        self._said: queue.Queue[tuple[SeedProcess, str | None]] = queue.Queue()
        self._compiled = self._stopping = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End all processes. If they were not asked to stop before, they now have time to save their runs."""
        left = [one for one in self.processes if one.alive]
        deadline = time.monotonic() + (0.0 if self._stopping else PATIENCE)
        self.stop()
        for one in left:
            one.wait(max(deadline - time.monotonic(), 0.0))

    def run(self, signals: StopSignals) -> None:
        """Run all processes; after a signal, those alive save their runs and no other is started."""
        looked = 0.0
        while True:
            if signals.received is not None and not self._stopping:
                self.stop()
            self._start_more()
            if not any(one.alive for one in self.processes):
                return
            with contextlib.suppress(queue.Empty):
                self._hear(*self._said.get(timeout=LOOK_EVERY))
            if time.monotonic() - looked >= LOOK_EVERY:
                self._on_look()
                looked = time.monotonic()

    def stop(self) -> None:
        """Ask all processes to save their runs and end; further calls do nothing."""
        if not self._stopping:
            self._stopping = True
            for one in self.processes:
                one.send(signal.SIGTERM)

    def _start_more(self) -> None:
        if self._stopping:
            return
        room = (self._at_once if self._compiled else 1) - sum(one.alive for one in self.processes)
        for one in [one for one in self.processes if one.state == "waiting"][: max(room, 0)]:
            one.start(self._threads, self._said)

    def _hear(self, one: SeedProcess, line: str | None) -> None:
        if line is None:
            one.conclude(stopping=self._stopping)
            self._on_end(one)
            return
        event = _parse(line)
        if event is None:
            self._on_text(one, line.rstrip())
            return
        one.note(event)
        self._compiled |= one.state == "running"  # a process reports its start after everything is compiled
        self._on_event(one, event)


def _parse(line: str) -> dict[str, Any] | None:
    """Parse an event; None for other output, such as an environment's."""
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and "event" in event else None


def _say(code: int) -> str:
    if code >= 0:
        return f"its process ended with exit code {code}"
    try:
        return f"its process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was ended by signal {-code}"
