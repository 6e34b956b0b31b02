"""Benchmarks of speed, start-up time and memory, against peer libraries in the same run.

A new benchmark is one decorated function.
"""

from velocirl.bench.comparison import Comparison, UnavailableError, difference, ratio, value
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Counted, Timed
from velocirl.bench.performance import PerformanceBenchmark
from velocirl.bench.registry import benchmark

__all__ = [
    "Comparison",
    "Cost",
    "Counted",
    "PerformanceBenchmark",
    "Timed",
    "UnavailableError",
    "benchmark",
    "difference",
    "ratio",
    "value",
]
