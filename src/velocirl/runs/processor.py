"""Name of the processor: results and runs depend on the machine."""

import platform
import shutil
import subprocess
import sys
from pathlib import Path


def processor() -> str:
    """Return the name of the processor."""
    description = Path("/proc/cpuinfo")
    if description.exists():
        for line in description.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        return output_of("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return platform.processor() or platform.machine()


def output_of(program: str, *arguments: str) -> str:
    """Return the output of a program; empty if it fails or is not installed."""
    path = shutil.which(program)
    if path is None:
        return ""
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else ""
