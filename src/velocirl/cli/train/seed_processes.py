"""The agents of a group as processes: each a command of its own, as many at a time as there are cores for them."""

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

LOOK_EVERY = 0.1  # seconds between two looks at signals and the display
PATIENCE = 10.0  # seconds for a process to save itself, where nobody waits for it any more
# -P: a file in the current directory is not the package of its name.
PROGRAM = [sys.executable, "-P", "-c", "from velocirl.cli.main import main; main()"]


@dataclass
class SeedProcess:
    """One agent: the command that trains it, and what it has said so far."""

    seed: int
    command: Sequence[str]  # of velocirl
    total: int  # steps at its end
    steps: int = 0
    # First "waiting", then "starting", "compiling", "running", "ending", and "finished", "stopped" or "failed".
    state: str = "waiting"
    mean: float | None = None
    rate: float = 0.0  # steps per second
    error: str = ""
    stderr: str = ""
    given: bytes = field(default=b"", repr=False)  # the environment for `cli.train.given`, where it has no name
    _process: subprocess.Popen[str] | None = field(default=None, repr=False)
    _errors: IO[str] | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        """Whether its process has been started and has not ended."""
        return self.state in ("starting", "compiling", "running", "ending")

    @property
    def seconds_left(self) -> float | None:
        """How long it will take, by its speed so far."""
        return max(self.total - self.steps, 0) / self.rate if self.rate and self.state == "running" else None

    def start(self, threads: int, said: queue.Queue[tuple[SeedProcess, str | None]]) -> None:
        """Start the process; its lines, and None after the last one, come through the queue."""
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace")  # noqa: SIM115 - closed at its end
        process = subprocess.Popen(  # noqa: S603 - our own code, in our own interpreter
            [*(GIVEN_PROGRAM if self.given else PROGRAM), *self.command],
            stdin=subprocess.PIPE if self.given else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            errors="replace",
            env={"OMP_NUM_THREADS": str(threads), **os.environ},  # or each would take all the cores for itself
            process_group=0,  # Ctrl-C reaches this process only, which passes it on once: a second one would not wait
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
        """Take in what it says of itself."""
        self.steps = int(event.get("steps", event.get(STEP, self.steps)) or 0)
        self.mean = event.get("return", event.get(RETURN, self.mean))
        self.rate = float(event.get("time/fps") or self.rate)
        self.total = int(event.get("total_steps") or self.total)
        self.error = event.get("error", self.error)
        self.state = {"start": "running", "end": "ending"}.get(event["event"], self.state)

    def conclude(self, *, stopping: bool) -> None:
        """Its output has ended: wait for it, and say how it ended."""
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
        """Send a signal, where there is still somebody to receive it."""
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)

    def wait(self, seconds: float) -> None:
        """Wait for its end; after so many seconds, end it."""
        if self._process is None:
            return
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


class SeedProcesses:
    """Runs processes, at most `at_once` at a time; the first one alone until it has compiled what all of them need.

    `on_event` gets every line of JSON that one of them prints, `on_text` any other, `on_look` nothing, ten times a
    second.
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
        """Leave no process behind. They were asked to stop already, or have time to save themselves now."""
        left = [one for one in self.processes if one.alive]
        deadline = time.monotonic() + (0.0 if self._stopping else PATIENCE)
        self.stop()
        for one in left:
            one.wait(max(deadline - time.monotonic(), 0.0))

    def run(self, signals: StopSignals) -> None:
        """Run them all to their ends; after a signal, those that are alive save themselves and no other is started."""
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
        """Ask all that are alive to save themselves and end; once is enough."""
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
        self._compiled |= one.state == "running"  # it says that it starts when everything is compiled
        self._on_event(one, event)


def _parse(line: str) -> dict[str, Any] | None:
    """An event; None for what an environment has printed."""
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
