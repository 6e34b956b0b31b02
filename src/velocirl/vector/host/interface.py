"""Caller's interface to the environments of a `gym:` fleet, wherever they run: seeds, masks, checks and results."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.error import ClosedEnvironmentError
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from gymnasium.wrappers import TimeLimit

from velocirl.engine.random import require_seed
from velocirl.vector.gymnasium_ids import find_spec
from velocirl.vector.host.copies import (
    Arrays,
    Description,
    Nested,
    Records,
    Source,
    map_arrays,
    read_row,
    require_fixed_size,
)
from velocirl.vector.native_copies import NativeCopies
from velocirl.vector.preprocessing.wrappers import Atari
from velocirl.vector.reset_mask import split_mask

Seeds = int | Sequence[int | None] | None
FEW = 64  # environments
RAISED_BY = "raised by copy"  # beginning of the note attached to exceptions raised by environments


def find_source(environment: str | Source) -> Source:
    """Return the source of environments: an id becomes its specification, which other processes can use too."""
    if not isinstance(environment, str):
        if isinstance(environment, (EnvSpec, list)) or callable(environment):
            return environment
        raise ValueError(f"expected a Gymnasium id, an EnvSpec or a callable that makes one, got {environment!r}")
    return find_spec(environment)


def copy_seeds(entropy: int | Sequence[int], num_envs: int) -> list[int]:
    """Derive a seed for each environment from (entropy, index): adjacent seeds share no streams, nor do environments.

    Environment i has the same seed for any `num_envs`. Seeds have 31 bits, because some simulators accept no more.
    """
    words = np.random.SeedSequence(entropy).generate_state(2 * num_envs + 64) & np.uint32(0x7FFFFFFF)
    return list(dict.fromkeys(words.tolist()))[:num_envs]


def store_actions(space: gymnasium.Space, arrays: Nested, actions: Any, name: str = "actions") -> None:
    """Copy the caller's actions into the arrays; wrong shapes or values raise ValueError naming the environment."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            store_actions(part, arrays[key], actions[key], f"{name}[{key!r}]")
        return
    if isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            store_actions(part, arrays[index], actions[index], f"{name}[{index}]")
        return
    values = np.asarray(actions)
    if values.shape != arrays.shape or not (
        values.dtype == arrays.dtype or np.can_cast(values.dtype, arrays.dtype, "same_kind")
    ):
        raise ValueError(
            f"{name} must be an array of shape {arrays.shape} and type {arrays.dtype}, "
            f"got shape {values.shape} and type {values.dtype}"
        )
    if isinstance(space, spaces.Discrete):
        # For few environments Python finds the minimum and maximum much faster than NumPy.
        seen = values.tolist() if len(values) <= FEW else (values.min(), values.max())
        if min(seen) >= space.start and max(seen) < space.start + space.n:
            arrays[...] = values
            return
        possible = (values >= space.start) & (values < space.start + space.n)
    elif isinstance(space, spaces.MultiDiscrete):
        possible = (values >= space.start) & (values < space.start + space.nvec)
    elif isinstance(space, spaces.MultiBinary):
        possible = (values == 0) | (values == 1)
    else:
        possible = np.isfinite(values)
    if not possible.all():
        copy = int(np.argwhere(~possible)[0][0])
        raise ValueError(f"{name} of copy {copy} is {values[copy]}, which is not in {space}")
    arrays[...] = values


def frame_of(space: gymnasium.Space, stack: int) -> gymnasium.Space:
    """Return the space of a single frame of observations that stack `stack` frames."""
    if stack == 1:
        return space
    assert isinstance(space, spaces.Box)  # noqa: S101 - for the type checker: pictures are stacked
    return spaces.Box(space.low[0], space.high[0], dtype=np.dtype(space.dtype).type)


def time_limit_of(environment: gymnasium.Env) -> int | None:
    """Return the number of steps after which a `TimeLimit` truncates an episode; None without one."""
    layer = environment
    while isinstance(layer, gymnasium.Wrapper):
        if isinstance(layer, TimeLimit):
            return layer._max_episode_steps
        layer = layer.env
    return layer.time_limit if isinstance(layer, NativeCopies) else None


def any_of(flags: np.ndarray) -> bool:
    """Return whether any flag is set; for few flags, 10x faster than NumPy's `any`."""
    return b"\x01" in flags.tobytes()


