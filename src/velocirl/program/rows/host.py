"""Gymnasium environments as sources of experience: arrays with the names of a fleet's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from velocirl.engine.action_parts import action_type, as_given, has_parts
from velocirl.networks.heads import Head
from velocirl.networks.observations import raw_space, write_raw
from velocirl.program.rows.experience import Experience
from velocirl.program.rows.recording import Outcome
from velocirl.vector.host.interface import HostInterface


class HostExperience:
    """Latest results of Gymnasium environments, in arrays like a fleet's, and their steps in Python."""

    def __init__(self, envs: HostInterface, head: Head, *, costs: bool = False) -> None:
        """Allocate the arrays. With `costs`, every step must report its cost."""
        count, self._space, action = envs.num_envs, envs.single_observation_space, envs.single_action_space
        self._envs, self._masked = envs, head.masked
        shape, dtype = raw_space(self._space)
        self._observation, self._final = np.zeros((count, *shape), dtype), np.zeros((count, *shape), dtype)
        parts = has_parts(action)
        shape, dtype = ((), action_type(action, own=True)) if parts else (action.shape or (), action.dtype)
        chosen = np.zeros((count, *shape), dtype)
        self._action = as_given(action, chosen) if parts else chosen  # a view of `chosen`, as environments take it
        self._mask = np.ones((count, head.options if head.masked else 1), np.int8)
        self._final_mask = np.zeros_like(self._mask)
        numbers = np.zeros(count, np.float32), np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        costs_now, costs_then = np.zeros((count, 1), np.float32), np.full((count, 1), np.nan, np.float32)
        self._told = Outcome(*numbers, np.zeros(count, np.float32), np.zeros(count, np.int32), costs_now, costs_then)
        self._costs = costs
        seen, final = self._observation.reshape(count, -1), self._final.reshape(count, -1)
        written = chosen if parts else chosen.reshape(count, -1)
        self.arrays = Experience(seen, final, self._mask, self._final_mask, written, self._told)
        self._begun, self._seed = False, None
        self.after_step: Callable[[], None] = lambda: None  # hook called after every step

    def begin(self) -> bool:
        """Reset the environments on first use, in the thread that will step them. Returns whether they were reset."""
        if self._begun:
            return False
        self._take(*self._envs.reset(seed=self._seed))
        self._begun, self._seed = True, None
        return True

    def begin_anew(self, seed: int) -> None:
        """Start new episodes with `seed`, which differs from the first seed: a resumed run repeats no episode."""
        self._begun, self._seed = False, seed

    def step(self) -> None:
        """Step the environments with the current actions."""
        observations, rewards, terminated, truncated, infos = self._envs.step(self._action)
        self.after_step()
        self._take(observations, infos)
        told = self._told
        told.reward[:], told.terminated[:], told.truncated[:] = rewards, terminated, truncated
        if "cost" in infos:
            told.costs[:, 0] = infos["cost"]
        elif self._costs:
            raise without_costs(self._envs.name)
        if "final_obs" in infos:
            write_raw(self._space, self._envs.arrays.final_observations, self._final)
            if self._masked:
                self._final_mask[:] = self._envs.arrays.final_masks
        if "final_info" in infos:
            episode = infos["final_info"]["episode"]
            told.episode_return[:], told.episode_length[:] = episode["r"], episode["l"]
            if "cost" in episode:
                told.episode_costs[:, 0] = episode["cost"]

    def _take(self, observations: Any, infos: Mapping[str, Any]) -> None:
        write_raw(self._space, observations, self._observation)
        if self._masked:
            self._mask[:] = infos["action_mask"]


def without_costs(name: str) -> ValueError:
    """Return the error for an environment that does not report the costs an algorithm needs."""
    return ValueError(f"{name} gives no info['cost'] with its steps, which this algorithm limits: use one that does")
