"""Recording of episodes of a vector environment, timestep by timestep."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.controllers import bound
from velocirl.engine.environment import Environment
from velocirl.engine.operating import seconds_by_row
from velocirl.training.episode_costs import COST, told_cost
from velocirl.training.evaluation import Model
from velocirl.trajectories.channels import Channels, channels_of
from velocirl.trajectories.constraint_values import traces_of
from velocirl.trajectories.control import set_points_of
from velocirl.trajectories.trajectory import SECONDS, STEPS, Quantity, Trajectory
from velocirl.vector.native import FleetVectorEnv

Array = NDArray[Any]


class Moment(NamedTuple):
    """Record of one timestep, a row for each environment."""

    observation: Array  # (envs, numbers)
    action: Array  # (envs, numbers) that led to this timestep
    reward: Array  # (envs,)
    terminated: Array  # (envs,)
    truncated: Array  # (envs,)
    cost: Array  # (envs,) NaN where unknown
    costs: Array  # (envs, constraints)
    state: Array  # (envs,) record; empty for an external environment
    params: Array  # (envs,) record


class Recorder:
    """Recorder of whole episodes, in environments that reset within the same step."""

    def __init__(self, envs: VectorEnv, max_steps: int) -> None:
        self._envs, self._max_steps = envs, max_steps
        self._fleet = envs if isinstance(envs, FleetVectorEnv) else None
        self._native: Environment | None = None if self._fleet is None else self._fleet.environment
        signals, actuators = ({}, {}) if self._native is None else (self._native.signals, self._native.actuators)
        self._seen = channels_of(envs.single_observation_space, "observation", signals)
        self._done = channels_of(envs.single_action_space, "action", actuators)
        self._parts: list[tuple[Array, Array, Moment]] = []  # episodes, steps, and the timesteps' records
        self.episodes = 0

    def record(self, model: Model, most: int, seed: int | None = None, *, deterministic: bool = True) -> None:
        """Play one episode in every environment, and keep those of the first environments, at most `most`."""
        envs, count, model = self._envs, self._envs.num_envs, bound(model, self._envs)
        observations, infos = envs.reset(seed=seed)
        moments = [self._beginning(observations)]
        lengths, kept = np.zeros(count, np.int64), min(most, count)
        playing, starts, state = np.arange(count) < kept, np.ones(count, np.bool_), None
        while playing.any() and len(moments) <= self._max_steps:
            # Pass only available arguments: models of other libraries do not accept all of these.
            more = {} if state is None else {"state": state, "episode_start": starts}
            if "action_mask" in infos:
                more["action_masks"] = infos["action_mask"]
            actions, state = model.predict(observations, deterministic=deterministic, **more)
            params = self._params()  # of this step's episode: the next episode may draw others
            observations, rewards, terminated, truncated, infos = envs.step(actions)
            starts = terminated | truncated
            moments.append(
                Moment(
                    self._after(observations, infos, starts),
                    self._done.rows(actions, count),
                    np.array(rewards),
                    np.array(terminated),
                    truncated | (len(moments) == self._max_steps),
                    *self._costs(infos, starts),
                    self._state(starts),
                    params,
                )
            )
            lengths += playing
            playing &= ~starts
        copies = np.repeat(np.arange(kept), lengths[:kept] + 1)
        steps = np.concatenate([np.arange(length + 1) for length in lengths[:kept]])
        whole = Moment(*(np.stack(column)[steps, copies] for column in zip(*moments, strict=True)))
        self._parts.append((copies + self.episodes, steps, whole))
        self.episodes += kept

    def trajectory(self, **about: Any) -> Trajectory:
        """Return all recorded episodes."""
        episodes, steps = (np.concatenate([part[place] for part in self._parts]) for place in (0, 1))
        told = Moment(*(np.concatenate(column) for column in zip(*(part[2] for part in self._parts), strict=True)))
        time, unit = self._times(steps, told.params)
        signals = _quantities(self._seen, told.observation)
        return Trajectory(
            environment=self._name,
            time=time,
            episode=episodes,
            reward=told.reward,
            terminated=told.terminated,
            truncated=told.truncated,
            signals=signals,
            set_points=set_points_of(self._native, signals),
            actuators=_quantities(self._done, told.action),
            constraints={} if self._native is None else traces_of(self._native, told.state, told.params, told.costs),
            cost=None if np.isnan(told.cost).all() else np.where(np.isnan(told.cost), 0.0, told.cost),
            time_unit=unit,
            **about,
        )

    @property
    def _name(self) -> str:
        if self._native is not None:
            return self._native.id
        spec = getattr(self._envs, "spec", None)
        return spec.id if spec is not None else getattr(self._envs, "name", type(self._envs).__name__)

    def _times(self, steps: Array, params: Array) -> tuple[Array, str]:
        """Return the time of each timestep and its unit: seconds if the environment declares its time step."""
        seconds = None if self._native is None else seconds_by_row(self._native, params)
        return (steps.astype(np.float64), STEPS) if seconds is None else (np.round(steps * seconds, 9), SECONDS)

    def _beginning(self, observations: Any) -> Moment:
        count = self._envs.num_envs
        no, number = np.zeros(count, np.bool_), 0 if self._native is None else len(self._native.constraints)
        return Moment(
            observation=self._seen.rows(observations, count).copy(),
            action=np.full((count, len(self._done.names)), np.nan, np.float32),
            reward=np.zeros(count, np.float32),
            terminated=no,
            truncated=no,
            cost=np.full(count, 0.0 if number else np.nan, np.float32),
            costs=np.zeros((count, number), np.float32),
            state=self._state(no),
            params=self._params(),
        )

    def _after(self, observations: Any, infos: dict[str, Any], ended: Array) -> Array:
        """Return the observations after a step, before new episodes begin."""
        rows = self._seen.rows(observations, len(ended)).copy()
        final = infos.get("final_obs")
        if final is None or not self._seen.names:
            return rows
        if isinstance(final, np.ndarray) and final.dtype == object:
            for copy in np.flatnonzero(ended):
                rows[copy] = self._seen.rows(final[copy], 1)[0]
        else:
            rows[ended] = self._seen.rows(final, len(ended))[ended]
        return rows

    def _state(self, ended: Array) -> Array:
        """Return the states after a step, before new episodes begin."""
        if self._fleet is None:
            return np.zeros(len(ended), np.bool_)
        read = self._fleet.read(("state", "final_state"))
        return np.where(ended, read["final_state"], read["state"])

    def _params(self) -> Array:
        return np.zeros(self._envs.num_envs) if self._fleet is None else self._fleet.read(("params",))["params"]

    def _costs(self, infos: dict[str, Any], ended: Array) -> tuple[Array, Array]:
        """Return the cost of a step: the total, and by constraint."""
        if self._native is not None and self._native.constraints:
            return np.array(infos[COST]), np.array(infos["costs"])
        return told_cost(infos, ended), np.zeros((len(ended), 0), np.float32)


def _quantities(channels: Channels, rows: Array) -> dict[str, Quantity]:
    named = zip(channels.names, channels.units, strict=True)
    return {name: Quantity(np.ascontiguousarray(rows[:, place]), unit) for place, (name, unit) in enumerate(named)}