class HostInterface(VectorEnv):
    """VectorEnv over `Arrays`; a subclass defines where the environments run and fill them."""

    _arrays: Arrays
    preprocess: Atari | None = None  # image preprocessing, where it is done here

    def __init__(
        self,
        source: Source | None,
        num_envs: int,
        seed: Seeds,
        autoreset_mode: AutoresetMode,
        copy: bool,
        infos: bool,
        arguments: dict[str, Any] | None = None,
    ) -> None:
        if not isinstance(num_envs, (int, np.integer)) or num_envs < 1:
            raise ValueError(f"num_envs must be a whole number of at least 1, got {num_envs!r}")
        self.source, self.arguments = source, arguments or {}  # allows making more environments
        self.num_envs = int(num_envs)
        self.spec = source if isinstance(source, EnvSpec) else None
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.copy = copy
        self._keep_infos = infos
        self._seed = seed
        self._entropy: list[int] | None = None
        self._resets_needed = True
        self._closed_because = "close() was called"
        if seed is not None:
            self._seeds(seed)

    @property
    def name(self) -> str:
        """Id of the environment or, for a callable, its name; used in error messages."""
        source = self.source[0] if isinstance(self.source, list) else self.source
        return source.id if isinstance(source, EnvSpec) else getattr(source, "__qualname__", "env")

    @property
    def stack(self) -> int:
        """Number of frames stacked in an observation, oldest first."""
        return 1 if self.preprocess is None else self.preprocess.stack

    @property
    def time_limit(self) -> int | None:
        """Number of steps after which an episode is truncated, or None if unknown."""
        if (limit := self.arguments.get("max_episode_steps")) is None and self.spec is not None:
            limit = self.spec.max_episode_steps or self.spec.kwargs.get("max_num_frames_per_episode")  # the latter: ALE
        return limit if limit and limit > 0 else None

    @property
    def frame(self) -> gymnasium.Space:
        """Space of a single frame."""
        return frame_of(self.single_observation_space, self.stack)

    def begin_with(self, seed: Seeds) -> None:
        """Set the seed for the next reset without one."""
        self._seeds(seed)
        self._seed = seed

    def take_seed(self) -> Seeds:
        """Return and clear the seed set by `begin_with`, for a caller that performs the reset itself."""
        seed, self._seed = self._seed, None
        return seed

    @abstractmethod
    def _reset_copies(
        self, seeds: dict[int, int | None], options: dict[str, Any] | None
    ) -> tuple[Records, np.ndarray | None]:
        """Start new episodes in the given environments; returns infos and the mask of restarted ones, or None."""

    @abstractmethod
    def _step_copies(self) -> tuple[Records, np.ndarray | None]:
        """Apply the actions in the arrays; returns infos and the mask of restarted environments, or None."""

    @abstractmethod
    def _set_attr(self, name: str, values: list[Any]) -> None:
        """Set an attribute of each environment to its value."""

    @abstractmethod
    def call(self, name: str, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Return each environment's attribute of that name or, for a method, its result."""

    def reset(self, *, seed: Seeds = None, options: dict[str, Any] | None = None) -> tuple[Nested, dict[str, Any]]:
        """Start new episodes, in all environments or in those of `options["reset_mask"]` (bool array).

        As in Gymnasium, an int seeds environment 0 and environment i gets `seed + i`; a list has one seed for each.
        With None the random streams continue.
        """
        self._require_open()
        mask, options = self._split_options(options)
        seeds = self._seeds(self._seed if seed is None else seed)
        records, restarted = self._reset_copies({int(copy): seeds[copy] for copy in np.flatnonzero(mask)}, options)
        self._seed = None
        self._resets_needed = False
        return self._result(self._arrays.observations), self._infos(records, restarted)

    def step(self, actions: Any) -> tuple[Nested, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Apply one action to every environment; returns (observations, rewards, terminated, truncated, infos)."""
        self._require_open()
        arrays = self._arrays
        if self._resets_needed:
            raise RuntimeError(f"{self.name}: call reset() before step()")
        if self.autoreset_mode == AutoresetMode.DISABLED and (finished := arrays.terminated | arrays.truncated).any():
            raise RuntimeError(
                f"{self.name}: the episodes of copies {np.flatnonzero(finished).tolist()} are over and autoreset is "
                "disabled; reset them with reset(options={'reset_mask': terminated | truncated})"
            )
        store_actions(self.single_action_space, arrays.actions, actions)
        infos = self._infos(*self._step_copies(), stepped=True)
        return (
            self._result(arrays.observations),
            self._result(arrays.rewards),
            self._result(arrays.terminated),
            self._result(arrays.truncated),
            infos,
        )

    @property
    def arrays(self) -> Arrays:
        """Arrays shared by the environments and their caller, one row per environment."""
        return self._arrays

    def advance(self) -> None:
        """Apply the unchecked actions that the caller wrote into the arrays, and leave the results there.

        Used where the checks and copies of `step` would cost more than the step.
        """
        self._require_open()
        if self._resets_needed:
            raise RuntimeError(f"{self.name}: call reset() before advance()")
        self._step_copies()

    def render(self) -> tuple[Any, ...]:
        """Render one frame per environment."""
        return self.call("render")

    def get_attr(self, name: str) -> tuple[Any, ...]:
        """Return each environment's attribute of that name."""
        return self.call(name)

    def set_attr(self, name: str, values: Any) -> None:
        """Set an attribute: one value for all environments or, with a list or tuple, one for each."""
        self._require_open()
        values = list(values) if isinstance(values, (list, tuple)) else [values] * self.num_envs
        if len(values) != self.num_envs:
            raise ValueError(
                f"{len(values)} values of {name!r} for num_envs={self.num_envs}; give one, or one per copy"
            )
        self._set_attr(name, values)

    @property
    def np_random(self) -> Any:
        """Random generators of the environments."""
        return self.get_attr("np_random")

    @np_random.setter
    def np_random(self, value: Any) -> None:
        self.set_attr("np_random", value)

    @property
    def np_random_seed(self) -> Any:
        """Seeds of the environments."""
        return self.get_attr("np_random_seed")

    def _adopt(self, description: Description) -> None:
        require_fixed_size(description.observation_space, "observation space")
        require_fixed_size(description.action_space, "action space")
        self.single_observation_space = description.observation_space
        self.single_action_space = description.action_space
        self.observation_space = batch_space(description.observation_space, self.num_envs)
        self.action_space = batch_space(description.action_space, self.num_envs)
        self.metadata = {**description.metadata, "autoreset_mode": self.autoreset_mode}
        self.render_mode = description.render_mode

    def _require_open(self) -> None:
        if self.closed:
            raise ClosedEnvironmentError(f"{self.name} is closed ({self._closed_because}); make a new one")

    def _result(self, nested: Nested) -> Nested:
        if not self.copy:
            return nested
        return nested.copy() if isinstance(nested, np.ndarray) else map_arrays(np.copy, nested)

    def _seeds(self, seed: Seeds) -> list[int | None]:
        if seed is None:
            return [None] * self.num_envs
        if not isinstance(seed, (Sequence, np.ndarray)):
            first = require_seed(seed)
            self._entropy = [first]
            return list(range(first, first + self.num_envs))
        given = [None if entry is None else require_seed(entry) for entry in seed]
        if len(given) != self.num_envs:
            raise ValueError(f"{len(given)} seeds for num_envs={self.num_envs}; give one per copy, or one int for all")
        self._entropy = [entry for entry in given if entry is not None]
        return given

    def _split_options(self, options: dict[str, Any] | None) -> tuple[np.ndarray, dict[str, Any] | None]:
        mask, others = split_mask(options, self.num_envs)
        if mask is None:
            return np.ones(self.num_envs, np.bool_), options
        if self._resets_needed and not mask.all():
            raise ValueError("the first reset must reset every copy: call reset() without options['reset_mask']")
        return mask, others

    def _infos(self, records: Records, restarted: np.ndarray | None, stepped: bool = False) -> dict[str, Any]:
        arrays = self._arrays
        told = stepped and not self._keep_infos and any_of(arrays.has_cost)
        costs = self._costs(arrays.costs) if told else {}
        infos: dict[str, Any] = dict(costs)
        for copy, info in records:
            infos = self._add_info(infos, info, copy)
        if stepped and (any_of(arrays.terminated) or any_of(arrays.truncated)):
            ended = arrays.terminated | arrays.truncated
            if self.autoreset_mode == AutoresetMode.SAME_STEP:
                infos["final_obs"] = self._final_observations(ended)
                infos["_final_obs"] = ended
            completed = ended if restarted is None else ended & ~restarted
            if completed.any() and not self._keep_infos:  # with `infos`, they are the environments' own
                returns, lengths = self._result(arrays.episode_returns), self._result(arrays.episode_lengths)
                infos["final_info"] = {"episode": {"r": returns, "l": lengths}, "_episode": completed}
                infos["_final_info"] = completed
                if costs:
                    infos["final_info"]["episode"] |= self._costs(arrays.episode_costs)
                    infos["final_info"] |= {**costs, "_cost": completed, "_costs": completed}
        if any_of(arrays.has_mask):
            infos["action_mask"] = self._result(arrays.action_masks)
        if restarted is not None:
            infos["restarted"] = restarted
        return infos

    def _costs(self, costs: np.ndarray) -> dict[str, Any]:
        """Return the costs of each environment's step or episode, as a single constraint."""
        single = costs.astype(np.float32)
        return {"cost": single, "costs": single[:, None]}

    def _final_observations(self, ended: np.ndarray) -> Nested:
        """Return the last observations: one row per environment or, for composite spaces, one object each."""
        last = self._arrays.final_observations
        if isinstance(last, np.ndarray):
            return self._result(last)
        objects = np.full(self.num_envs, None, object)
        for copy in np.flatnonzero(ended).tolist():
            objects[copy] = read_row(last, copy)
        return objects
