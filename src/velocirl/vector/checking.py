"""Environment validation: all problems of an environment in one error."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

from velocirl.engine import random, registry
from velocirl.engine.action_parts import as_given, has_parts
from velocirl.engine.checking.rehearsal import left_unwritten, problems
from velocirl.engine.checking.telling import described
from velocirl.engine.environment import COMPILED, Environment
from velocirl.engine.errors import DefinitionError
from velocirl.engine.fleets.fleet import saved
from velocirl.engine.fleets.sampling import sampler
from velocirl.engine.framing import whole_frame
from velocirl.engine.records import with_attributes
from velocirl.engine.warning import warn_caller
from velocirl.vector.checked_env import check_gymnasium
from velocirl.vector.given import name_of, native_of
from velocirl.vector.gymnasium_ids import explained, import_for
from velocirl.vector.making import GYMNASIUM
from velocirl.vector.native import FleetVectorEnv

OUTCOMES = ("reward", "terminated", "truncated", "costs")
COPIES = 64
STEPS = 64
SEEDS = 4
ENDLESS, ENDLESS_COPIES = 10_000, 8  # random steps of each environment without an episode's end
TOLERANCE = 1e-4  # relative to max(1, |value|); single steps agree to about 1e-6


def check_env(
    environment: str | Environment | gymnasium.Env | Callable[[], gymnasium.Env], *, quiet: bool = False
) -> None:
    """Run an environment with random actions, and raise one DefinitionError that lists all problems.

    `environment` is an id, `gym:ID`, a velocirl `Environment`, a Gymnasium environment (which is stepped) or a function
    that makes one. Checked: exceptions and wrong returns, ranges of observations and rewards, determinism. Further
    checks of a velocirl environment: fields that reset does not write; observe or legal changing the state; plain
    Python against compiled results, step by step. Without problems, a report of the checks is printed unless `quiet`.
    Endless episodes without a time limit cause a warning.
    """
    if (other := _of_gymnasium(environment)) is not None:
        made, name = other
        try:
            report = check_gymnasium(made, name)
        finally:
            if made is not environment:
                made.close()
        if not quiet:
            print(report)
        return
    native = native_of(environment) if isinstance(environment, gymnasium.Env) else None
    found = registry.find(environment) if native is None else native[0].environment  # pyright: ignore[reportArgumentType]
    with np.errstate(all="ignore"):
        faults = list(dict.fromkeys(_faults(found)))
    if faults:
        listing = "\n".join(f"- {fault}" for fault in faults)
        raise DefinitionError(f"{found.id} has {len(faults)} problem{'s'[: len(faults) > 1]}:\n{listing}")
    _warn_of_endless(found)
    if not quiet:
        print(_checked(found))


def _of_gymnasium(environment: Any) -> tuple[gymnasium.Env, str] | None:
    """Make the Gymnasium environment to be checked, and name it; None for a velocirl environment."""
    if isinstance(environment, str):
        if not environment.startswith(GYMNASIUM):
            return None
        name = environment.removeprefix(GYMNASIUM)
        with explained(name):
            return gymnasium.make(import_for(name), disable_env_checker=True), environment
    if isinstance(environment, gymnasium.Env):
        return None if native_of(environment) else (environment, name_of(environment))
    if isinstance(environment, Environment) or not callable(environment):
        return None
    made = environment()
    if not isinstance(made, gymnasium.Env):
        raise TypeError(f"{name_of(environment)} returned {made!r}: let it return a gymnasium.Env")
    return made, name_of(made)


def _warn_of_endless(environment: Environment) -> None:
    """Warn about an environment without a time limit if no random episode ends."""
    if environment.max_steps is not None:
        return
    fleet = FleetVectorEnv(environment, ENDLESS_COPIES, seed=1)
    for steps in range(1000, ENDLESS + 1, 1000):
        fleet.run_randomly(1000)
        if (fleet.copies.elapsed < steps).any():
            return
    warn_caller(
        f"{environment.id}: no episode ended in {ENDLESS:,} random steps of each of {ENDLESS_COPIES} environments, and"
        " there is no time limit: set max_steps= in Environment(...), or end episodes in step"
    )


def _checked(environment: Environment) -> str:
    """Describe the checks performed, which shows what a passed check covers."""
    functions = list(environment.functions)
    others = " and ".join(functions[2:])  # observe, legal where present, constraint values
    return "\n".join(
        [
            f"{environment.id} is sound, as far as random actions show:",
            f"- {', '.join(functions)}: {SEEDS} x {STEPS} steps in plain Python, with all they return in range",
            f"- reset writes every field of {environment.state.name}, {others} none",
            f"- compiled as in plain Python: {COPIES} copies, {STEPS} single steps from the same states",
            f"- the same seed gives the same: {COPIES} copies, {STEPS} steps, twice",
        ]
    )


def _faults(environment: Environment) -> Iterator[str]:
    params = environment.params.rows(1)
    broken = False
    for seed in range(SEEDS):
        for problem in problems(environment, params, STEPS, seed):
            broken = True
            yield str(problem)
        if broken:
            break
    with suppress(Exception) if broken else nullcontext():  # a function that raises is listed above
        yield from _impurities(environment)
    try:
        compiled = FleetVectorEnv(environment, COPIES, seed=1)
        compiled.target.prepare()
    except DefinitionError as error:
        if not broken:  # otherwise it repeats the problem above
            yield str(error)
        return
    yield from _differences(environment, compiled)
    yield from _indeterminism(environment)


def _impurities(environment: Environment) -> Iterator[str]:
    """Yield functions that change the state without permission, and state fields that reset does not write."""
    rows = environment.state.rows(2)
    rows[1:].view(np.uint8)[:] = 1  # a state that no reset produces
    states, params = with_attributes(rows), with_attributes(environment.params.rows(1))[0]
    for state in states:
        environment.reset(state, params, random.streams(0, 1)[0])
    for field in environment.state.fields:
        if not np.array_equal(rows[field][0], rows[field][1]):
            yield _told(environment, "reset", left_unwritten(environment.state, field))
    shape, seeing = environment.frame.shape or (1,), "observe_row" if environment.observe is None else "observe"
    writers: list[tuple[str, Any, NDArray[Any]]] = [
        (seeing, whole_frame(environment), np.zeros(shape, environment.frame.dtype))
    ]
    if environment.legal:
        writers.append(("legal", environment.legal, np.zeros(environment.num_masked, np.int8)))
    readers = [(name, function, ()) for name, function in environment.functions.items() if name not in COMPILED]
    for name, function, row in [*((name, function, (row,)) for name, function, row in writers), *readers]:
        before = rows.copy()
        function(states[0], params, *row)
        if not _same("state", before, rows):
            yield _told(environment, name, "changes the state; only reset and step may do that")


def _told(environment: Environment, name: str, what: str) -> str:
    """Format a problem of a whole function, with the function's location."""
    code = environment.functions[name].__code__
    return described(environment.id, name, what, f"{code.co_filename}:{code.co_firstlineno}")


