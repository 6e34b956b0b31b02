"""Constraints: named limits with units, checked on the state after each step and counted as costs.

They are compiled into the environment, so that they hold on every target and in every learner. A step stores its
violations as the bits of one integer, which keeps its loop vectorizable. The loop that ends episodes writes the costs
from these bits.
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
VALUE = "(state, params)"  # arguments of a function that computes the constrained value


@dataclass(frozen=True)
class Constraint:
    """A value that must stay within limits: `Constraint("temperature", value="temperature", high=420.0, unit="K")`.

    `value` is the name of a field of the state, or a scalar function `value(state, params)`. `low` and `high` are
    numbers, or names of fields of Params. The state after a step, before autoreset, violates the constraint if its
    value is below `low`, above `high` or NaN. A value at a limit is no violation. Such a step has a cost of 1, its
    reward is reduced by `penalty`, and a `critical` constraint ends the episode. With `skip=` each state on the way is
    checked: costs and penalties add up, and a critical violation ends the repetition too.
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
    """Return whether a value is a number that can serve as a limit."""
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def is_finite(value: Any) -> bool:
    """Return whether a value is a finite number."""
    return is_number(value) and isfinite(value)


def checked_constraints(environment: Environment) -> tuple[Constraint, ...]:
    """Return the environment's constraints, each with its signal's unit; raises DefinitionError for invalid ones."""
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
    """Raise DefinitionError for unknown fields, limits in the wrong order, and units other than the signal's."""
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
    """Return the conversion from a unit to another that differs by a prefix of 1,000 only."""
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
    """Return a copy of an environment with other constraints: for a comparison, or a more careful model."""
    twin = object.__new__(type(environment))
    vars(twin).update(vars(environment))
    vars(twin).update(constraints=constraints)
    return twin


def cost_names(constraints: tuple[str, ...]) -> tuple[str, ...]:
    """Return the names of an episode's costs: their sum, and each constraint's."""
    return ("cost", *(f"cost/{name}" for name in constraints)) if constraints else ()


# Scalar functions, which are compiled ---------------------------------------------------------------------------------


def judged_step(environment: Environment) -> Callable[..., Any]:
    """Make `step(copies, i, state, params, action, rng)`: the environment's step with frame skip and constraint checks.

    Returns the reward minus penalties, and whether the episode terminated. Violations are stored in `copies`.
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
    """Make a step that sums costs and penalties over all states of a repeated action, and stops at a critical one."""
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
    """Make `violations(state, params)`, which returns a state's violated constraints as bits in their order."""
    check = nothing_violated
    for place, one in enumerate(environment.constraints):
        real = _precision(environment, one)
        value = _field(one.value, real) if isinstance(one.value, str) else _computed(one.value, real)
        low, high = (_limit(limit, end, real) for limit, end in ((one.low, -inf), (one.high, inf)))
        check = _checking_one(check, value, low, high, np.int32(1 << place))
    return check


def nothing_violated(state, params):  # noqa: ARG001
    """Return no violations, before the first constraint."""
    return np.int32(0)


def _checking_one(others: Any, value: Any, low: Any, high: Any, bit: np.int32) -> Callable[..., Any]:
    none = np.int32(0)

    def check(state, params):
        found = value(state, params)
        within = (found >= low(params)) & (found <= high(params))  # in this form, NaN is outside
        return others(state, params) | (none if within else bit)

    return check


def _precision(environment: Environment, constraint: Constraint) -> Any:
    """Return the precision of comparisons with limits: the stored one, so that a value can equal a limit exactly."""
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
    """Make `pay(reward, violated)`, which returns the reward minus the penalties of violated constraints."""
    pay = as_single if any(one.penalty for one in environment.constraints) else as_it_is
    for place, one in enumerate(environment.constraints):
        if one.penalty:
            pay = _paying_one(pay, np.float32(one.penalty), np.int32(1 << place))
    return pay


def as_single(reward, violated):  # noqa: ARG001
    """Return a reward as it is recorded, so that all targets subtract penalties from the same number."""
    return np.float32(reward)


def as_it_is(reward, violated):  # noqa: ARG001
    """Return the reward unchanged, without penalties."""
    return reward


def _paying_one(others: Callable[..., Any], penalty: np.float32, bit: np.int32) -> Callable[..., Any]:
    nothing = np.float32(0)

    def pay(reward, violated):
        return others(reward, violated) - (penalty if (violated & bit) != 0 else nothing)

    return pay


def counting(environment: Environment) -> Callable[..., Any]:
    """Make `count(copies, i)`, which records the costs of environment i's last step and adds them to its episode's."""
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
    """Make `close(copies, i)`, which stores the costs of a finished episode."""
    number = len(environment.constraints)

    def close(copies, i):
        total, kept = row(copies.cost_total, i), row(copies.episode_costs, i)
        for k in range(number):
            kept[k] = total[k]

    return close if number else no_costs


def clearing_costs(environment: Environment) -> Callable[..., Any]:
    """Make `clear(copies, i)`, which begins an episode without costs."""
    number = len(environment.constraints)

    def clear(copies, i):
        total = row(copies.cost_total, i)
        for k in range(number):
            total[k] = 0.0

    return clear if number else no_costs


def no_costs(copies, i):
    """Do nothing, in an environment without constraints."""
