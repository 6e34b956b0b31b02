"""External vector environments, with the arrays and the autoreset that learners expect."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from velocirl.vector.checked_env import CheckedVectorEnv
from velocirl.vector.host.copies import Arrays, Description, Nested, Records, map_arrays, write_row
from velocirl.vector.host.interface import HostInterface, Seeds, time_limit_of


def mode_of(envs: VectorEnv) -> AutoresetMode:
    """Return the autoreset mode that a vector environment declares in its metadata."""
    said = (getattr(envs, "metadata", None) or {}).get("autoreset_mode")
    try:
        return AutoresetMode(said)
    except ValueError:
        raise ValueError(
            f"{_called(envs)} does not say when it begins new episodes: set metadata['autoreset_mode'] to one of"
            " gymnasium.vector.AutoresetMode"
        ) from None


class GivenVectorEnv(HostInterface, VectorEnv):
    """Wrapper that steps an external vector environment, which its creator closes.

    New episodes begin in the same step. Other autoreset modes are converted by `reset(options={"reset_mask": ended})`.
    """

    def __init__(self, envs: VectorEnv, *, seed: int | None = None) -> None:
        self._mode = mode_of(envs)  # first: an unusable vector environment is not touched
        super().__init__(None, envs.num_envs, seed, AutoresetMode.SAME_STEP, copy=False, infos=False)
        self._envs, self._acting = envs, CheckedVectorEnv(envs)
        self.tensors_on: str | None = None  # device type of the observations, if a reset returned tensors
        description = Description(envs.single_observation_space, envs.single_action_space, {}, envs.render_mode)
        self._adopt(description)
        self._arrays = Arrays.allocate(description, self.num_envs)
        self._arrays.action_masks[:] = 1
        self._returns, self._lengths = np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64)
        self._cost_totals = np.zeros(self.num_envs)
        self._inner = list(getattr(envs.unwrapped, "envs", None) or [])  # as in Gymnasium's SyncVectorEnv
        asked = [one.has_wrapper_attr("action_masks") for one in self._inner]
        self.asks_for_masks = bool(asked) and all(asked)

    @property
    def name(self) -> str:
        """Name for error messages."""
        return _called(self._envs)

    @property
    def time_limit(self) -> int | None:
        """Number of steps after which an episode is truncated, or None if unknown."""
        return time_limit_of(self._inner[0]) if self._inner else getattr(self._envs.spec, "max_episode_steps", None)

    @property
    def given(self) -> VectorEnv:
        """The external vector environment, unchanged."""
        return self._envs

    @property
    def mode(self) -> AutoresetMode:
        """The external vector environment's own autoreset mode."""
        return self._mode

    def begins_singly(self) -> bool:
        """Return whether one environment can be reset while the others continue; a reset by mask is tried out."""
        if self._mode == AutoresetMode.SAME_STEP or self.num_envs == 1:
            return True
        self.reset(seed=0)
        others = np.arange(self.num_envs) > 0
        envs: Any = self._envs
        observations, _ = envs.reset(options={"reset_mask": ~others})
        return same_rows(self._arrays.observations, observations, others)

    def disturbed(self) -> RuntimeError:
        """Return the error for a vector environment that resets environments outside the mask."""
        return RuntimeError(
            f"{self.name} begins new episodes in mode {self._mode.name}, and its reset(options={{'reset_mask':"
            " ...}) changed copies that were not named: use AutoresetMode.SAME_STEP, or give what makes its copies in a"
            " list"
        )

    def without_an_end(self) -> RuntimeError:
        """Return the error for a vector environment without final observations."""
        return RuntimeError(
            f"{self.name} begins new episodes in the same step, and its infos have no 'final_obs': without the last"
            " observations of episodes that were cut off, their values cannot be learnt"
        )

    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's attribute of that name or, for a method, its result."""
        caller: Any = self._envs
        return caller.call(name, *args, **kwargs)

    def close_extras(self, **kwargs: Any) -> None:
        """Do nothing: the creator closes the vector environment."""

    def _set_attr(self, name: str, values: list[Any]) -> None:
        caller: Any = self._envs
        caller.set_attr(name, values)

    def _reset_copies(
        self, seeds: dict[int, int | None], options: dict[str, Any] | None
    ) -> tuple[Records, NDArray[Any] | None]:
        chosen = np.zeros(self.num_envs, np.bool_)
        chosen[list(seeds)] = True
        self._begin(chosen, _as_given(list(seeds.values())), options)
        return [], None

    def _step_copies(self) -> tuple[Records, NDArray[Any] | None]:
        arrays = self._arrays
        actions = map_arrays(np.copy, arrays.actions)  # an environment may keep its actions
        observations, rewards, terminated, truncated, infos = self._acting.step(actions)
        arrays.rewards[:] = as_array(rewards)
        arrays.terminated[:], arrays.truncated[:] = as_array(terminated), as_array(truncated)
        ended = arrays.terminated | arrays.truncated
        self._returns += arrays.rewards
        self._lengths += 1
        self._take_costs(infos, ended)
        write_rows(arrays.observations, observations)
        if not ended.any():
            self._take_masks(infos)
            return [], None
        arrays.episode_returns[ended], arrays.episode_lengths[ended] = self._returns[ended], self._lengths[ended]
        if self._mode == AutoresetMode.SAME_STEP:
            self._returns[ended], self._lengths[ended] = 0.0, 0
            self._take_final_observations(infos, ended)
            self._take_final_masks(infos.get("final_info", {}), ended)
            self._take_masks(infos)
        else:
            write_rows(arrays.final_observations, observations, ended)
            self._take_final_masks(infos, ended, ask=True)
            self._take_masks(infos, ~ended)
            self._begin(ended, None, None)
        return [], None

    def _begin(self, chosen: NDArray[Any], seed: Seeds, options: Mapping[str, Any] | None) -> None:
        given = dict(options or {})
        if not chosen.all():
            given["reset_mask"] = chosen.copy()
        envs: Any = self._acting
        observations, infos = envs.reset(seed=seed, options=given or None)
        self.tensors_on = observations.device.type if hasattr(observations, "detach") else None
        if not chosen.all() and not same_rows(self._arrays.observations, observations, ~chosen):
            raise self.disturbed()
        write_rows(self._arrays.observations, observations, chosen)
        self._returns[chosen], self._lengths[chosen], self._cost_totals[chosen] = 0.0, 0, 0.0
        self._take_masks(infos, chosen)

    def _take_final_observations(self, infos: Mapping[str, Any], ended: NDArray[Any]) -> None:
        final = infos.get("final_obs", infos.get("final_observation"))
        if final is None:
            raise self.without_an_end()
        if isinstance(final, np.ndarray) and final.dtype == object:
            for copy in np.flatnonzero(ended).tolist():
                write_row(self._arrays.final_observations, copy, final[copy])
        else:
            write_rows(self._arrays.final_observations, final, ended)

    def _take_costs(self, infos: Mapping[str, Any], ended: NDArray[Any]) -> None:
        arrays = self._arrays
        costs = [as_array(cost) for cost in told_costs(infos)]
        if not costs:
            return
        arrays.costs[:] = costs[0]
        if len(costs) > 1:
            arrays.costs[ended] = costs[1][ended]
        arrays.has_cost[:] = True
        self._cost_totals += arrays.costs
        arrays.episode_costs[ended] = self._cost_totals[ended]
        self._cost_totals[ended] = 0.0

    def _take_final_masks(self, infos: Mapping[str, Any], ended: NDArray[Any], *, ask: bool = False) -> None:
        """Store legal actions in the last states of truncated episodes, from the infos of those steps or a method."""
        masks = self._arrays.final_masks
        if masks.shape[1]:
            masks[ended] = 0
            cut = ended & ~self._arrays.terminated
            self._write_masks(masks, infos if isinstance(infos, Mapping) else {}, cut, ask=ask)

    def _take_masks(self, infos: Mapping[str, Any], chosen: NDArray[Any] | None = None) -> None:
        masks = self._arrays.action_masks
        if masks.shape[1]:
            everyone = np.ones(self.num_envs, np.bool_)
            if self._write_masks(masks, infos, everyone if chosen is None else chosen, ask=True):
                self._arrays.has_mask[:] = True

    def _write_masks(
        self, masks: NDArray[np.int8], infos: Mapping[str, Any], chosen: NDArray[Any], *, ask: bool
    ) -> bool:
        """Write the chosen environments' masks, from infos or else from a method; returns whether either has masks."""
        if "action_mask" in infos:
            told = as_array(infos.get("_action_mask", chosen)) & chosen
            for copy in np.flatnonzero(told).tolist():
                masks[copy] = flat_mask(infos["action_mask"][copy])
            return True
        if ask and self.asks_for_masks:
            for copy in np.flatnonzero(chosen).tolist():
                masks[copy] = flat_mask(self._inner[copy].get_wrapper_attr("action_masks")())
            return True
        return False


