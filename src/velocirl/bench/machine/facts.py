"""Circumstances of a measurement: the machine, the versions and its load."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path

from velocirl.engine.targets.cpu import available_cores
from velocirl.runs.processor import output_of, processor
from velocirl.version import __version__

PACKAGES = (
    "numpy",
    "numba",
    "llvmlite",
    "gymnasium",
    "envpool",
    "jax",
    "stable_baselines3",
    "torch",
)
ABSENT = "not installed"
BUSY_FROM = 0.5  # load average per core, above which another program is assumed to be running


@dataclass(frozen=True)
class Machine:
    """Everything a measurement depends on besides the code."""

    processor: str
    cores: int  # cores that this process may use
    memory_bytes: int
    system: str
    load: float  # average of the last minute, before the run
    commit: str  # commit of velocirl's checkout; empty if it is installed from a package
    versions: dict[str, str] = field(default_factory=dict)
    gpu: str = ""

    @property
    def identity(self) -> tuple[str, int, int, str]:
        """Hardware that two runs must share for their values to be compared directly."""
        return self.processor, self.cores, round(self.memory_bytes / 2**30), self.gpu

    @property
    def busy(self) -> bool:
        """True if other programs were running."""
        return self.load > BUSY_FROM * self.cores

    @property
    def warnings(self) -> list[str]:
        """One line if the machine was busy."""
        rule = f"above {BUSY_FROM:g} per core: something else is running, too busy to conclude from"
        return [f"load average {self.load:.2f} on {self.cores} cores before the run, {rule}"] if self.busy else []


def this_machine() -> Machine:
    """Describe the machine that this process runs on."""
    return Machine(
        processor=processor(),
        cores=available_cores(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()}",
        load=os.getloadavg()[0],
        commit=_commit(),
        versions=_versions(),
        gpu=output_of("nvidia-smi", "--query-gpu=name", "--format=csv,noheader"),
    )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version(), "velocirl": __version__}
    for package in PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = ABSENT
    return versions


def _commit() -> str:
    """Return the checked-out commit, marked if files were changed since."""
    here = Path(__file__).resolve()
    git = ("git", "-C", str(here.parent))
    # A virtual environment inside some other repository is not a checkout of velocirl.
    if not output_of(*git, "ls-files", here.name):
        return ""
    changed = output_of(*git, "status", "--porcelain", "--untracked-files=no")
    return output_of(*git, "rev-parse", "HEAD") + (" with changes" if changed else "")
