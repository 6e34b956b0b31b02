"""Gymnasium's environments as the stages of a rollout see them: arrays with the names of a fleet's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from velocirl.engine.compiler.registers import as_rows
from velocirl.learners.experience import Experience
from velocirl.learners.recording import Outcome
from velocirl.networks.heads import Head
from velocirl.networks.observations import raw_space, write_raw
from velocirl.vector.host_interface import HostInterface


class HostRows(NamedTuple):
    """The arrays as compiled functions reach them, a row for each copy."""

    observation: NDArray[Any]
    final_observation: NDArray[Any]
    mask: NDArray[Any]
    action: NDArray[Any]
    reward: NDArray[Any]
    terminated: NDArray[Any]
    truncated: NDArray[Any]
    episode_return: NDArray[Any]
    episode_length: NDArray[Any]


class HostExperience:
    """What environments of Gymnasium's said last, in arrays as those of a fleet, and their steps in Python."""

    def __init__(self, envs: HostInterface, head: Head) -> None:
        count, self._space, action = envs.num_envs, envs.single_observation_space, envs.single_action_space
        self._envs, self._masked = envs, head.masked
        shape, dtype = raw_space(self._space)
        self._observation, self._final = np.zeros((count, *shape), dtype), np.zeros((count, *shape), dtype)
        self._action = np.zeros((count, *(action.shape or ())), action.dtype)
        self._mask = np.ones((count, head.outputs if head.masked else 1), np.int8)
        numbers = np.zeros(count, np.float32), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self._told = Outcome(*numbers, np.zeros(count, np.float32), np.zeros(count, np.int32))
        seen, final = self._observation.reshape(count, -1), self._final.reshape(count, -1)
        self.arrays = Experience(seen, final, self._mask, self._action.reshape(count, -1), self._told)
        self._begun, self._seed = False, None

    def begin(self) -> None:
        """Begin the first episodes, unless that was done; by the thread that will step them."""
        if not self._begun:
            self._take(*self._envs.reset(seed=self._seed))
            self._begun, self._seed = True, None

    def begin_anew(self, seed: int) -> None:
        """Let new episodes begin, by another seed than the first: where a run goes on, none is repeated."""
        self._begun, self._seed = False, seed

    def step(self) -> None:
        """Take the step that the actions say."""
        observations, rewards, terminated, truncated, infos = self._envs.step(self._action)
        self._take(observations, infos)
        told = self._told
        told.reward[:], told.terminated[:], told.truncated[:] = rewards, terminated, truncated
        if "final_obs" in infos:
            write_raw(self._space, infos["final_obs"], self._final)
        if "episode" in infos:
            told.episode_return[:], told.episode_length[:] = infos["episode"]["r"], infos["episode"]["l"]

    def _take(self, observations: Any, infos: Mapping[str, Any]) -> None:
        write_raw(self._space, observations, self._observation)
        if self._masked:
            self._mask[:] = infos["action_mask"]


class HostArrays:
    """What the copies said last."""

    def __init__(
        self, space: Space[Any], masked: bool, action: NDArray[Any], observation: NDArray[Any], mask: NDArray[Any]
    ) -> None:
        self._space, self._masked = space, masked
        self.action = action
        self._observation, self._final = observation, np.zeros_like(observation)
        self._mask = mask
        count = len(action)
        self.rows = HostRows(
            observation=as_rows(self._observation),
            final_observation=as_rows(self._final),
            mask=as_rows(self._mask),
            action=action if action.ndim == 1 else as_rows(action),
            reward=np.zeros(count, np.float32),
            terminated=np.zeros(count, np.bool_),
            truncated=np.zeros(count, np.bool_),
            episode_return=np.zeros(count, np.float32),
            episode_length=np.zeros(count, np.int32),
        )

    @classmethod
    def allocate(cls, envs: HostInterface, head: Head) -> HostArrays:
        """Arrays for these copies."""
        count, space, action = envs.num_envs, envs.single_observation_space, envs.single_action_space
        shape, dtype = raw_space(space)
        return cls(
            space,
            head.masked,
            np.zeros((count, *(action.shape or ())), action.dtype),
            np.zeros((count, *shape), dtype),
            np.ones((count, head.outputs if head.masked else 1), np.int8),
        )

    def take(self, observations: Any, infos: Mapping[str, Any]) -> None:
        """Take in what is seen, and what may be done."""
        write_raw(self._space, observations, self._observation)
        if self._masked:
            self._mask[:] = infos["action_mask"]

    def take_step(self, observations: Any, rewards: Any, terminated: Any, truncated: Any, infos: Any) -> None:
        """Take in what a step gave."""
        self.take(observations, infos)
        rows = self.rows
        rows.reward[:], rows.terminated[:], rows.truncated[:] = rewards, terminated, truncated
        if "final_obs" in infos:
            write_raw(self._space, infos["final_obs"], self._final)
        if "episode" in infos:
            rows.episode_return[:], rows.episode_length[:] = infos["episode"]["r"], infos["episode"]["l"]
