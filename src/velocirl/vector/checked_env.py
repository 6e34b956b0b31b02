"""Contract checks of Gymnasium environments: during the first steps, or all problems of one at once."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import VectorEnv, VectorWrapper

from velocirl.engine.errors import DefinitionError
from velocirl.engine.warning import warn_caller
from velocirl.vector.host.contract import STEPS as FIRST_STEPS
from velocirl.vector.host.contract import (
    ContractError,
    FirstSteps,
    Recorder,
    described,
    explained,
    failure,
    layers_of,
    problems_of,
    refuse_signature,
    worst,
)
from velocirl.vector.host.copies import require_fixed_size
from velocirl.vector.host.interface import time_limit_of

SEEDS, STEPS = 4, 64
ENDLESS, PATIENCE = 10_000, 10.0  # random steps without an episode's end, and seconds, before the warning


class CheckedEnv(gymnasium.Wrapper):
    """Environment whose first steps are checked, in place of Gymnasium's own checker."""

    def __init__(self, env: gymnasium.Env) -> None:
        super().__init__(env)
        self._acting: list[Any] = [env]
        self._acting[0] = FirstSteps(env, self._acting, warn=warn_caller)

    @property
    def spec(self) -> EnvSpec | None:
        """Specification of the environment, which leaves out this check."""
        return self.env.spec

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin a new episode."""
        try:
            return self._acting[0].reset(seed=seed, options=options)
        except Exception as error:
            self._blame("reset", error)
            raise

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Take a step."""
        try:
            return self._acting[0].step(action)
        except Exception as error:
            self._blame("step", error)
            raise

    def _blame(self, name: str, error: Exception) -> None:
        message = str(error) if isinstance(error, ContractError) else explained(self.env, name, error)
        if message is not None:
            raise DefinitionError(message) from None


