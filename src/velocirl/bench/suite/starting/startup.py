"""Time from process start to a first step."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from velocirl.bench.comparison import Comparison, difference
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.processes import run_python, seconds_of
from velocirl.bench.registry import benchmark
from velocirl.bench.units import SECONDS

IMPORTS = "import numba, gymnasium"
FIRST_STEP = """
import numpy, velocirl
env = velocirl.make_vec("CartPole-v1", 4096)
env.reset(seed=0)
env.step(numpy.zeros(4096, numpy.int64))
"""


@benchmark(category="compile", quick=False)
def first_step() -> Comparison:
    """Fresh process to the first step of 4096 CartPoles.

    Whole processes are timed, so each figure holds Python's own start; differences do not. The imports that velocirl
    cannot do without are measured alone beside it. The cold cache is an empty VELOCIRL_HOME.
    """
    warm, cold, imports = "first step, warm cache", "first step, cold cache", IMPORTS
    return Comparison(
        unit=SECONDS,
        contestants={imports: _only_imports, warm: _warm_cache, cold: _cold_cache},
        claims=(difference(warm, imports, at_most=0.5), difference(cold, warm, at_most=3.0)),
    )


def _only_imports() -> Timed:
    return Timed(lambda: run_python(IMPORTS))


def _warm_cache() -> Timed:
    home = Path(tempfile.mkdtemp(prefix="velocirl-bench-"))
    return Timed(lambda: run_python(FIRST_STEP, home), closing=lambda: shutil.rmtree(home))


def _cold_cache() -> Counted:
    def in_empty_home() -> None:
        with tempfile.TemporaryDirectory(prefix="velocirl-bench-") as home:
            run_python(FIRST_STEP, Path(home))

    return Counted(lambda: seconds_of(in_empty_home))
