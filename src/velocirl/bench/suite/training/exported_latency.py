"""Latency of one decision of an exported policy: as C, as ONNX, and unexported."""

from __future__ import annotations

import ctypes
import importlib.util
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import velocirl
from velocirl.bench.comparison import Comparison, UnavailableError, ratio, value
from velocirl.bench.measuring import Timed
from velocirl.bench.registry import benchmark
from velocirl.bench.units import SECONDS

MOST_SECONDS = 5e-6
ROWS = 256  # observations of a loop in C, one by one
NAME = "measured"
LOOP = f"""
int {NAME}_predict(const float *observation, float *action);
void decide(const float *observations, int rows, int numbers, float *action);
void decide(const float *observations, int rows, int numbers, float *action)
{{
    for (int row = 0; row < rows; row++) {NAME}_predict(observations + row * numbers, action);
}}
"""


def policy() -> Any:
    """Create a policy of a typical controller's size; being untrained does not change the time."""
    return velocirl.PPO(
        "ChemicalReactor-v0", hidden=(64, 64), activation="tanh", normalise_observations=True, seed=0, device="cpu"
    )


def observations(agent: Any) -> Any:
    """Return plausible observations of the plant, (ROWS, numbers)."""
    space = agent.source.observation_space
    return np.random.default_rng(0).uniform(space.low, space.high, (ROWS, len(space.low))).astype(np.float32)


class Many(Timed):
    """Sampler of a call that makes ROWS decisions: seconds per decision."""

    def _figure(self, seconds: float) -> float:
        return super()._figure(seconds) / ROWS


def compiled(folder: Path, agent: Any, weights: str) -> ctypes.CDLL:
    """Compile the exported file as a user would, with a loop around it."""
    compiler = shutil.which("cc")
    if compiler is None:
        raise UnavailableError("no C compiler")
    sources = [velocirl.export(agent, folder / "policy.c", weights=weights, name=NAME), folder / "loop.c"]
    sources[1].write_text(LOOP)
    library = folder / "policy.so"
    command = [compiler, "-std=c99", "-O3", "-shared", "-fPIC", *map(str, sources), "-lm", "-o", str(library)]
    subprocess.run(command, check=True)  # noqa: S603 - the compiler of this machine, on files of our own
    return ctypes.CDLL(str(library))


def in_c(weights: str) -> Timed:
    """Time a loop in C that decides for one observation after another."""
    agent = policy()
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder), agent, weights)
    seen, action = observations(agent), np.zeros(3, np.float32)
    pointers = ctypes.c_void_p(seen.ctypes.data), ctypes.c_void_p(action.ctypes.data)

    def decide() -> Any:
        library.decide(pointers[0], ROWS, seen.shape[1], pointers[1])
        return seen, action  # keeps the arrays alive: C reads and writes them

    return Many(decide)


def by_ctypes() -> Timed:
    """Time the exported function, called from Python for one observation."""
    agent = policy()
    with tempfile.TemporaryDirectory() as folder:
        library = compiled(Path(folder), agent, "float32")
    function, seen, action = library[f"{NAME}_predict"], observations(agent)[0], np.zeros(3, np.float32)
    pointers = ctypes.c_void_p(seen.ctypes.data), ctypes.c_void_p(action.ctypes.data)
    return Timed(lambda: (function(*pointers), seen, action))


def by_onnx() -> Timed:
    """Time ONNX Runtime on one thread, with one observation as a NumPy array."""
    if importlib.util.find_spec("onnxruntime") is None:
        raise UnavailableError("onnxruntime is not installed")
    import onnxruntime

    agent = policy()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    with tempfile.TemporaryDirectory() as folder:
        path = velocirl.export(agent, Path(folder) / "policy.onnx")
        session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    given = {"observation": observations(agent)[:1]}
    return Timed(lambda: session.run(None, given))


def by_predict() -> Timed:
    """Time `predict` with one observation."""
    agent = policy()
    seen = observations(agent)[0]
    return Timed(lambda: agent.predict(seen, deterministic=True))


@benchmark(category="network")
def decide_exported() -> Comparison:
    """One decision of a policy of 64x64 (tanh, normaliser, three limits) as it was exported.

    `velocirl export`, compiled with `cc -O3`: called in a loop of C, with weights in single precision and as whole
    numbers, and from Python through ctypes. Beside it the same policy in ONNX Runtime on one thread, and by `predict`.
    """
    return Comparison(
        unit=SECONDS,
        contestants={
            "C": lambda: in_c("float32"),
            "C, int8": lambda: in_c("int8"),
            "C by ctypes": by_ctypes,
            "ONNX Runtime": by_onnx,
            "predict": by_predict,
        },
        claims=(
            value("C", at_most=MOST_SECONDS),
            value("C, int8", at_most=MOST_SECONDS),
            value("C by ctypes", at_most=MOST_SECONDS),
            ratio("C", "ONNX Runtime"),
            ratio("C", "predict"),
        ),
    )
