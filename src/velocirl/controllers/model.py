"""Fleet as a model of a plant: set to any state, then stepped to predict the effect of actions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.controllers.layout import native_of
from velocirl.engine import random
from velocirl.engine.environment import Environment
from velocirl.engine.fleets.fleet import make_target

# Estimator of states: maps a batch of observations to state fields by name, or to rows of the state record.
Estimate = Callable[[Any], Any]
Mismatch = Mapping[str, float] | None  # factors by which the model's parameters differ from the plant's


class FleetModel:
    """Fleet without time limits: its environments are branches of the plants whose future is predicted.

    Branches of one plant draw the same random numbers. They differ from the plant's own, whose future draws are
    unknown.
    """

    def __init__(self, environment: Environment, branches: int, *, device: str = "cpu", seed: int = 0) -> None:
        """`branches` is the number of futures simulated per plant."""
        self.environment, self.branches = environment, branches
        self._device, self._seed, self._placed = device, seed, 0
        self._targets: dict[int, Any] = {}  # by their capacity in plants

    def place(self, states: NDArray[Any], params: NDArray[Any]) -> None:
        """Set all branches to the current states of plants; `states` and `params` have shape (plants,)."""
        self._placed += 1
        self._allot(len(states), self._placed)
        for name, rows in (("state", states), ("params", params)):
            self._spread(name, rows)

    def rewind(self) -> None:
        """Restart the sequence of random streams, so that repeated calls give repeated results."""
        self._placed = 0

    def begin(self, plants: int, params: Mapping[str, Any] | None = None, *, draw: int = 0) -> None:
        """Begin one episode per plant, the same in all its branches; equal `draw` gives equal starts."""
        self._allot(plants, draw)
        self._spread("params", self.environment.params.rows(plants, params))
        self._target.begin(np.ones(len(self.alive), np.bool_))

    def step(self, actions: NDArray[Any]) -> Outcome:
        """Step all branches with actions (plants * branches, ...); ignore results of branches that have ended."""
        copies, used = self._target.copies, self._plants * self.branches
        copies.action[:used] = actions
        self._target.advance()
        alive = self.alive[:used].copy()
        self.alive &= ~copies.terminated
        costs = copies.costs[:used].copy() if self.environment.constraints else np.zeros((used, 0), np.float32)
        return Outcome(alive, copies.reward[:used].copy(), costs)

    @property
    def observation(self) -> NDArray[Any]:
        """Current observations of all branches."""
        return self._target.copies.observation[: self._plants * self.branches]

    def _allot(self, plants: int, draw: int) -> None:
        """Reserve a fleet for `plants` plants, with capacity rounded up to a power of 2 to create few fleets."""
        self._plants = plants
        self._room = 1 << (plants - 1).bit_length()
        if self._room not in self._targets:
            count = self._room * self.branches
            target = make_target(self.environment, count, device=self._device, max_episode_steps=-1)
            target.prepare()
            self._targets[self._room] = target
        self._target = self._targets[self._room]
        self._spread("rng", random.streams(random.require_seed(self._seed + draw), plants))
        self.alive = np.ones(len(self._target.copies.reward), np.bool_)

    def _spread(self, name: str, rows: NDArray[Any]) -> None:
        """Copy each plant's row to its branches; spare capacity repeats the last plant's row."""
        array = getattr(self._target.copies, name)
        places = np.minimum(np.arange(self._room), self._plants - 1)
        array.reshape(self._room, self.branches, *array.shape[1:])[...] = rows[places][:, None]


class Outcome(NamedTuple):
    """Result of one step."""

    alive: NDArray[np.bool_]  # (branches,) whether the episode was ongoing before the step
    reward: NDArray[np.float32]  # (branches,)
    costs: NDArray[np.float32]  # (branches, constraints)


def judged(steps: list[Outcome], gamma: float = 1.0) -> NDArray[np.float64]:
    """Score each branch: its return, minus the range of all returns for each constraint violated in a step.

    A branch that ends early, or whose reward is not finite, continues with the worst reward of any branch, at most 0.
    It also continues with the costs of its last step. Ending an episode therefore never pays.
    """
    rewards = np.stack([step.reward for step in steps]).astype(np.float64)  # (steps, branches)
    counts = np.stack([step.alive for step in steps]) & np.isfinite(rewards)
    worst = min(0.0, float(rewards[counts].min())) if counts.any() else 0.0
    costs = np.stack([step.costs.sum(axis=1) for step in steps])
    for step in range(1, len(steps)):
        costs[step] = np.where(steps[step].alive, costs[step], costs[step - 1])
    returns = gamma ** np.arange(len(steps)) @ np.where(counts, rewards, worst)
    return returns - costs.sum(axis=0) * (np.ptp(returns) + 1.0)


class Readings:
    """Source of plant states: readable environments, or an estimator applied to observations."""

    def __init__(
        self, environment: Any, model: str | Environment | None, estimate: Estimate | None, mismatch: Mismatch, who: str
    ) -> None:
        """`environment` is the one that the controller is bound to; `model` replaces it as the model."""
        found = native_of(environment) if model is None else native_of(model)
        if found is None:
            raise ValueError(f"a {who} needs a compiled environment as its model: model=an id or an Environment")
        self.environment: Environment = found
        self._estimate, self._mismatch, self._who = estimate, mismatch, who
        plant = getattr(environment, "unwrapped", environment)
        self._plant = plant if hasattr(plant, "read") and model is None else None

    def read(self, observations: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the states and parameters of the observed plants; `mismatch` is applied to the parameters."""
        environment, count = self.environment, len(observations)
        if self._estimate is not None:
            states = _rows(environment, self._estimate(observations), count)
            params = environment.params.rows(count)
        elif self._plant is not None:
            arrays = self._plant.read(("state", "params"))
            states, params = arrays["state"], arrays["params"]
        else:
            raise ValueError(
                f"a {self._who} needs the state of its plant: bind it to the copies that it is to control, as in"
                f" .bind(velocirl.make_vec({environment.id!r}, 1)), or give estimate=, a function from observations"
            )
        if len(states) != count:
            raise ValueError(f"{environment.id}: there are {len(states)} copies, and observations of {count}")
        return states, mistaken(environment, params, self._mismatch)


def _rows(environment: Environment, given: Any, count: int) -> NDArray[Any]:
    """Return states as rows of the state record."""
    if isinstance(given, Mapping):
        return environment.state.rows(count, given)
    rows = np.asarray(given)
    if rows.dtype != environment.state.dtype:
        raise ValueError(f"{environment.id}: estimate= must give a dict of state fields, or rows of its state")
    return rows


def mistaken(environment: Environment, params: NDArray[Any], mismatch: Mismatch) -> NDArray[Any]:
    """Multiply some parameters by their mismatch factors in place, clipped to their bounds."""
    record = environment.params
    for name, factor in (mismatch or {}).items():
        if name not in record.fields:
            raise ValueError(f"{environment.id}: mismatch names {name!r}{record.suggestion(name)}")
        params[name] = np.clip(params[name] * factor, *record.bounds.get(name, (-np.inf, np.inf)))
    return params
