"""Peer library in its own process, measured in turn with the others."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from velocirl.bench.comparison import UnavailableError
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed

SERVING = Path(__file__).with_name("serving.py")
CORES = 2  # as many as velocirl's threads in these comparisons
THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
TIMEOUT_SECONDS = 120.0  # for one answer
LONGEST_REASON = 200  # characters, to fit a table


class PeerError(UnavailableError, RuntimeError):
    """Raised when a peer's process ended; the message is the line with the reason, a note holds its whole output."""

    def __init__(self, code: int, written: str) -> None:
        super().__init__(f"a measured peer ended with {code}: {reason(written)}".rstrip(": "))
        self.add_note(written)


def reason(written: str) -> str:
    """Return the traceback's line that names the error or, if there is none, the last line."""
    lines = [line.strip() for line in written.splitlines() if line.strip()]
    errors = [line for line in lines if re.match(r"[\w.]*(Error|Exception|Interrupt)\b", line)]
    return (errors or lines or [""])[-1][:LONGEST_REASON]


class Peer(Timed):
    """Samples a program of this directory that times itself; its imports and threads affect no other measurement."""

    def __init__(
        self,
        program: str,
        function: str,
        *arguments: int,
        needs: str,
        amount: float | None = None,
        cores: int | None = None,  # available cores, if not as many as velocirl's threads in these comparisons
        cost: Cost | None = None,
        python_of: str | None = None,  # environment variable that names the peer's own interpreter
    ) -> None:
        super().__init__(lambda: self._seconds(1), amount=amount, closing=self._end, cost=cost)
        python = sys.executable if python_of is None else os.environ.get(python_of)
        if python is None:
            raise UnavailableError(f"{python_of} names no python that has {needs}")
        if python_of is None and importlib.util.find_spec(needs) is None:
            raise ModuleNotFoundError(f"No module named {needs!r}", name=needs)
        self._errors = tempfile.TemporaryFile("w+", encoding="utf-8")  # noqa: SIM115 - closed with the process
        # A script finds modules in its own directory, not in the current one.
        command = [python, str(SERVING), str(cores or CORES), program, function, *map(str, arguments)]
        # If the number of cores matters, it overrides the user's settings for all programs.
        told = {name: str(cores) for name in THREAD_VARIABLES} if cores is not None else {}
        self._process = subprocess.Popen(  # noqa: S603 - our own code, in an interpreter that the user named
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            env={**os.environ, **told},
        )
        try:
            self._answer()
        except BaseException:
            self._end()
            raise

    def best(self, attempts: int) -> float:
        """Return the shortest of `attempts` single calls, in seconds."""
        return min(self._seconds(1) for _ in range(attempts))

    def _seconds(self, iterations: int) -> float:
        assert self._process.stdin is not None  # noqa: S101 - for the type checker: it is a pipe
        with suppress(BrokenPipeError):  # it has ended; `_answer` reports why
            self._process.stdin.write(f"{iterations}\n")
            self._process.stdin.flush()
        return float(self._answer())

    def _answer(self) -> str:
        assert self._process.stdout is not None  # noqa: S101 - for the type checker: it is a pipe
        limit = threading.Timer(TIMEOUT_SECONDS, self._process.kill)
        limit.start()
        line = self._process.stdout.readline()
        limit.cancel()
        if not line:
            code = self._process.wait()
            self._errors.seek(0)
            raise PeerError(code, self._errors.read())
        return line

    def _end(self) -> None:
        self._process.kill()  # it holds nothing that needs an orderly shutdown
        self._process.communicate()
        self._errors.close()
