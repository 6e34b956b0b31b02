"""Contract of Gymnasium environments: arguments and results of `reset` and `step`, with the line that breaks it.

Imports nothing of velocirl: a worker process loads this file by itself, so that it starts without numba.
"""

import inspect
import linecache
import numbers
import re
import reprlib
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple

import gymnasium
import numpy as np
from gymnasium import spaces

STEPS = 32  # steps of each environment whose results are fully checked
TOLERANCE = 1e-5  # relative slack beyond the bounds of a Box: rounding of single precision
FOUR, FIVE = "observation, reward, done, info", "observation, reward, terminated, truncated, info"
LIBRARIES = (str(Path(gymnasium.__file__).parent), str(Path(__file__).parents[2]))


class ContractError(TypeError):
    """Breach of Gymnasium's contract by an environment; the message names its class and line."""


class Problem(NamedTuple):
    """One breach of the contract."""

    part: str  # of the result: values, observation, reward, terminated, truncated or info
    what: str
    harmless: bool = False  # a type that is converted without loss of meaning


class Return(NamedTuple):
    """One call of `reset` or `step` that returned from a layer of an environment."""

    layer: Any
    name: str
    value: Any
    line: int


def layers_of(environment: Any) -> list[Any]:
    """List the wrappers of an environment, outermost first, then the environment itself."""
    layers = [environment]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


# Checks of results ----------------------------------------------------------------------------------------------------


def problems_of(name: str, value: Any, space: gymnasium.Space) -> Iterator[Problem]:
    """Yield the problems of a value returned by `reset` or `step`."""
    wanted = "observation, info" if name == "reset" else FIVE
    if not isinstance(value, tuple):
        said = "only an observation" if name == "reset" and value is not None else _short(value)
        yield Problem("values", f"returns {said}; write `return {wanted}`")
    elif name == "reset" and (len(value) != 2 or not isinstance(value[1], Mapping)):
        said = f"{_short(value[1])} as info" if len(value) == 2 else f"{len(value)} values"
        yield Problem("values", f"returns {said}; write `return observation, {{}}`")
    elif name == "step" and len(value) != 5:
        old = f", as in old versions of Gym ({FOUR})" if len(value) == 4 else ""
        yield Problem("values", f"returns {len(value)} values{old}; write `return {FIVE}`")
    else:
        yield from _observation_problems(space, value[0], "observation")
        if name == "step":
            yield from _outcome_problems(*value[1:])


def _outcome_problems(reward: Any, terminated: Any, truncated: Any, info: Any) -> Iterator[Problem]:
    number = _scalar(reward)
    if number is None:
        yield Problem("reward", f"returns the reward {_short(reward)}; return a number")
    elif not np.isfinite(number):
        yield Problem("reward", f"returns the reward {number}; a reward must be finite")
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if _scalar(flag) not in (0, 1):
            yield Problem(name, f"returns {name} as {_short(flag)}; return a bool, such as `x > limit`")
    if not isinstance(info, Mapping):
        yield Problem("info", f"returns info as {_short(info)}; return a dict, such as {{}}")


