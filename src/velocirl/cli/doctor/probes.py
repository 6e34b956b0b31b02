"""Probes of `velocirl doctor`: what is installed, where files are stored, and whether everything works."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any, Literal

import velocirl
from velocirl.engine.disk.directories import cache_directory, data_directory
from velocirl.engine.targets.cpu import available_cores
from velocirl.monitor.words import plural
from velocirl.runs.directory import list_runs
from velocirl.runs.groups import group_paths
from velocirl.runs.processor import processor

CHILDREN = Path(__file__).with_name("children.py")
PATIENCE = 120.0  # seconds for a probe in a child process; the first import of torch may be slow
PACKAGES = ("numpy", "numba", "llvmlite", "gymnasium")
OWN_EXTRAS = {"torch", "cuda", "mpi", "onnx", "plots", "tensorboard", "render"}  # extras declared in pyproject.toml
# Each extra (or package without one) with its modules and their purpose.
EXTRAS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("plots", ("matplotlib",), "pictures of learning curves"),
    ("onnx", ("onnx",), "policies exported as ONNX"),
    ("tensorboard", ("tensorboard",), "TensorBoard events"),
    ("render", ("pygame", "moviepy"), "windows and videos"),
    ("mujoco", ("mujoco",), "gym: environments of MuJoCo"),
)
Status = Literal["works", "missing", "broken"]


@dataclass(frozen=True)
class Finding:
    """Result of a probe: status, details and advice."""

    status: Status
    detail: str
    advice: str = ""
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Probe:
    """A probe; `look` receives the earlier findings by name."""

    section: str
    name: str
    look: Callable[[dict[str, Finding]], Finding]


def probes() -> list[Probe]:
    """Return all probes, in order."""
    return [
        Probe("machine", "Python", lambda _: Finding("works", f"{platform.python_version()} at {sys.executable}")),
        Probe("machine", "platform", lambda _: Finding("works", platform.platform())),
        Probe("machine", "processor", lambda _: _processor()),
        Probe("packages", "velocirl", lambda _: _velocirl()),
        *(Probe("packages", name, lambda _, name=name: _package(name)) for name in PACKAGES),
        Probe("places", "compile cache", lambda _: _cache()),
        Probe("places", "runs", lambda _: _data()),
        Probe("CPU", "compiled environments", lambda _: in_child("engine", advice="pip install --upgrade numba")),
        Probe("CPU", "NumPy matrix product", lambda _: in_child("numpy")),
        Probe("CPU", "torch", lambda _: _optional("torch", ("torch",), "networks of torch", "torch")),
        Probe("CUDA", "driver", lambda _: in_child("driver")),
        Probe("CUDA", "environments on the GPU", _cuda_engine),
        Probe("CUDA", "torch on the GPU", lambda found: _cuda_torch(found, "cuda_torch")),
        Probe("CUDA", "CUDA graphs", lambda found: _cuda_torch(found, "cuda_graph")),
        Probe("other", "MPI", lambda _: _optional("mpi", ("mpi4py",), "tables on many machines", "mpi")),
        *(
            Probe("other", extra, lambda _, extra=extra, names=names, use=use: _optional(extra, names, use))
            for extra, names, use in EXTRAS
        ),
    ]


def in_child(probe: str, *arguments: str, advice: str = "", patience: float = PATIENCE) -> Finding:
    """Run a probe of `children` in a child process; a crash or a timeout is a finding."""
    command = [sys.executable, "-P", str(CHILDREN), probe, *arguments]
    # Files, not pipes: a helper process started by a library would keep a pipe open.
    with (
        tempfile.TemporaryFile("w+", errors="replace") as said,
        tempfile.TemporaryFile("w+", errors="replace") as errors,
    ):
        process = subprocess.Popen(  # noqa: S603 - our own code, in our own interpreter
            command, stdin=subprocess.DEVNULL, stdout=said, stderr=errors, process_group=0
        )
        try:
            code = process.wait(patience)
        except subprocess.TimeoutExpired:
            return Finding("broken", f"gave no answer in {patience:.0f} s", advice)
        finally:
            with contextlib.suppress(ProcessLookupError):  # the child, after Ctrl-C too, and its helpers
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said.seek(0)
        errors.seek(0)
        answers = [line for line in said if line.startswith("{")]
        if code != 0 or not answers:
            return Finding("broken", _how(code, errors.read()), advice)
    facts = json.loads(answers[-1])
    status, detail = facts.pop("status", "works"), facts.pop("detail")
    return Finding(status, detail, facts.pop("advice", ""), facts)


def install(name: str) -> str:
    """Return the command that installs an extra or a package."""
    return f'pip install "velocirl[{name}]"' if name in OWN_EXTRAS else f"pip install {name}"


def _how(code: int, complaints: str) -> str:
    """Format why a process failed in one line: its signal, or the last line of its errors."""
    if code < 0:
        known = -code in {one.value for one in signal.Signals}
        return f"crashed with {signal.Signals(-code).name if known else f'signal {-code}'}"
    said = [line.strip() for line in complaints.splitlines() if line.strip()]
    return said[-1] if said else f"ended with exit code {code}"


def _optional(extra: str, names: tuple[str, ...], use: str, probe: str | None = None) -> Finding:
    """Run the probe of an optional package, if it is installed."""
    absent = [name for name in names if not _installed(name)]
    command = install(extra)
    if absent:
        return Finding("missing", f"{' and '.join(absent)} not installed; for {use}", command)
    again = f"{command} --force-reinstall"
    return in_child("modules", *names, advice=again) if probe is None else in_child(probe, advice=again)


def _cuda_engine(found: dict[str, Finding]) -> Finding:
    if not _installed("numba_cuda"):
        return Finding("missing", "numba-cuda not installed", install("cuda"))
    if found["driver"].status != "works":
        return Finding("missing", "numba-cuda is installed, but there is no device")
    return in_child("cuda_engine", advice=f"{install('cuda')} --upgrade")


def _cuda_torch(found: dict[str, Finding], probe: str) -> Finding:
    built = found["torch"]
    if built.status == "missing":
        return Finding("missing", "torch not installed", install("torch"))
    if built.status == "works" and built.facts.get("cuda") is None:
        return Finding(
            "missing", "this torch is built without CUDA", "install a CUDA build: pytorch.org/get-started/locally"
        )
    if found["driver"].status != "works":
        return Finding("missing", "torch is built for CUDA, but there is no device")
    return in_child(probe, advice="compare the driver's CUDA version with torch's: pytorch.org/get-started/locally")


def _processor() -> Finding:
    cores, memory = available_cores(), os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    detail = f"{processor()}, {cores} of {os.cpu_count()} cores for this process, {memory / 2**30:.0f} GiB"
    return Finding("works", detail, facts={"cores": cores, "memory_bytes": memory})


def _velocirl() -> Finding:
    place = str(Path(velocirl.__file__).parent)
    return Finding("works", f"{velocirl.__version__} at {place}", facts={"version": velocirl.__version__})


def _package(name: str) -> Finding:
    version = metadata.version(name)
    return Finding("works", version, facts={"version": version})


def _cache() -> Finding:
    path = cache_directory()
    sizes = [file.stat().st_size for file in path.iterdir() if file.is_file()]
    with tempfile.TemporaryFile(dir=path) as file:  # raises if the directory is not writable
        file.write(b"velocirl")
    entries = len(sizes)
    detail = f"{path}: {entries} compiled functions, {sum(sizes) / 2**20:,.1f} MiB, writable"
    facts = {"path": str(path), "bytes": sum(sizes), "entries": entries}
    return Finding("works", detail, f"to clear it: rm -r {path}", facts)


def _data() -> Finding:
    path = data_directory()
    there = next(one for one in (path, *path.absolute().parents) if one.exists())
    with tempfile.TemporaryFile(dir=there) as file:
        file.write(b"velocirl")
    runs, groups = len(list_runs()), len(group_paths())
    grouped = f" ({plural(groups, 'group')} among them)" if groups else ""
    return Finding(
        "works", f"{path}: {plural(runs, 'run')}{grouped}, writable", facts={"path": str(path), "runs": runs}
    )


def _installed(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):  # partly installed: the probe reports what is wrong
        return True
