"""External vector environments whose observations are tensors on the learner's device: no transfers to the host."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import AutoresetMode

from velocirl.networks.heads import Head
from velocirl.networks.observations import raw_space
from velocirl.program.rows.experience import Experience
from velocirl.program.rows.host import without_costs
from velocirl.program.rows.recording import Outcome
from velocirl.vector.given_vector import GivenVectorEnv, told_costs


def stays_on(device: Any, source: Any) -> bool:
    """Return whether external environments return tensors of this device, in spaces that need no conversion."""
    given: GivenVectorEnv = source.ready
    return (
        source.tensors_on == device.name
        and not given.asks_for_masks
        and isinstance(source.observation_space, Box)
        and isinstance(source.action_space, (Box, Discrete, MultiDiscrete))
    )


class TensorExperience:
    """Latest step results of such environments, in tensors that velocirl's functions read and write."""

    def __init__(self, given: GivenVectorEnv, head: Head, device: Any, *, costs: bool = False) -> None:
        """With `costs`, the environments must report costs."""
        self._given, self._masked = given, head.masked
        self._envs: Any = given.given
        self._device, count = device.torch, given.num_envs
        shape, kind = raw_space(given.single_observation_space)
        self._observation, self._final = (self._zeros((count, *shape), kind) for _ in range(2))
        action = given.single_action_space
        self._action = self._zeros((count, *(action.shape or ())), action.dtype)
        self._mask = self._zeros((count, head.options if head.masked else 1), np.int8).fill_(1)
        self._final_mask = torch.zeros_like(self._mask)
        told = [self._zeros((count,), kind) for kind in (np.float32, "?", "?", np.float32, np.int32)]
        paid = [self._zeros((count, 1), np.float32) for _ in range(2)]
        paid[1].fill_(np.nan)
        self._told = Outcome(*told, *paid)
        self._returns, self._lengths = self._zeros((count,), np.float64), self._zeros((count,), np.int32)
        self._cost_totals, self._costs = self._zeros((count, 1), np.float64), costs
        seen, final, action = (one.view(count, -1) for one in (self._observation, self._final, self._action))
        self.arrays = Experience(seen, final, self._mask, self._final_mask, action, self._told)
        self._begun, self._seed = False, None

    def begin(self) -> None:
        """Begin the first episodes, unless they have begun."""
        if self._begun:
            return
        seed = self._given.take_seed()
        with self._on_its_own_stream():
            observations, infos = self._envs.reset(seed=seed if self._seed is None else self._seed)
        self._observation.copy_(self._here(observations))
        self._take_mask(infos)
        self._returns.zero_()
        self._lengths.zero_()
        self._cost_totals.zero_()
        self._begun, self._seed = True, None

    def begin_anew(self, seed: int) -> None:
        """Begin new episodes with another seed: a resumed run repeats none."""
        self._begun, self._seed = False, seed

    def step(self) -> None:
        """Step all environments by the actions."""
        with self._on_its_own_stream():  # cloned: the environment may keep its argument
            observations, rewards, terminated, truncated, infos = self._envs.step(self._action.clone())
        told = self._told
        told.reward.copy_(self._here(rewards))
        told.terminated.copy_(self._here(terminated))
        told.truncated.copy_(self._here(truncated))
        ended = told.terminated | told.truncated
        if costs := told_costs(infos):
            told.costs.copy_(self._here(costs[0]).view(-1, 1))
            keep(told.costs, self._here(costs[-1]).view(-1, 1), ended)
            self._cost_totals += told.costs
            keep(told.episode_costs, self._cost_totals, ended)
            self._cost_totals.masked_fill_(ended.view(-1, 1), 0.0)
        elif self._costs:
            raise without_costs(self._given.name)
        self._returns += told.reward
        self._lengths += 1
        keep(told.episode_return, self._returns, ended)
        keep(told.episode_length, self._lengths, ended)
        self._returns.masked_fill_(ended, 0.0)
        self._lengths.masked_fill_(ended, 0)
        self._observation.copy_(self._here(observations))
        if self._given.mode == AutoresetMode.SAME_STEP:
            self._take_final(infos, ended)
            self._take_final_mask(infos.get("final_info", {}), ended)
            self._take_mask(infos)
        else:
            self._take_final_mask(infos, ended)
            self._take_mask(infos)
            keep(self._final, self._observation, ended)
            self._begin_again(ended)

    def _take_final(self, infos: Mapping[str, Any], ended: torch.Tensor) -> None:
        final = infos.get("final_obs", infos.get("final_observation"))
        if final is None:
            if bool(ended.any()):
                raise self._given.without_an_end()
        elif isinstance(final, np.ndarray) and final.dtype == object:
            for copy in torch.nonzero(ended)[:, 0].tolist():
                self._final[copy] = self._here(final[copy])
        else:
            keep(self._final, self._here(final), ended)

    def _begin_again(self, ended: torch.Tensor) -> None:
        """Begin new episodes where one ended."""
        if not bool(ended.any()):
            return
        options = None if bool(ended.all()) else {"reset_mask": ended.cpu().numpy()}
        with self._on_its_own_stream():
            observations, infos = self._envs.reset(options=options)
        fresh = self._here(observations).to(self._observation.dtype)
        if not torch.equal(fresh[~ended], self._observation[~ended]):
            raise self._given.disturbed()
        self._observation.copy_(fresh)
        if self._masked and "action_mask" in infos:  # may lack the ongoing environments
            keep(self._mask, self._flat(infos["action_mask"]), ended)

    def _take_mask(self, infos: Mapping[str, Any]) -> None:
        if self._masked and "action_mask" in infos:
            self._mask.copy_(self._flat(infos["action_mask"]))

    def _take_final_mask(self, infos: Any, ended: torch.Tensor) -> None:
        """Store the action masks of truncated episodes' last states; zeros where `infos` lack them."""
        if not self._masked:
            return
        told = isinstance(infos, Mapping) and "action_mask" in infos
        keep(self._final_mask, self._flat(infos["action_mask"]) if told else torch.zeros_like(self._mask), ended)

    def _flat(self, mask: Any) -> torch.Tensor:
        parts = [self._here(part) for part in mask] if isinstance(mask, tuple) else [self._here(mask)]
        return torch.cat(parts, 1)

    def _here(self, value: Any) -> torch.Tensor:
        return torch.as_tensor(value, device=self._device)

    def _zeros(self, shape: tuple[int, ...], kind: Any) -> torch.Tensor:
        return torch.from_numpy(np.zeros(shape, kind)).to(self._device)

    @contextmanager
    def _on_its_own_stream(self) -> Iterator[None]:
        """Use the default stream within the context, as environments expect, in order with the current stream."""
        if self._device.type != "cuda":
            yield
            return
        ours, theirs = torch.cuda.current_stream(), torch.cuda.default_stream()
        theirs.wait_stream(ours)
        with torch.cuda.stream(theirs):
            yield
        ours.wait_stream(theirs)


def keep(rows: torch.Tensor, values: torch.Tensor, where: torch.Tensor) -> None:
    """Write the values of the chosen environments, without synchronization with the host."""
    chosen = where.view(-1, *[1] * (rows.dim() - 1))
    torch.where(chosen, values.to(rows.dtype), rows, out=rows)
