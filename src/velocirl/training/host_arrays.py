"""Gymnasium's environments as the stages of a rollout see them: arrays with the names of a fleet's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from velocirl.engine.registers import as_rows
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