def _differences(environment: Environment, compiled: FleetVectorEnv) -> Iterator[str]:
    """Yield differences between compiled code and plain Python, in single steps from the same states."""
    compiled.reset()
    python, choose = FleetVectorEnv(environment, COPIES, device="python"), sampler(environment)
    told: set[str] = set()
    for _ in range(STEPS):
        compiled.run_randomly(1)  # moves on to other states
        python.set_state(compiled.get_state())
        for copy in range(COPIES):
            choose(python.copies, copy)  # among the legal actions in that state
        actions = python.copies.action.copy()
        actions = as_given(environment.action, actions) if has_parts(environment.action) else actions
        compiled.set_state(python.get_state())  # the random streams have moved
        for fleet in (python, compiled):
            fleet.step(actions)
        for name in (*saved(environment), *OUTCOMES):
            for place, one, other in _columns(name, getattr(python.copies, name), getattr(compiled.copies, name)):
                copy = _first_difference(one, other)
                if copy is not None and place not in told:
                    told.add(place)
                    yield f"{place} is {one[copy]} in plain Python and {other[copy]} compiled, from the same state"
        if told:
            return


def _columns(name: str, one: NDArray[Any], other: NDArray[Any]) -> Iterator[tuple[str, NDArray[Any], NDArray[Any]]]:
    if one.dtype.names is None:
        yield name, one, other
    else:
        for field in one.dtype.names:
            yield f"{name}.{field}", one[field], other[field]


def _same(name: str, one: NDArray[Any], other: NDArray[Any]) -> bool:
    """Return whether all values are equal bit for bit; padding between the fields of records is ignored."""
    return all(left.tobytes() == right.tobytes() for _, left, right in _columns(name, one, other))


def _first_difference(one: NDArray[Any], other: NDArray[Any]) -> int | None:
    """Return the first environment in which two columns differ beyond rounding, or None."""
    if one.dtype.kind == "f":
        apart = np.abs(one.astype(float) - other) > TOLERANCE * np.maximum(1.0, np.abs(one))
    else:
        apart = one != other
    copies = np.flatnonzero(apart.reshape(len(one), -1).any(axis=1))
    return int(copies[0]) if copies.size else None


def _indeterminism(environment: Environment) -> Iterator[str]:
    ends = []
    for _ in range(2):
        fleet = FleetVectorEnv(environment, COPIES, seed=7)
        fleet.run_randomly(STEPS)
        ends.append(fleet.get_state())
    for name in ends[0]:
        if not _same(name, ends[0][name], ends[1][name]):
            yield (
                f"two runs with the same seed differ in {name}: what decides must be in state, params or rng, not in"
                " globals or another generator"
            )
            return