def as_array(value: Any) -> NDArray[Any]:
    """Convert to a NumPy array in host memory, from any library and device."""
    return np.asarray(value.detach().cpu() if hasattr(value, "detach") else value)


def told_costs(infos: Mapping[str, Any]) -> list[Any]:
    """Return the costs of all environments' steps, then those in `final_info`, as far as the infos contain them."""
    final = infos.get("final_info")
    last = [final["cost"]] if isinstance(final, Mapping) and "cost" in final else []
    return [infos["cost"], *last] if "cost" in infos else last * 2


def flat_mask(mask: Any) -> NDArray[Any]:
    """Flatten one environment's mask; the masks of a MultiDiscrete space's dimensions are concatenated."""
    return np.concatenate([as_array(part) for part in mask]) if isinstance(mask, tuple) else as_array(mask)


def write_rows(nested: Nested, values: Any, where: NDArray[Any] | slice = slice(None)) -> None:
    """Write the chosen environments' rows into every array."""
    if isinstance(nested, np.ndarray):
        nested[where] = as_array(values)[where]
    else:
        for key, part in nested.items() if isinstance(nested, dict) else enumerate(nested):
            write_rows(part, values[key], where)


def same_rows(nested: Nested, values: Any, where: NDArray[Any]) -> bool:
    """Return whether the chosen environments' rows equal the arrays' bit for bit."""
    if isinstance(nested, np.ndarray):
        return nested[where].tobytes() == np.asarray(as_array(values)[where], nested.dtype).tobytes()
    parts = nested.items() if isinstance(nested, dict) else enumerate(nested)
    return all(same_rows(part, values[key], where) for key, part in parts)


def _as_given(seeds: list[int | None]) -> Seeds:
    """Return consecutive seeds as their first number: not every vector environment accepts a list."""
    first = seeds[0]
    if first is None:
        return None
    return first if seeds == list(range(first, first + len(seeds))) else seeds


def _called(envs: VectorEnv) -> str:
    return getattr(envs.unwrapped, "called", type(envs.unwrapped).__name__)
