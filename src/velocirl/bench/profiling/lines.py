"""Line profile of an environment: hits and time per line, in plain Python with random actions."""

from __future__ import annotations

import importlib.util
import inspect
import linecache
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Discrete

from velocirl.engine.environment import Environment
from velocirl.training.source import Source
from velocirl.vector.making import make
from velocirl.vector.native import FleetVectorEnv

SECONDS = 2.0
ROUND = 100  # steps between checks of the clock
SEED = 0
MISSING = 'the lines of an environment need line_profiler: pip install "velocirl[profile]"'


@dataclass(frozen=True)
class Line:
    """One line of a function; its time includes its callees."""

    number: int
    text: str
    hits: int
    seconds: float
    share: float  # of the time in functions that training calls
    rank: int  # 1 is the hottest of all


@dataclass(frozen=True)
class FunctionLines:
    """Executed lines of one function, in order."""

    name: str
    file: str
    seconds: float
    share: float
    called_by_training: bool  # otherwise a callee: its time is included in its caller's
    lines: tuple[Line, ...]


@dataclass(frozen=True)
class LineReport:
    """Line profile of an environment."""

    steps: int
    seconds: float  # in the functions that training calls
    native: bool  # training runs compiled code, where shares may differ
    functions: tuple[FunctionLines, ...]  # the longest first
    interrupted: bool = False

    def hottest(self) -> tuple[FunctionLines, Line] | None:
        """Return the line that took the longest, with its function, or None."""
        return next(((one, line) for one in self.functions for line in one.lines if line.rank == 1), None)


def lines_missing() -> str | None:
    """Return instructions if line_profiler is not installed, else None."""
    return MISSING if importlib.util.find_spec("line_profiler") is None else None


def profile_lines(source: Source, *, seconds: float = SECONDS, steps: int | None = None) -> LineReport:
    """Time each line of an environment's functions in plain Python, for `steps` steps or else `seconds`.

    One environment is stepped with random actions.
    """
    if source.native is not None:
        entries, others = _native_functions(source.native)
        return _profile(entries, others, _native_rounds(source.native, source.params), seconds, steps, native=True)
    environment = make(source.id, **source.params)
    try:
        entries, others = _host_functions(environment.unwrapped)
        return _profile(entries, others, _host_rounds(environment), seconds, steps, native=False)
    finally:
        environment.close()


def _profile(
    entries: list[FunctionType],
    others: list[FunctionType],
    run: Callable[[int], None],
    seconds: float,
    steps: int | None,
    *,
    native: bool,
) -> LineReport:
    from line_profiler import LineProfiler  # optional dependency

    profiler = LineProfiler()
    for function in (*entries, *others):
        profiler.add_function(function)
    taken, deadline, interrupted = 0, time.perf_counter() + seconds, False
    profiler.enable_by_count()
    try:
        while taken < steps if steps is not None else time.perf_counter() < deadline:
            count = ROUND if steps is None else min(ROUND, steps - taken)
            run(count)
            taken += count
    except KeyboardInterrupt:  # report what was timed so far
        interrupted = True
    finally:
        profiler.disable_by_count()
    stats = profiler.get_stats()
    timings = {key: timed for key, timed in stats.timings.items() if timed}
    first = {(function.__code__.co_filename, function.__code__.co_firstlineno) for function in entries}
    return replace(_report(timings, stats.unit, first, taken, native=native), interrupted=interrupted)


