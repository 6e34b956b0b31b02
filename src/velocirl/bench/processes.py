"""Python code in a process of its own, for what can be measured only once in a process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TIMEOUT_SECONDS = 120


def run_python(code: str, home: Path | None = None) -> str:
    """Run code in a fresh interpreter, its compiled functions kept in `home` where given; returns what it printed."""
    done = subprocess.run(  # noqa: S603 - our own code, in our own interpreter
        [sys.executable, "-P", "-c", code],  # -P: a file in the current directory is not the package of its name
        env={**os.environ, "VELOCIRL_HOME": str(home)} if home else None,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
    if done.returncode != 0:
        raise RuntimeError(f"a measured process ended with {done.returncode}:\n{done.stderr}")
    return done.stdout
