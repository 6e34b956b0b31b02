"""Limits that must be kept: named, with units, checked on the state after each step and counted as costs.

They are part of what is compiled, so that they hold on every target and in every learner alike. A step notes what it
violates as the bits of one number, which leaves its loop as fit for vector instructions as it was; costs are written
from these in the loop that ends episodes.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf, isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

from velocirl.engine.compiler.registers import row
from velocirl.engine.errors import DefinitionError
from velocirl.engine.framing import repeated_step

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment
    from velocirl.engine.records import Record

PREFIXES = {"k": "1,000", "M": "1,000,000", "G": "1,000,000,000"}
MOST = 31  # constraints: they are the bits of an int32
VALUE = "(state, params)"  # what a function that gives the constrained value takes


@dataclass(frozen=True)
class Constraint:
    """A value that must stay between limits: `Constraint("temperature", value="temperature", high=420.0, unit="K")`.

    `value` is the name of a field of the state, or a scalar function `value(state, params)`; `low` and `high` are
    numbers, or names of fields of Params. It is violated by a state after a step, before an automatic reset, in which
    the value lies below `low` or above `high`, or is not a number; at a limit it is not. Such a step has a cost of 1,
    its reward is less by `penalty`, and where the constraint is `critical` it ends the episode. With `skip=` each
    state on the way is judged: costs and penalties add up, and a critical violation ends the repetition too.
    """

    name: str
    value: str | Callable[..., Any]
    low: float | str | None = None
    high: float | str | None = None
    unit: str = ""
    penalty: float = 0.0
    critical: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not re.fullmatch(r"[A-Za-z0-9_]+", self.name):
            raise DefinitionError(f"a constraint is named by letters, digits and underscores, got {self.name!r}")
        if self.low is None and self.high is None:
            raise DefinitionError(f"constraint {self.name!r} has no limit: give low=, high= or both")
        for end in ("low", "high"):
            limit = getattr(self, end)
            if limit is not None and not isinstance(limit, str) and not is_finite(limit):
                raise DefinitionError(
                    f"constraint {self.name!r}: {end}= must be a finite number or the name of a field of Params,"
                    f" got {limit!r}"
                )
        if is_number(self.low) and is_number(self.high) and self.low > self.high:  # pyright: ignore[reportOperatorIssue]
            raise DefinitionError(f"constraint {self.name!r}: low={self.low} lies above high={self.high}")
        if not isinstance(self.unit, str):
            raise DefinitionError(f"constraint {self.name!r}: unit= must be a text such as 'K', got {self.unit!r}")
        if not is_finite(self.penalty) or self.penalty < 0:
            raise DefinitionError(
                f"constraint {self.name!r}: penalty={self.penalty!r} is taken off the reward and must be at least 0"
            )
        if not isinstance(self.value, str):
            self._check_function()

    def _check_function(self) -> None:
        if not inspect.isfunction(self.value):
            raise DefinitionError(
                f"constraint {self.name!r}: value= must be the name of a field of the state or a function"
                f" value{VALUE}, got {self.value!r}"
            )
        code = self.value.__code__
        if code.co_argcount - len(self.value.__defaults__ or ()) != 2:
            raise DefinitionError(
                f"constraint {self.name!r}: its value must take {VALUE}, but takes {inspect.signature(self.value)}"
                f" ({code.co_filename}:{code.co_firstlineno})"
            )


def is_number(value: Any) -> bool:
    """Whether this is a number that a limit may be."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Whether this is a number, and neither infinite nor none."""
    return is_number(value) and isfinite(value)


def checked_constraints(environment: Environment) -> tuple[Constraint, ...]:
    """Its constraints, each with the unit of the signal that it constrains; refused where they do not fit it."""
    constraints, seen = tuple(environment.constraints), set()
    if len(constraints) > MOST:
        raise DefinitionError(f"{environment.id}: constraints= has {len(constraints)}, and there may be {MOST}")
    for one in constraints:
        if not isinstance(one, Constraint):
            raise DefinitionError(f"{environment.id}: constraints= must be velocirl.Constraint, got {one!r}")
        if one.name in seen:
            raise DefinitionError(f"{environment.id}: two constraints are named {one.name!r}; rename one of them")
        seen.add(one.name)
        _check_fields(environment, one)
    units = environment.signals
    return tuple(
        one if one.unit or not isinstance(one.value, str) else replace(one, unit=units.get(one.value, ""))
        for one in constraints
    )