class CheckedVectorEnv(VectorWrapper):
    """External vector environment whose first steps are checked as in single environments."""

    def __init__(self, env: VectorEnv) -> None:
        super().__init__(env)
        inner = getattr(env.unwrapped, "envs", None) or ()  # as in Gymnasium's SyncVectorEnv
        self._inner = [one for one in inner if isinstance(one, gymnasium.Env)]
        self._recorder, self._left = Recorder(self._inner), FIRST_STEPS

    def reset(self, *, seed: Any = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin new episodes."""
        return self._checked("reset", self.env.reset, seed=seed, options=options)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """Take a step in each environment."""
        self._left -= 1
        return self._checked("step", self.env.step, actions)

    def _checked(self, name: str, function: Callable[..., Any], *arguments: Any, **keywords: Any) -> Any:
        recorder, first = self._recorder, self._left >= 0
        try:
            result = recorder.call(function, *arguments, **keywords) if first else function(*arguments, **keywords)
        except Exception as error:
            messages = (explained(one, name, error, recorder.returns) for one in self._inner)
            if (message := next(filter(None, messages), None)) is not None:
                raise DefinitionError(message) from None
            raise
        if first:
            self._check(recorder, name, result)
        else:
            recorder.returns.clear()
        for place, part, wanted in unlike(self.single_observation_space, self.num_envs, result[0], "observations"):
            what = f"returns {place} of shape {tuple(part)}; its space and num_envs={self.num_envs} say {wanted}"
            raise DefinitionError(described(self.unwrapped, name, what))
        return result

    def _check(self, recorder: Recorder, name: str, result: Any) -> None:
        for one in self._inner:
            for layer, called, value, _ in recorder.returns:
                problem = worst(problems_of(called, value, one.observation_space)) if layer is one else None
                if problem is not None and not problem.harmless:
                    raise DefinitionError(recorder.blame(one, called, problem))
        if not self._inner and name == "step" and np.shape(result[1]) != (self.num_envs,):
            what = f"returns rewards of shape {np.shape(result[1])}; it must be ({self.num_envs},), one number for each"
            raise DefinitionError(described(self.unwrapped, name, what))


def unlike(space: Any, count: int, value: Any, name: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield the parts of a batch of `count` observations whose shape differs from their space's, with both shapes."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        parts = space.spaces.items() if isinstance(space, spaces.Dict) else enumerate(space.spaces)
        for key, part in parts:
            yield from unlike(part, count, value[key], f"{name}[{key!r}]")
    elif space.shape is not None and np.shape(value) != (count, *space.shape):
        yield name, np.shape(value), (count, *space.shape)


def check_gymnasium(environment: gymnasium.Env, name: str) -> str:
    """Raise one DefinitionError that lists all problems of an environment, or return a report of the checks.

    The environment is stepped with random actions and left in the middle of an episode.
    """
    faults = list(dict.fromkeys(_faults(environment)))
    if faults:
        listing = "\n".join(f"- {fault}" for fault in faults)
        raise DefinitionError(f"{name} has {len(faults)} problem{'s'[: len(faults) > 1]}:\n{listing}")
    _warn_of_endless(environment, name)
    return "\n".join(
        [
            f"{name} is sound, as far as random actions show:",
            "- observation and action spaces: of kinds with a fixed size",
            f"- reset, step: {SEEDS} x {STEPS} steps, with all they return in its space, finite and of its type",
            f"- the same seed gives the same: {STEPS} steps, twice",
        ]
    )


def _faults(environment: gymnasium.Env) -> Iterator[str]:
    for kind in ("observation", "action"):
        space = getattr(environment, f"{kind}_space", None)
        if not isinstance(space, gymnasium.Space):
            yield described(
                environment.unwrapped, "__init__", f"sets no {kind}_space; set self.{kind}_space = Box(...)"
            )
            return
        try:
            require_fixed_size(space, f"{kind} space")
        except ValueError as error:
            yield str(error)
            return
    try:
        refuse_signature(environment)
    except ContractError as error:
        yield str(error)
        return
    told: set[str] = set()
    for seed in range(SEEDS):
        try:
            for message in _run(environment, seed, STEPS):
                # Values differ from step to step; the same problem with another value is not a new one.
                if (shape := re.sub(r"-?\d[\d.e+-]*", "#", message)) not in told:
                    told.add(shape)
                    yield message
        except ContractError as error:  # later results cannot be checked
            yield str(error)
            return
        if told:
            return
    yield from _indeterminism(environment)


def _run(environment: gymnasium.Env, seed: int, steps: int, seen: list[Any] | None = None) -> Iterator[str]:
    """Take random steps and yield the problems of their results; results are appended to `seen`."""
    recorder = Recorder([environment])
    environment.action_space.seed(seed)

    def call(name: str, *arguments: Any, **keywords: Any) -> tuple[Any, list[str]]:
        try:
            result = recorder.call(getattr(environment, name), *arguments, **keywords)
        except Exception as error:  # noqa: BLE001 - whatever the environment raises is one of its problems
            message = explained(environment, name, error, recorder.returns)
            raise ContractError(message or failure(environment, name, error)) from None
        found = list(problems_of(name, result, environment.observation_space))
        blamed = [recorder.blame(environment, name, problem) for problem in found]
        if any(problem.part == "values" for problem in found):
            raise ContractError(blamed[0])
        return result, blamed

    ended, result = True, (None, {})
    for number in range(steps):
        if ended:
            result, messages = call("reset", **({"seed": seed} if number == 0 else {}))
            yield from messages
            if seen is not None:
                seen.append(result[0])
        result, messages = call("step", _choose(environment, result[-1]))
        yield from messages
        ended = any(bool(flag) for flag in result[2:4]) if not messages else False
        if seen is not None:
            seen.append(result[:4])


def _choose(environment: gymnasium.Env, info: Any) -> Any:
    """Sample an action; only among the legal ones where infos or a method give an action mask."""
    mask = info.get("action_mask") if isinstance(info, Mapping) else None
    if mask is None and environment.has_wrapper_attr("action_masks"):
        mask = environment.get_wrapper_attr("action_masks")()
    if mask is None or not isinstance(environment.action_space, gymnasium.spaces.Discrete):
        return environment.action_space.sample()
    return environment.action_space.sample(np.asarray(mask, np.int8))


def _indeterminism(environment: gymnasium.Env) -> Iterator[str]:
    runs: list[list[Any]] = [[], []]
    for seen in runs:
        for _ in _run(environment, SEEDS, STEPS, seen):
            pass
    if not all(_same(one, other) for one, other in zip(*runs, strict=False)):
        what = "gives other episodes with the same seed; call super().reset(seed=seed) and draw from self.np_random"
        yield described(layers_of(environment)[-1], "reset", what)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all(map(_same, one, other))
    return np.array_equal(one, other)


def _warn_of_endless(environment: gymnasium.Env, name: str) -> None:
    """Warn about an environment without a time limit if no random episode ends."""
    if time_limit_of(environment) is not None:
        return
    until = time.monotonic() + PATIENCE
    _, info = environment.reset(seed=0)
    for steps in range(1, ENDLESS + 1):
        _, _, terminated, truncated, info = environment.step(_choose(environment, info))
        if terminated or truncated:
            return
        if steps == ENDLESS or time.monotonic() > until:
            warn_caller(
                f"{name}: the episode had not ended after {steps:,} random steps, and there is no time limit: wrap it"
                " in gymnasium.wrappers.TimeLimit(env, max_episode_steps=1000), or end episodes in step"
            )
            return
