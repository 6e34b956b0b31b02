"""Episodes of a vector environment, written down moment by moment."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from gymnasium.vector import VectorEnv
from numpy.typing import NDArray

from velocirl.engine.environment import Environment
from velocirl.training.evaluation import Model
from velocirl.trajectories.channels import Channels, channels_of
from velocirl.trajectories.trajectory import SECONDS, STEPS, Quantity, Trajectory
from velocirl.vector.native import FleetVectorEnv

Array = NDArray[Any]
TIME_STEP = "time_step"  # the parameter that says how many seconds a step takes, in environments that have one


class Moment(NamedTuple):
    """What there is of a moment, a row for each copy."""

    observation: Array  # (copies, numbers)
    action: Array  # (copies, numbers) that led here
    reward: Array  # (copies,)
    terminated: Array  # (copies,)
    truncated: Array  # (copies,)
    duration: Array  # (copies,) seconds that a step takes, or 1 where nobody says


class Recorder:
    """Plays whole episodes in copies that begin new ones in the same step, and keeps what happened."""

    def __init__(self, envs: VectorEnv, max_steps: int) -> None:
        self._envs, self._max_steps = envs, max_steps
        self._native: Environment | None = envs.environment if isinstance(envs, FleetVectorEnv) else None
        self._seen = channels_of(envs.single_observation_space, "observation", {})
        self._done = channels_of(envs.single_action_space, "action", {})
        self._parts: list[tuple[Array, Array, Moment]] = []  # episodes and steps, and what was then
        self.episodes = 0

    def record(self, model: Model, most: int, seed: int | None = None, *, deterministic: bool = True) -> None:
        """Play one episode in every copy, and keep those of the first copies, at most so many."""
        envs, count = self._envs, self._envs.num_envs
        observations, infos = envs.reset(seed=seed)
        moments = [self._beginning(observations)]
        lengths, kept = np.zeros(count, np.int64), min(most, count)
        playing, starts, state = np.arange(count) < kept, np.ones(count, np.bool_), None
        while playing.any() and len(moments) <= self._max_steps:
            # Only what there is, since the models of other libraries do not know all of these.
            more = {} if state is None else {"state": state, "episode_start": starts}
            if "action_mask" in infos:
                more["action_masks"] = infos["action_mask"]
            actions, state = model.predict(observations, deterministic=deterministic, **more)
            duration = self._duration()  # of the episode that this step belongs to: the next may draw another
            observations, rewards, terminated, truncated, infos = envs.step(actions)
            starts = terminated | truncated
            moments.append(
                Moment(
                    self._after(observations, infos, starts),
                    self._done.rows(actions, count).copy(),
                    np.array(rewards),
                    np.array(terminated),
                    truncated | (len(moments) == self._max_steps),
                    duration,
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
        """All episodes so far."""
        episodes, steps = (np.concatenate([part[place] for part in self._parts]) for place in (0, 1))
        told = Moment(*(np.concatenate(column) for column in zip(*(part[2] for part in self._parts), strict=True)))
        return Trajectory(
            environment=self._name,
            time=_times(steps, told.duration),
            episode=episodes,
            reward=told.reward,
            terminated=told.terminated,
            truncated=told.truncated,
            signals=_quantities(self._seen, told.observation),
            actuators=_quantities(self._done, told.action),
            time_unit=SECONDS if self._has_clock else STEPS,
            **about,
        )

    @property
    def _name(self) -> str:
        if self._native is not None:
            return self._native.id
        spec = getattr(self._envs, "spec", None)
        return spec.id if spec is not None else getattr(self._envs, "name", type(self._envs).__name__)

    @property
    def _has_clock(self) -> bool:
        record = None if self._native is None else self._native.params
        return record is not None and TIME_STEP in record.fields and not record.dtype[TIME_STEP].shape

    def _duration(self) -> Array:
        if not self._has_clock:
            return np.ones(self._envs.num_envs)
        assert isinstance(self._envs, FleetVectorEnv)  # noqa: S101 - it has a clock
        return self._envs.read(("params",))["params"][TIME_STEP] * np.float32(self._envs.environment.skip)

    def _beginning(self, observations: Any) -> Moment:
        count = self._envs.num_envs
        nothing, no = np.zeros(count, np.float32), np.zeros(count, np.bool_)
        unknown = np.full((count, len(self._done.names)), np.nan, np.float32)
        return Moment(self._seen.rows(observations, count).copy(), unknown, nothing, no, no, nothing)

    def _after(self, observations: Any, infos: dict[str, Any], ended: Array) -> Array:
        """What is seen after a step, before new episodes begin."""
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


def _quantities(channels: Channels, rows: Array) -> dict[str, Quantity]:
    named = zip(channels.names, channels.units, strict=True)
    return {name: Quantity(np.ascontiguousarray(rows[:, place]), unit) for place, (name, unit) in enumerate(named)}


def _times(steps: Array, durations: Array) -> Array:
    """When moments were; 0.05 s in single precision is meant to be 0.05 s."""
    values, places = np.unique(durations, return_inverse=True)
    exact = np.array([float(str(value)) for value in values])
    return np.round(steps * exact[places], 9)
