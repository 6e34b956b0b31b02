"""Python code in a process of its own, for what can be measured only once in a process."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

TIMEOUT_SECONDS = 120


def run_python(
    code: str,
    home: Path | None = None,
    through: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> str:
    """Run code in a fresh interpreter, and return what it printed.

    Its compiled functions are kept in `home` where given; `through` is a command that starts it, such as mpirun with
    its options, and `environment` what it finds there besides.
    """
    kept = {"VELOCIRL_HOME": str(home)} if home else {}
    done = subprocess.run(  # noqa: S603 - our own code, in our own interpreter
        [*through, sys.executable, "-P", "-c", code],  # -P: no file of the current directory is taken for a package
        env={**os.environ, **kept, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"a measured process ended with {done.returncode}:\n{done.stderr}")
    return done.stdout


def seconds_of(call: Callable[[], object]) -> float:
    """The time of one call, for what starts a process each time: nothing of it needs to be warm."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