def _check_fields(environment: Environment, constraint: Constraint) -> None:
    """Refuse names of fields that are none, limits that are upside down, and another unit than that of the signal."""
    place = f"{environment.id}: constraint {constraint.name!r}"
    if isinstance(constraint.value, str):
        _require_number(environment.state, constraint.value, f"{place}: value=")
        unit = environment.signals.get(constraint.value, constraint.unit)
        if constraint.unit and unit != constraint.unit:
            raise DefinitionError(
                f"{place} is in {constraint.unit!r}, and the state holds {constraint.value!r} in {unit!r}:"
                f" {_conversion(constraint.unit, unit)}, then give unit={unit!r}"
            )
    ends = []
    for end in ("low", "high"):
        limit = getattr(constraint, end)
        if isinstance(limit, str):
            _require_number(environment.params, limit, f"{place}: {end}=")
            limit = environment.params.defaults.get(limit)
        ends.append(limit)
    if is_number(ends[0]) and is_number(ends[1]) and ends[0] > ends[1]:
        raise DefinitionError(f"{place}: low={ends[0]} lies above high={ends[1]}")


def _conversion(unit: str, wanted: str) -> str:
    """Return how numbers of a unit become those of another, where both differ by a prefix of a thousandfold alone."""
    for name, factor in PREFIXES.items():
        if unit == name + wanted:
            return f"multiply its limits by {factor}"
        if wanted == name + unit:
            return f"divide its limits by {factor}"
    if unit == f"m{wanted}":
        return "divide its limits by 1,000"
    if wanted == f"m{unit}":
        return "multiply its limits by 1,000"
    return f"convert its limits to {wanted!r}"


def _require_number(record: Record, name: str, place: str) -> None:
    if name not in record.fields:
        raise DefinitionError(f"{place} names {name!r}{record.suggestion(name)}")
    if record.dtype[name].shape:
        raise DefinitionError(
            f"{place} names {name!r}, an array of {record.dtype[name].shape}; constrain a number of it with a function"
            f" value{VALUE}"
        )


def constraining(environment: Environment, constraints: tuple[Constraint, ...]) -> Environment:
    """An environment as it was defined, but for its constraints: for a comparison, or a model that is more careful."""
    twin = object.__new__(type(environment))
    vars(twin).update(vars(environment))
    vars(twin).update(constraints=constraints)
    return twin


def cost_names(constraints: tuple[str, ...]) -> tuple[str, ...]:
    """Under which names the costs of an episode are told: their sum, and that of each constraint."""
    return ("cost", *(f"cost/{name}" for name in constraints)) if constraints else ()


# Scalar functions: what is compiled -----------------------------------------------------------------------------------


def judged_step(environment: Environment) -> Callable[..., Any]:
    """`step(copies, i, state, params, action, rng)`: the environment's, repeated as it skips, each state judged.

    Returns the reward less penalties, and whether the episode terminated. What was violated is left in `copies`.
    """
    if not environment.constraints:
        return _unconstrained(repeated_step(environment))
    violations, pay = violating(environment), paying(environment)
    critical = np.int32(sum(1 << k for k, one in enumerate(environment.constraints) if one.critical))
    if environment.skip > 1:
        return _judged_repeatedly(environment, violations, pay, critical)
    own = environment.step

    def step(copies, i, state, params, action, rng):
        reward, terminated = own(state, params, action, rng)
        violated = violations(state, params)
        copies.violated[i] = violated
        return pay(reward, violated), terminated | ((violated & critical) != 0)

    return step


def _unconstrained(own: Callable[..., Any]) -> Callable[..., Any]:
    def step(copies, i, state, params, action, rng):  # noqa: ARG001
        return own(state, params, action, rng)

    return step


def _judged_repeatedly(environment: Environment, violations: Any, pay: Any, critical: np.int32) -> Callable[..., Any]:
    """Sum costs and penalties over all states of a repeated action, and stop at a critical one."""
    own, times, number = environment.step, environment.skip, len(environment.constraints)

    def step(copies, i, state, params, action, rng):
        costs = row(copies.costs, i)
        for k in range(number):
            costs[k] = 0.0
        total, over = np.float32(0), False
        for _ in range(times):
            reward, terminated = own(state, params, action, rng)
            violated = violations(state, params)
            total += np.float32(pay(reward, violated))
            for k in range(number):
                costs[k] += np.float32((violated >> k) & 1)
            if terminated or (violated & critical) != 0:
                over = True
                break
        return total, over

    return step