def _scalar(value: Any) -> float | None:
    """Convert a single number of any library; None for anything else, such as text or an array of shape (1,)."""
    if not isinstance(value, (numbers.Real, np.number, np.bool_)) and getattr(value, "shape", None) != ():
        return None
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _observation_problems(space: gymnasium.Space, value: Any, name: str) -> Iterator[Problem]:
    if isinstance(space, spaces.Dict):
        keys = list(space.spaces)
        if not isinstance(value, Mapping) or set(value) != set(keys):
            said = f"the keys {list(value)}" if isinstance(value, Mapping) else _short(value)
            yield Problem("observation", f"returns {name} as {said}; return a dict with the keys {keys} of its space")
            return
        for key, part in space.spaces.items():
            yield from _observation_problems(part, value[key], f"{name}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        if not isinstance(value, (tuple, list)) or len(value) != len(space.spaces):
            yield Problem("observation", f"returns {name} as {_short(value)}; its space has {len(space.spaces)} parts")
            return
        for index, part in enumerate(space.spaces):
            yield from _observation_problems(part, value[index], f"{name}[{index}]")
    elif isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        what = _array_problem(space, value, name)
        if what is not None:
            yield what


def _array_problem(space: gymnasium.Space, value: Any, name: str) -> Problem | None:
    shape, dtype = space.shape or (), np.dtype(space.dtype)
    try:
        array = np.asarray(value)
    except Exception:  # noqa: BLE001 - whatever it is, it is no array
        array = np.asarray(None)
    if array.dtype.kind not in "biuf":
        return Problem("observation", f"returns {name} as {_short(value)}; return an array of shape {shape} of {dtype}")
    if array.shape != shape:
        return Problem("observation", f"returns {name} of shape {array.shape}; its space has the shape {shape}")
    convert = f"return {name.partition('[')[0]}.astype(np.{dtype})"
    if array.dtype.kind == "f" and dtype.kind != "f":
        return Problem("observation", f"returns {name} of {array.dtype}; its space has {dtype}: {convert}")
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        place = _place(~np.isfinite(array))
        return Problem("observation", f"returns {array[place]} in {_named(name, place)}; it must be finite")
    low, high = _bounds(space, array)
    slack = TOLERANCE if array.dtype.kind == "f" else 0.0
    with np.errstate(all="ignore"):
        below, above = np.asarray(low, np.float64), np.asarray(high, np.float64)
        wrong = (array < below - slack * np.maximum(1, np.abs(below))) | (
            array > above + slack * np.maximum(1, np.abs(above))
        )
    if wrong.any():
        place = _place(wrong)
        lowest, highest = (np.broadcast_to(bound, array.shape)[place] for bound in (low, high))
        what = f"returns {array[place]} in {_named(name, place)}, whose space goes from {lowest} to {highest}"
        return Problem("observation", f"{what}; widen the space, or scale the observation")
    if isinstance(space, spaces.Box) and isinstance(value, np.ndarray) and not np.can_cast(array.dtype, dtype):
        return Problem("observation", f"returns {name} of {array.dtype}; its space has {dtype}: {convert}", True)
    return None


def _bounds(space: Any, array: np.ndarray) -> tuple[Any, Any]:
    if isinstance(space, spaces.Box):
        return space.low, space.high
    if isinstance(space, spaces.MultiBinary):
        return np.zeros_like(array), np.ones_like(array)
    return space.start, space.start + getattr(space, "n", getattr(space, "nvec", 0)) - 1


def _place(wrong: np.ndarray) -> tuple[int, ...]:
    return tuple(int(index) for index in np.argwhere(wrong)[0])


def _named(name: str, place: tuple[int, ...]) -> str:
    return f"{name}[{', '.join(map(str, place))}]" if place else name


def _short(value: Any) -> str:
    return " ".join(reprlib.repr(value).split())


# Blame ----------------------------------------------------------------------------------------------------------------


class Recorder:
    """Recorder of the value and line that each layer of environments returns during a call.

    Python's profiler hook sees every return without changing the environment. If another profiler runs, it is left
    alone and the reported line is the function's first.
    """

    def __init__(self, environments: Sequence[Any]) -> None:
        self._environments = list(environments)
        layers = [layer for environment in environments for layer in layers_of(environment)]
        self._layers = {id(layer) for layer in layers}
        names = [(layer, name) for layer in layers for name in ("reset", "step")]
        self._codes = {code: name for layer, name in names if (code := _code_of(layer, name)) is not None}
        self.returns: list[Return] = []  # of the last call, innermost layer first

    def __reduce__(self) -> tuple[Any, ...]:
        return Recorder, (self._environments,)  # a copy watches its own environments

    def call(self, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        """Call the function and record the returns within."""
        self.returns.clear()
        if sys.getprofile() is not None:
            return function(*arguments, **keywords)
        sys.setprofile(self._note)
        try:
            return function(*arguments, **keywords)
        finally:
            sys.setprofile(None)

    def blame(self, environment: Any, name: str, problem: Problem) -> str:
        """Describe a problem of the environment's last result, at the innermost layer that has it."""
        layers = layers_of(environment)
        for layer, called, given, line in self.returns:
            if called != name or not any(layer is one for one in layers):
                continue
            for one in problems_of(name, given, layer.observation_space):
                if one.part == problem.part and one.harmless == problem.harmless:
                    return described(layer, name, one.what, line)
        return described(_culprit(environment), name, problem.what)

    def _note(self, frame: FrameType, event: str, value: Any) -> None:
        if event == "return" and (name := self._codes.get(frame.f_code)) is not None:
            owner = frame.f_locals.get(frame.f_code.co_varnames[0])
            if id(owner) in self._layers:
                self.returns.append(Return(owner, name, value, frame.f_lineno))


def _code_of(layer: Any, name: str) -> CodeType | None:
    return getattr(inspect.unwrap(getattr(type(layer), name, None)), "__code__", None)  # pyright: ignore[reportArgumentType]


def described(layer: Any, name: str, what: str, line: int | None = None) -> str:
    """Format a message: class, function, problem and location."""
    code = _code_of(layer, name)
    if code is not None and code.co_filename.startswith(LIBRARIES[0]) and _is_foreign(layer):
        # The wrapper's own method, which Gymnasium's `step` and `reset` call.
        own = next((one for one in ("observation", "reward", "action") if one in vars(type(layer))), None)
        name, line = own or name, None
        code = _code_of(layer, name)
    if code is None:
        return f"{type(layer).__name__}: {name} {what}"
    line = line or code.co_firstlineno
    source = linecache.getline(code.co_filename, line).strip()
    return f"{type(layer).__name__}: {name} {what}\n  at {code.co_filename}:{line}" + (f": {source}" if source else "")


def _is_foreign(layer: Any) -> bool:
    return not type(layer).__module__.startswith(("gymnasium.", "velocirl."))


def worst(problems: Iterator[Problem]) -> Problem | None:
    """Return the first harmful problem, else the first."""
    return min(problems, key=lambda one: one.harmless, default=None)


def _culprit(environment: Any) -> Any:
    """Return the layer to blame if no return was recorded: the innermost one outside libraries, if any."""
    layers = layers_of(environment)
    return next((layer for layer in reversed(layers) if _is_foreign(layer)), layers[-1])


def explained(environment: Any, name: str, error: BaseException, returns: Sequence[Return] = ()) -> str | None:
    """Describe an exception caused by a broken contract; None for one raised by the environment itself."""
    frames = [frame for frame, _ in traceback.walk_tb(error.__traceback__)]
    within = {(frame.f_code, id(frame.f_locals.get("self"))) for frame in frames}
    layers = layers_of(environment)
    for layer, called, given, line in returns:
        if (_code_of(layer, called), id(layer)) in within or not any(layer is one for one in layers):
            continue  # it raised instead of returning, or belongs to another environment
        for problem in problems_of(called, given, layer.observation_space):
            if not problem.harmless:
                return described(layer, called, problem.what, line)
    inner = frames[-1].f_locals.get("self") if frames else None
    if not isinstance(error, (TypeError, ValueError)) or not frames[-1].f_code.co_filename.startswith(LIBRARIES):
        return None
    layer = inner.env if isinstance(inner, gymnasium.Wrapper) else _culprit(environment)
    if "unpack" in str(error):
        count = re.search(r"got (\d+)", str(error))
        said = f"{count[1]} values" if count else "no tuple"
        wanted = "observation, info" if name == "reset" else FIVE
        return described(_culprit(layer), name, f"returns {said}; write `return {wanted}`")
    return None


def failure(environment: Any, name: str, error: Exception) -> str:
    """Describe an exception raised by an environment, at its innermost line outside of libraries."""
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [frame for frame in frames if not frame[0].startswith(LIBRARIES) and "site-packages" not in frame[0]]
    file, line = (own or frames)[-1]
    source = linecache.getline(file, line).strip()
    what = f"{type(_culprit(environment)).__name__}: {name} fails with {type(error).__name__}: {error}"
    return f"{what}\n  at {file}:{line}" + (f": {source}" if source else "")


def refuse_signature(environment: Any) -> None:
    """Raise ContractError for a `reset` that does not accept `seed` and `options`."""
    for layer in reversed(layers_of(environment)):
        try:
            signature = inspect.signature(layer.reset)
        except (TypeError, ValueError):  # not written in Python
            continue
        for name in ("seed", "options"):
            try:
                signature.bind_partial(**{name: None})
            except TypeError:
                what = f"takes no {name}; write `def reset(self, *, seed=None, options=None)`"
                raise ContractError(described(layer, "reset", what)) from None


class FirstSteps:
    """Checker of an environment's first steps, which then puts the environment itself in its place."""

    def __init__(
        self, environment: Any, acting: list[Any], index: int = 0, warn: Callable[[str], None] | None = None
    ) -> None:
        """Occupy `acting[index]` until `STEPS` steps are taken; `warn` receives harmless problems."""
        self.environment, self._acting, self._index, self._warn = environment, acting, index, warn
        self._recorder = Recorder([environment])
        self._left = STEPS

    def reset(self, **options: Any) -> Any:
        """Reset the environment and check the result."""
        return self._checked("reset", self.environment.reset, **options)

    def step(self, action: Any) -> Any:
        """Take a step and check the result."""
        result = self._checked("step", self.environment.step, action)
        self._left -= 1
        if self._left == 0:
            self._acting[self._index] = self.environment
        return result

    def _checked(self, name: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        if self._left == STEPS and name == "reset":
            refuse_signature(self.environment)
        recorder = self._recorder
        try:
            result = recorder.call(function, *arguments, **keywords)
        except Exception as error:
            if (message := explained(self.environment, name, error, recorder.returns)) is not None:
                raise ContractError(message) from None
            raise
        problem = worst(problems_of(name, result, self.environment.observation_space))
        if problem is not None and not problem.harmless:
            raise ContractError(recorder.blame(self.environment, name, problem))
        if problem is not None and self._warn is not None:
            self._warn(recorder.blame(self.environment, name, problem))
            self._warn = None
        return result


def own_traceback(error: BaseException) -> str:
    """Format an exception without the library frames above the environment's first line."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename.startswith(LIBRARIES):
        trace = trace.tb_next
    return "".join(traceback.format_exception(type(error), error, trace or error.__traceback__))
