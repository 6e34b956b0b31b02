"""Step responses of a plant: to a setpoint if it has one, else to each actuator around its operating point."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, Self

import numpy as np
from gymnasium.spaces import Box

from velocirl.controllers import bound
from velocirl.training.evaluation import Model
from velocirl.training.source import Source
from velocirl.trajectories.panels import Panel, panels_of
from velocirl.trajectories.rollout import played
from velocirl.trajectories.trajectory import Array, Trajectory, readable_time

SETPOINT = "setpoint"  # part of the name of every setpoint parameter
STEP = 0.1  # fraction of an actuator's range, or of a setpoint's value
LONGEST = 1000  # steps of a response, at most
SETTLING = 0.2  # fraction of the steps before an actuator's step over which its operating point is averaged
MOST_SIGNALS = 5  # of a response: those with the largest response


class Response(NamedTuple):
    """A step and the response to it."""

    title: str
    before: float  # value before and after the step
    after: float
    unit: str
    panels: list[Panel]


def step_responses(models: Mapping[str, Model], source: Source, seed: int = 0, device: str = "cpu") -> list[Response]:
    """Return how each model follows a setpoint, if there is one; else how signals respond to actuators in open loop.

    The open-loop operating point is where the last model holds the plant. There are no responses if actions are not
    numbers.
    """
    if source.native is None or not isinstance(source.action_space, Box) or source.action_space.shape is None:
        return []
    steps = min(source.native.max_steps or LONGEST, LONGEST)
    if steps < 4:
        return []
    player = _Player(source, steps, seed, device)
    found = [one for name in player.setpoints for one in player.follow(name, models)]
    return found or list(player.push(list(models.values())[-1]))


class _Player:
    """Player of single episodes of an environment, with a step in the middle."""

    def __init__(self, source: Source, steps: int, seed: int, device: str) -> None:
        self._source, self._steps, self._at = source, steps, steps // 2
        self._options: dict[str, Any] = {"seed": seed, "device": device, "max_steps": steps}

    @property
    def setpoints(self) -> list[str]:
        """Names of the parameters that are setpoints."""
        native = self._source.native
        assert native is not None  # noqa: S101 - asked before
        return [name for name in native.params.fields if SETPOINT in name and not native.params.dtype[name].shape]

    def follow(self, name: str, models: Mapping[str, Model]) -> Iterator[Response]:
        """Yield how models follow a new setpoint; nothing if no model responds to it."""
        native = self._source.native
        assert native is not None  # noqa: S101 - asked before
        before = float(native.params.defaults.get(name, 0.0))
        low, high = native.params.bounds.get(name, (-np.inf, np.inf))
        size = STEP * (abs(before) or 1.0)
        after = before + size if before + size <= high else max(before - size, low)
        stepped = {label: self._play(_SetpointStep(one, self._at, name, after)) for label, one in models.items()}
        plain = {label: self._play(one) for label, one in models.items()}
        moved = [_answers(plain[label], stepped[label]) for label in models]
        if any(answers.max(initial=0.0) > 0.0 for answers in moved):
            yield Response(
                name, before, after, native.signals.get(name, ""), self._panels(stepped, np.sum(moved, axis=0))
            )

    def push(self, model: Model) -> Iterator[Response]:
        """Yield how signals respond to each actuator alone, the others being held."""
        held = self._play(_ActuatorStep(model, self._at, None))
        if len(held) <= self._at + 1:  # the episode ended before the step
            return
        for place, (name, actuator) in enumerate(held.actuators.items()):
            stepped = self._play(_ActuatorStep(model, self._at, place))
            before, after = float(actuator.values[self._at + 1]), float(stepped.actuators[name].values[self._at + 1])
            panels = self._panels({"held": held, "stepped": stepped}, _answers(held, stepped), name)
            yield Response(name, before, after, actuator.unit, panels)

    def _play(self, model: Model) -> Trajectory:
        return played(model, self._source, 1, **self._options)

    def _panels(self, trajectories: Mapping[str, Trajectory], answers: Array, actuator: str = "") -> list[Panel]:
        """Return the panels of the stepped actuator and then of the signals that respond most, in their own order."""
        first = next(iter(trajectories.values()))
        chosen = set(np.argsort(-answers, kind="stable")[:MOST_SIGNALS].tolist())
        names = {name for place, name in enumerate(first.signals) if place in chosen and answers[place] > 0.0}
        panels = panels_of(trajectories)
        shown = [one for one in panels if one.kind == "actuator" and one.name == actuator]
        shown += [one for one in panels if one.kind == "signal" and one.name in names]
        longest = max(float(one.time.max(initial=0.0)) for one in trajectories.values())
        _, seconds = readable_time(longest, first.time_unit)
        return [replace(one, mark=float(first.time[min(self._at, len(first) - 1)]) / seconds) for one in shown]


class _Stepping:
    """Model bound to the environments in which it acts, which counts its actions."""

    def __init__(self, model: Model, at: int) -> None:
        self._model, self._at, self._count = model, at, 0
        self._envs: Any = None

    def bind(self, envs: Any) -> Self:
        twin = copy(self)
        twin._envs, twin._model, twin._count = envs, bound(self._model, envs), 0
        return twin


class _SetpointStep(_Stepping):
    """Model that acts as another one, and changes a setpoint in the middle."""

    def __init__(self, model: Model, at: int, name: str, value: float) -> None:
        super().__init__(model, at)
        self._change = {name: value}

    def predict(self, observation: Any, /, *arguments: Any, **more: Any) -> tuple[Any, Any]:
        if self._count == self._at:
            self._envs.set_params(self._change)
        self._count += 1
        return self._model.predict(observation, *arguments, **more)


class _ActuatorStep(_Stepping):
    """Model that acts as another one, then holds its mean action, with one actuator stepped."""

    def __init__(self, model: Model, at: int, actuator: int | None) -> None:
        super().__init__(model, at)
        self._actuator, self._recent = actuator, []
        self._held: Any = None

    def predict(self, observation: Any, /, *arguments: Any, **more: Any) -> tuple[Any, Any]:
        self._count += 1
        if self._count <= self._at:
            actions, state = self._model.predict(observation, *arguments, **more)
            self._recent = [*self._recent, np.asarray(actions)][-max(1, int(SETTLING * self._at)) :]
            return actions, state
        if self._held is None:
            self._held = self._step(np.mean(self._recent, axis=0))
        return self._held, more.get("state")

    def _step(self, actions: Array) -> Array:
        space = self._envs.single_action_space
        low, high = (np.where(np.isfinite(bound), bound, np.sign(bound)) for bound in (space.low, space.high))
        if self._actuator is not None:
            place = self._actuator
            size = STEP * (high[place] - low[place])
            up = actions[:, place] + size <= high[place]
            actions[:, place] += np.where(up, size, -size)
        return np.clip(actions, space.low, space.high).astype(space.dtype)


def _answers(held: Trajectory, stepped: Trajectory) -> Array:
    """Return how far each signal moved, as a fraction of its own size."""
    rows = min(len(held), len(stepped))
    found = []
    for name in held.signals:
        one, other = (np.asarray(each.signals[name].values[:rows], np.float64) for each in (held, stepped))
        size = np.abs(one).max(initial=0.0) or 1.0
        found.append(np.nan_to_num(np.abs(one - other)).max(initial=0.0) / size)
    return np.array(found)