def violating(environment: Environment) -> Callable[..., Any]:
    """`violations(state, params)`: which constraints a state violates, as bits in their order."""
    check = nothing_violated
    for place, one in enumerate(environment.constraints):
        real = _precision(environment, one)
        value = _field(one.value, real) if isinstance(one.value, str) else _computed(one.value, real)
        low, high = (_limit(limit, end, real) for limit, end in ((one.low, -inf), (one.high, inf)))
        check = _checking_one(check, value, low, high, np.int32(1 << place))
    return check


def nothing_violated(state, params):  # noqa: ARG001
    """Before the first constraint."""
    return np.int32(0)


def _checking_one(others: Any, value: Any, low: Any, high: Any, bit: np.int32) -> Callable[..., Any]:
    none = np.int32(0)

    def check(state, params):
        found = value(state, params)
        within = (found >= low(params)) & (found <= high(params))  # so written, NaN is outside
        return others(state, params) | (none if within else bit)

    return check


def _precision(environment: Environment, constraint: Constraint) -> Any:
    """In what a value is compared with its limits: as it is stored, so that it can be exactly at one of them."""
    if isinstance(constraint.value, str):
        kind = environment.state.dtype[constraint.value]
        return np.float32 if kind == np.float32 or kind.itemsize < 4 else np.float64
    return np.float64 if environment.double else np.float32


def _field(name: str, real: Any) -> Callable[..., Any]:
    def value(state, params):  # noqa: ARG001
        return real(state[name])

    return value


def _computed(function: Callable[..., Any], real: Any) -> Callable[..., Any]:
    def value(state, params):
        return real(function(state, params))

    return value


def _limit(limit: float | str | None, without: float, real: Any) -> Callable[..., Any]:
    if isinstance(limit, str):
        name = limit

        def named(params):
            return real(params[name])

        return named
    number = real(without if limit is None else limit)

    def fixed(params):  # noqa: ARG001
        return number

    return fixed


def paying(environment: Environment) -> Callable[..., Any]:
    """`pay(reward, violated)`: the reward less the penalties of what was violated."""
    pay = as_single if any(one.penalty for one in environment.constraints) else as_it_is
    for place, one in enumerate(environment.constraints):
        if one.penalty:
            pay = _paying_one(pay, np.float32(one.penalty), np.int32(1 << place))
    return pay


def as_single(reward, violated):  # noqa: ARG001
    """A reward as it is recorded, so that all targets take penalties off the same number."""
    return np.float32(reward)


def as_it_is(reward, violated):  # noqa: ARG001
    """Where nothing has a penalty."""
    return reward


def _paying_one(others: Callable[..., Any], penalty: np.float32, bit: np.int32) -> Callable[..., Any]:
    nothing = np.float32(0)

    def pay(reward, violated):
        return others(reward, violated) - (penalty if (violated & bit) != 0 else nothing)

    return pay


def counting(environment: Environment) -> Callable[..., Any]:
    """`count(copies, i)`: the costs of the step that copy i has taken, also as part of its episode's."""
    number = len(environment.constraints)

    def add(copies, i):
        costs, total = row(copies.costs, i), row(copies.cost_total, i)
        for k in range(number):
            total[k] += costs[k]

    if number and environment.skip > 1:  # then `judged_step` has summed them
        return add

    def count(copies, i):
        violated = copies.violated[i]
        costs, total = row(copies.costs, i), row(copies.cost_total, i)
        for k in range(number):
            cost = np.float32((violated >> k) & 1)
            costs[k] = cost
            total[k] += cost

    return count if number else no_costs


def closing(environment: Environment) -> Callable[..., Any]:
    """`close(copies, i)`: keep the costs of an episode that ended."""
    number = len(environment.constraints)

    def close(copies, i):
        total, kept = row(copies.cost_total, i), row(copies.episode_costs, i)
        for k in range(number):
            kept[k] = total[k]

    return close if number else no_costs


def clearing_costs(environment: Environment) -> Callable[..., Any]:
    """`clear(copies, i)`: an episode begins without costs."""
    number = len(environment.constraints)

    def clear(copies, i):
        total = row(copies.cost_total, i)
        for k in range(number):
            total[k] = 0.0

    return clear if number else no_costs


def no_costs(copies, i):
    """Of an environment without constraints."""
