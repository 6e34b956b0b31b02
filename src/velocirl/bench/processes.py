"""Python code in a fresh process, for measurements that are possible only once per process."""

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
    """Run code in a fresh interpreter; return its output.

    Its compiled functions are cached in `home`, if given. `through` is a launch command, such as mpirun with its
    options. `environment` holds additional environment variables.
    """
    kept = {"VELOCIRL_HOME": str(home)} if home else {}
    done = subprocess.run(  # noqa: S603 - our own code, in our own interpreter
        [*through, sys.executable, "-P", "-c", code],  # -P: no file of the current directory is imported as a package
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
    """Return the seconds of one call, for functions that start a process each time: no warm-up is needed."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
