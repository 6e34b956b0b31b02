"""Registry of benchmarks: decorated functions; those in `velocirl.bench.suite` are found automatically."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from velocirl.engine.naming import nearest
from velocirl.training.importing import import_file

SUITE = "velocirl.bench.suite"
ENDING = ".py"
DEVICE = "device"
# The categories a user can select; a user's own benchmark may have its own category.
CATEGORIES = {
    "compile": "from nothing to a first step: cold and cached compile times",
    "environment": "environments alone: steps per second, memory of a copy",
    "vector": "fleets through Gymnasium's interface, and structured spaces",
    "network": "networks forward and backward, by size, beside the machine's peak",
    "learning": "the parts of an update: advantages, losses, optimisers, buffers, tables",
    "training": "whole training: steps per second, and the time until it is solved",
    "memory": "memory of copies, episodes and runs, and whether it stays",
    "scaling": "threads, processes and ranks beside one",
    DEVICE: "GPUs, beside the CPU",
}
Define = TypeVar("Define", bound=Callable[[], object])
_benchmarks: dict[str, Benchmark] = {}


@dataclass(frozen=True)
class Benchmark:
    """Function that defines a comparison; the first line of its docstring is the title, the rest are notes."""

    category: str
    define: Callable[[], object]
    standard: bool = True  # measured if the user selects nothing
    quick: bool = True  # also measured in a quick pass
    metadata: Mapping[str, str | float | int | bool | None] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """Name of the function."""
        return self.define.__name__

    @property
    def file(self) -> str:
        """Name of the file that defines it, without its extension."""
        return Path(inspect.getfile(self.define)).stem

    @property
    def title(self) -> str:
        """Human-readable title of the measurement."""
        return (inspect.getdoc(self.define) or self.name).partition("\n")[0].removesuffix(".")

    @property
    def notes(self) -> str:
        """Background a reader needs to judge the comparison."""
        return " ".join((inspect.getdoc(self.define) or "").partition("\n")[2].split())


def benchmark(
    *, category: str, standard: bool = True, quick: bool = True, **metadata: str | float | int | bool | None
) -> Callable[[Define], Define]:
    """Register a function as a benchmark of this category.

    The function returns the measurement: a function to time, a `Timed`, a `Counted`, or a `Comparison` of several. A
    benchmark that is not `standard` is measured only if it, its file or its category is named; one that takes too long
    for a quick pass is not `quick`. `metadata` is stored with its results.
    """

    def register(define: Define) -> Define:
        if not inspect.getdoc(define):
            raise TypeError(f"the benchmark {define.__name__} needs a docstring: its first line is the title")
        earlier = _benchmarks.get(define.__name__)
        if earlier is not None and earlier.define.__module__ != define.__module__:
            raise ValueError(f"{earlier.define.__module__} has a benchmark {define.__name__} already")
        _benchmarks[define.__name__] = Benchmark(category, define, standard, quick, metadata)
        return define

    return register


def at_a_glance(benchmarks: Iterable[Benchmark], *, gpu: bool) -> tuple[list[Benchmark], list[str]]:
    """Split benchmarks into those for a quick pass and the names of the others.

    The first of each category come first, then the second: every category is covered, however far the time goes.
    Without a `gpu`, the GPU benchmarks come last, since they yield little.
    """
    some, met = list(benchmarks), Counter[str]()
    turns: dict[str, int] = {}
    for one in some:
        met[one.category] += one.quick
        turns[one.name] = len(some) if one.category == DEVICE and not gpu else met[one.category]
    quick = sorted((one for one in some if one.quick), key=lambda one: turns[one.name])
    return quick, [one.name for one in some if not one.quick]


def find_benchmarks(words: Iterable[str] = (), *, everything: bool = False) -> list[Benchmark]:
    """Return the benchmarks that `words` select, in the order of the suite's files and lines.

    A word is a category, the name of a benchmark, the name of a file of the suite, or the path of a user's own file.
    Without words, the standard benchmarks are returned, or `everything`.
    """
    for module in pkgutil.walk_packages(importlib.import_module(SUITE).__path__, f"{SUITE}."):
        importlib.import_module(module.name)
    words = list(words)
    chosen: set[str] = set()
    for word in words:
        chosen |= _of_file(Path(word)) if word.endswith(ENDING) else _meant_by(word)
    if words:
        return [one for one in _benchmarks.values() if one.name in chosen]
    return [one for one in _benchmarks.values() if everything or one.standard]


def _meant_by(word: str) -> set[str]:
    """Return the names of the benchmarks of a category, of one benchmark, or of a suite file, tried in this order."""
    known = list(_benchmarks.values())
    for names in (
        {one.name for one in known if one.category == word},
        {one.name for one in known if one.name == word},
        {one.name for one in known if one.file == word},
    ):
        if names:
            return names
    categories = list(dict.fromkeys([*CATEGORIES, *(one.category for one in known)]))
    if word in CATEGORIES:
        raise ValueError(f"there are no benchmarks of category {word!r} yet")
    near = nearest(word, [*categories, *dict.fromkeys(name for one in known for name in (one.name, one.file))])
    hint = near if near.startswith(": did you mean") else f"; the categories are {', '.join(categories)}"
    raise ValueError(f"there is no category and no benchmark {word!r}{hint} (velocirl bench --list shows them)")


def _of_file(path: Path) -> set[str]:
    """Import a user's own file and return the names of the benchmarks it defines."""
    path = path.expanduser().resolve()
    if not path.is_file():
        raise ValueError(f"there is no file {path}, in which benchmarks should be defined")
    import_file(path)
    names = {one.name for one in _benchmarks.values() if Path(inspect.getfile(one.define)).resolve() == path}
    if not names:
        raise ValueError(f"{path} defines no benchmark: a function below @benchmark(category=...) is missing")
    return names