def _report(
    timings: Mapping[tuple[str, int, str], list[tuple[int, int, int]]],
    unit: float,
    entries: set[tuple[str, int]],  # file and first line of each function that training calls
    steps: int,
    *,
    native: bool,
) -> LineReport:
    """Convert line_profiler's counts to shares of the time in functions that training calls."""
    spent = {key: unit * sum(ticks for _, _, ticks in timed) for key, timed in timings.items()}
    total = sum(seconds for key, seconds in spent.items() if key[:2] in entries) or 1e-12
    ranked = sorted(
        ((ticks, key, number) for key, timed in timings.items() for number, _, ticks in timed), reverse=True
    )
    ranks = {(key, number): rank for rank, (_, key, number) in enumerate(ranked, 1)}
    functions = [
        FunctionLines(
            name=key[2],
            file=key[0],
            seconds=spent[key],
            share=spent[key] / total,
            called_by_training=key[:2] in entries,
            lines=tuple(
                Line(
                    number=number,
                    text=linecache.getline(key[0], number).rstrip(),
                    hits=hits,
                    seconds=unit * ticks,
                    share=unit * ticks / total,
                    rank=ranks[key, number],
                )
                for number, hits, ticks in sorted(timed)
            ),
        )
        for key, timed in timings.items()
    ]
    return LineReport(steps, total, native, tuple(sorted(functions, key=lambda one: -one.seconds)))


def _native_functions(environment: Environment) -> tuple[list[FunctionType], list[FunctionType]]:
    """Return the functions that the engine calls, and their callees from the same files."""
    entries = list(environment.functions.values())
    return entries, list(_called(entries))


def _called(entries: list[FunctionType]) -> Iterator[FunctionType]:
    """Yield functions that the entries reference, also indirectly, and that are defined in the same files."""
    files = {function.__code__.co_filename for function in entries}
    seen: set[CodeType] = {function.__code__ for function in entries}
    waiting = list(entries)
    while waiting:
        function = waiting.pop()
        named = [function.__globals__.get(name) for name in function.__code__.co_names]
        for value in (*inspect.getclosurevars(function).nonlocals.values(), *named):
            if isinstance(value, FunctionType) and value.__code__ not in seen and value.__code__.co_filename in files:
                seen.add(value.__code__)
                waiting.append(value)
                yield value


def _host_functions(environment: gymnasium.Env) -> tuple[list[FunctionType], list[FunctionType]]:
    """Return a Gymnasium environment's `reset` and `step`, and all other functions of its classes and their files."""
    kinds = [
        kind for kind in type(environment).__mro__ if issubclass(kind, gymnasium.Env) and kind is not gymnasium.Env
    ]
    entries = [
        found
        for name in ("reset", "step")
        if isinstance(found := inspect.unwrap(getattr(type(environment), name)), FunctionType)
    ]
    others: list[FunctionType] = []
    for kind in kinds:
        module: ModuleType | None = inspect.getmodule(kind)
        beside = [] if module is None else list(vars(module).values())
        for value in [*vars(kind).values(), *beside]:
            function = inspect.unwrap(value) if isinstance(value, FunctionType) else None
            if not isinstance(function, FunctionType) or function.__module__ != kind.__module__:
                continue
            if function not in entries and function not in others:
                others.append(function)
    return entries, others


def _native_rounds(environment: Environment, params: Mapping[str, Any]) -> Callable[[int], None]:
    fleet = FleetVectorEnv(environment, 1, seed=SEED, device="python", params=params)

    def run(steps: int) -> None:
        with np.errstate(all="ignore"):  # as in compiled code
            fleet.run_randomly(steps)

    return run


def _host_rounds(environment: gymnasium.Env) -> Callable[[int], None]:
    space = environment.action_space
    discrete = isinstance(space, Discrete)
    space.seed(SEED)
    info: dict[str, Any] | None = None

    def run(steps: int) -> None:
        nonlocal info
        if info is None:
            _, info = environment.reset(seed=SEED)
        for _ in range(steps):
            mask = info.get("action_mask")
            action = space.sample(np.asarray(mask, np.int8) if mask is not None and discrete else mask)
            _, _, terminated, truncated, info = environment.step(action)
            if terminated or truncated:
                _, info = environment.reset()

    return run


def short_file(file: str) -> str:
    """Return a file's path for display: relative to the working directory if it is inside."""
    path, here = Path(file), Path.cwd()
    return str(path.relative_to(here)) if path.is_relative_to(here) else file
