"""The benchmarks. A decorated function is one; those of `velocirl.bench.suite` are found by themselves."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from velocirl.bench.comparison import Comparison
from velocirl.engine.naming import nearest

SUITE = "velocirl.bench.suite"
_benchmarks: dict[str, Benchmark] = {}


@dataclass(frozen=True)
class Benchmark:
    """A function that says what to compare; the first line of its docstring is the title, the rest are notes."""

    category: str
    define: Callable[[], Comparison]

    @property
    def name(self) -> str:
        """The name of the function."""
        return self.define.__name__

    @property
    def title(self) -> str:
        """What is measured, for people."""
        return inspect.getdoc(self.define).partition("\n")[0].removesuffix(".")  # pyright: ignore

    @property
    def notes(self) -> str:
        """What a reader needs to know to judge the comparison."""
        return " ".join(inspect.getdoc(self.define).partition("\n")[2].split())  # pyright: ignore


def benchmark(*, category: str) -> Callable[[Callable[[], Comparison]], Callable[[], Comparison]]:
    """Make a function a benchmark of this category."""

    def register(define: Callable[[], Comparison]) -> Callable[[], Comparison]:
        if not inspect.getdoc(define):
            raise TypeError(f"the benchmark {define.__name__} needs a docstring: its first line is the title")
        earlier = _benchmarks.get(define.__name__)
        if earlier is not None and earlier.define.__module__ != define.__module__:
            raise ValueError(f"{earlier.define.__module__} has a benchmark {define.__name__} already")
        _benchmarks[define.__name__] = Benchmark(category, define)
        return define

    return register


def find_benchmarks(categories: Iterable[str] = ()) -> list[Benchmark]:
    """The benchmarks of these categories, or all, in the order of the suite's files and lines."""
    for module in pkgutil.iter_modules(importlib.import_module(SUITE).__path__):
        importlib.import_module(f"{SUITE}.{module.name}")
    known = sorted({one.category for one in _benchmarks.values()})
    wanted = set(categories)
    for category in sorted(wanted - set(known)):
        raise ValueError(f"no benchmarks of category {category!r}{nearest(category, known)}")
    return [one for one in _benchmarks.values() if not wanted or one.category in wanted]
