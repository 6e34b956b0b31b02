"""Where figures were taken: the machine, the versions, and what else was running."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

PACKAGES = (
    "velocirl",
    "numpy",
    "numba",
    "llvmlite",
    "gymnasium",
    "envpool",
    "jax",
    "optax",
    "stable_baselines3",
    "torch",
)
BUSY_FROM = 0.5  # load average per core, above which something else is working here


@dataclass(frozen=True)
class Machine:
    """What a figure depends on besides the code."""

    processor: str
    cores: int  # that this process may use
    memory_bytes: int
    system: str
    load: float  # average of the last minute, before the run
    commit: str  # of velocirl's checkout; empty when it is installed from a package
    versions: dict[str, str] = field(default_factory=dict)

    @property
    def busy(self) -> bool:
        """Whether something else was working here."""
        return self.load > BUSY_FROM * self.cores

    @property
    def warnings(self) -> list[str]:
        """A line where the machine was busy."""
        rule = f"above {BUSY_FROM:g} per core: something else is running, too busy to conclude from"
        return [f"load average {self.load:.2f} on {self.cores} cores before the run, {rule}"] if self.busy else []


def this_machine() -> Machine:
    """The machine that this process runs on."""
    return Machine(
        processor=_processor(),
        cores=available_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()}",
        load=os.getloadavg()[0],
        commit=_commit(),
        versions=_versions(),
    )


def available_cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _processor() -> str:
    description = Path("/proc/cpuinfo")
    if description.exists():
        for line in description.read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    if sys.platform == "darwin":
        return _output("sysctl", "-n", "machdep.cpu.brand_string") or platform.machine()
    return platform.processor() or platform.machine()


def _commit() -> str:
    """The checked-out commit, marked where files were changed since."""
    here = Path(__file__).resolve()
    git = ("git", "-C", str(here.parent))
    # A virtual environment inside some other repository is not a checkout of velocirl.
    if not _output(*git, "ls-files", here.name):
        return ""
    changed = _output(*git, "status", "--porcelain", "--untracked-files=no")
    return _output(*git, "rev-parse", "HEAD") + (" with changes" if changed else "")


def _output(program: str, *arguments: str) -> str:
    path = shutil.which(program)
    if path is None:
        return ""
    done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False)  # noqa: S603
    return done.stdout.strip() if done.returncode == 0 else ""
