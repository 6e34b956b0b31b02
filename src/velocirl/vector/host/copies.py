"""Group of Gymnasium environments stepped into given arrays, in this process or in a worker process.

Imports nothing of velocirl but `contract`: a worker process loads these two files alone, and starts without numba.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from gymnasium.vector.utils import create_empty_array

from .contract import ContractError, FirstSteps, Recorder, explained, problems_of, worst

Nested = Any  # an array, or dicts and tuples of arrays nested like the space they hold
Making = Callable[..., gymnasium.Env]
Source = EnvSpec | Making | Sequence[Making]  # several functions take turns
Preparing = Callable[[gymnasium.Env], gymnasium.Env]  # wraps an environment before it is used
Records = list[tuple[int, dict[str, Any]]]  # (environment, its info), in order of occurrence


def make_environments(
    source: Source, copies: Iterable[int], arguments: dict[str, Any], prepare: Preparing | None = None
) -> list[gymnasium.Env]:
    """Make the environment once per index in `copies`, prepared; on an error, close the earlier ones."""
    if arguments.get("render_mode", ...) is None:  # not every environment has this argument
        arguments = {name: value for name, value in arguments.items() if name != "render_mode"}
    environments: list[gymnasium.Env] = []
    try:
        for copy in copies:
            if isinstance(source, EnvSpec):
                # Gymnasium's checker would warn of what `contract` refuses, and cost time in each step.
                environment = gymnasium.make(source, **{"disable_env_checker": True, **arguments})
            else:
                maker = source[copy % len(source)] if isinstance(source, Sequence) else source
                environment = maker(**arguments)
            if not isinstance(environment, gymnasium.Env):
                raise TypeError(f"{source!r} returned {environment!r}; it must return a gymnasium.Env")
            environments.append(environment)
            if prepare is not None:
                environments[-1] = prepare(environment)
    except BaseException:
        for environment in environments:
            environment.close()
        raise
    return environments


@dataclass(frozen=True)
class Description:
    """Properties of the environments that a caller needs before the first step."""

    observation_space: gymnasium.Space
    action_space: gymnasium.Space
    metadata: dict[str, Any]
    render_mode: str | None

    @classmethod
    def of(cls, environments: Sequence[gymnasium.Env]) -> "Description":
        """Describe the environments; raises RuntimeError if their spaces differ."""
        first = environments[0]
        for environment in environments:
            if (environment.observation_space, environment.action_space) != (
                first.observation_space,
                first.action_space,
            ):
                raise RuntimeError(
                    "the copies have different spaces: "
                    f"{first.observation_space}, {first.action_space} and "
                    f"{environment.observation_space}, {environment.action_space}; make them all alike"
                )
        return cls(first.observation_space, first.action_space, dict(first.metadata), first.render_mode)


def require_fixed_size(space: gymnasium.Space, name: str) -> None:
    """Raise ValueError for spaces without a fixed size, naming the part of the space."""
    if isinstance(space, spaces.Dict):
        for key, part in space.spaces.items():
            require_fixed_size(part, f"{name}[{key!r}]")
    elif isinstance(space, spaces.Tuple):
        for index, part in enumerate(space.spaces):
            require_fixed_size(part, f"{name}[{index}]")
    elif not isinstance(space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)):
        wrapper = "TransformAction" if name.startswith("action") else "TransformObservation"
        raise ValueError(
            f"the {name} is {space}, whose samples have no fixed size and fit into no array: register the environment "
            f"in a gymnasium.wrappers.{wrapper} that makes them Box, Discrete, MultiDiscrete, MultiBinary, or Dict and "
            "Tuple of those; as it is, gymnasium.vector.SyncVectorEnv runs it"
        )


def count_options(space: gymnasium.Space) -> int:
    """Return the width of an action mask: one entry per option of each choice, in the space's order."""
    if isinstance(space, (spaces.Dict, spaces.Tuple)):
        return sum(map(count_options, space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces))
    if isinstance(space, spaces.MultiBinary):
        return 2 * math.prod(space.shape)
    return int(np.sum(getattr(space, "n", getattr(space, "nvec", 0))))


def map_arrays(function: Callable[[np.ndarray], np.ndarray], nested: Nested) -> Nested:
    """Apply the function to every array, keeping the nesting."""
    if isinstance(nested, np.ndarray):
        return function(nested)
    if isinstance(nested, dict):
        return {key: map_arrays(function, part) for key, part in nested.items()}
    return tuple(map_arrays(function, part) for part in nested)


def write_row(nested: Nested, index: int, value: Any) -> None:
    """Write one environment's value into its row of every array; raises ValueError for another shape."""
    if isinstance(nested, np.ndarray):
        if (
            getattr(value, "size", 0) * len(nested) != nested.size
        ):  # faster than comparing shapes; another size may broadcast
            require_shape(value, nested.shape[1:])
        nested[index] = value
    elif isinstance(nested, dict):
        for key, part in nested.items():
            write_row(part, index, value[key])
    else:
        for part, part_value in zip(nested, value, strict=True):
            write_row(part, index, part_value)


def read_row(nested: Nested, index: int) -> Any:
    """Return one environment's value, not a view: an environment may keep the action it received."""
    if isinstance(nested, np.ndarray):
        return nested[index] if nested.ndim == 1 else nested[index].copy()
    if isinstance(nested, dict):
        return {key: read_row(part, index) for key, part in nested.items()}
    return tuple(read_row(part, index) for part in nested)


def require_shape(value: Any, shape: tuple[int, ...]) -> None:
    """Raise ValueError for an observation of another shape, which NumPy would silently broadcast into its row."""
    if getattr(value, "shape", ()) != shape and np.shape(value) != shape:
        raise ValueError(f"observation of shape {np.shape(value)}; the observation space says {shape}")


class Carver:
    """Allocator of consecutive arrays in one block of memory; without a block it only counts the bytes."""

    def __init__(self, memory: Any = None) -> None:
        self.memory = memory
        self.size = 0

    def __call__(self, shape: tuple[int, ...], dtype: Any) -> np.ndarray:
        """Return the next array, at the start of a cache line."""
        start = -(-self.size // 64) * 64
        self.size = start + math.prod(shape) * np.dtype(dtype).itemsize
        return np.empty(shape, dtype) if self.memory is None else np.ndarray(shape, dtype, self.memory, start)


@dataclass(frozen=True)
class Arrays:
    """All data exchanged between the environments and their caller, one row per environment."""

    observations: Nested
    final_observations: Nested
    actions: Nested
    rewards: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    episode_returns: np.ndarray
    episode_lengths: np.ndarray
    action_masks: np.ndarray  # (num_envs, number of actions)
    final_masks: np.ndarray  # masks of the last states of truncated episodes; zeros where not reported
    has_mask: np.ndarray
    costs: np.ndarray  # of the last step, from its info
    episode_costs: np.ndarray
    has_cost: np.ndarray  # whether an info ever contained a cost
    current: np.ndarray  # in the first row of a group: the environment now stepping, else -1

    @classmethod
    def allocate(cls, description: Description, num_envs: int, new: Callable[..., np.ndarray] = np.zeros) -> "Arrays":
        """Allocate all arrays with `new(shape, dtype=...)`, always in the same order."""
        action_space = description.action_space
        num_actions = 0 if isinstance(action_space, spaces.MultiBinary) else count_options(action_space)
        return cls(
            observations=create_empty_array(description.observation_space, num_envs, new),
            final_observations=create_empty_array(description.observation_space, num_envs, new),
            actions=create_empty_array(action_space, num_envs, new),
            rewards=new((num_envs,), dtype=np.float64),
            terminated=new((num_envs,), dtype=np.bool_),
            truncated=new((num_envs,), dtype=np.bool_),
            episode_returns=new((num_envs,), dtype=np.float64),
            episode_lengths=new((num_envs,), dtype=np.int64),
            action_masks=new((num_envs, num_actions), dtype=np.int8),
            final_masks=new((num_envs, num_actions), dtype=np.int8),
            has_mask=new((num_envs,), dtype=np.bool_),
            costs=new((num_envs,), dtype=np.float64),
            episode_costs=new((num_envs,), dtype=np.float64),
            has_cost=new((num_envs,), dtype=np.bool_),
            current=new((num_envs,), dtype=np.int64),
        )

    def rows(self, copies: range) -> "Arrays":
        """Return views of the rows of a contiguous group of environments."""
        parts = {field.name: getattr(self, field.name) for field in fields(self)}
        return Arrays(
            **{name: map_arrays(lambda array: array[copies.start : copies.stop], part) for name, part in parts.items()}
        )


class Copies:
    """Stepper of a group of environments into arrays: autoreset, final observations and episode statistics."""

    def __init__(
        self,
        environments: Sequence[gymnasium.Env],
        arrays: Arrays,  # the rows of these environments only
        first: int,  # index of the first of these environments in the whole vector
        autoreset_mode: AutoresetMode,
        keep_infos: bool,
        warn: Callable[[str], None] | None = None,  # receives the first environment's harmless problems
    ) -> None:
        self.environments = environments
        self.acting: list[Any] = list(environments)  # objects that are stepped: at first, contract checkers
        for index, environment in enumerate(environments):
            self.acting[index] = FirstSteps(environment, self.acting, index, None if first + index else warn)
        self.arrays = arrays
        self.first = first
        self.same_step = autoreset_mode == AutoresetMode.SAME_STEP
        self.next_step = autoreset_mode == AutoresetMode.NEXT_STEP
        self.keep_infos = keep_infos
        self.finished = [True] * len(environments)
        self.returns = [0.0] * len(environments)
        self.lengths = [0] * len(environments)
        self.cost_totals = [0.0] * len(environments)
        self.records: Records = []
        # Masks may also come from a method, as in sb3-contrib, which is called if the info has none.
        self.ask_masks = [
            environment.get_wrapper_attr("action_masks") if environment.has_wrapper_attr("action_masks") else None
            for environment in environments
        ]
        self.recording = keep_infos or any(ask is not None for ask in self.ask_masks)  # for every info
        self.counted = all(isinstance(one.action_space, spaces.Discrete) for one in environments)
        arrays.action_masks[:], arrays.final_masks[:] = 1, 0
        arrays.current[0] = -1

    def reset(self, seeds: dict[int, int | None], options: dict[str, Any] | None) -> Records:
        """Start new episodes in the environments that have a seed (None: their own random stream continues)."""
        self.records = []
        for index, seed in seeds.items():
            self.arrays.current[0] = self.first + index
            self.arrays.terminated[index] = self.arrays.truncated[index] = False
            try:
                info = self._begin(index, seed, options)
            except Exception as error:
                self._blame(error)
                raise
            self._record(index, info)
        self.arrays.current[0] = -1
        return self.records

    def step(self) -> Records:
        """Apply the actions in the arrays, one to each environment."""
        try:
            return self._step()
        except Exception as error:
            self._blame(error)
            raise

    def _step(self) -> Records:
        arrays, first, next_step, returns, lengths = self.arrays, self.first, self.next_step, self.returns, self.lengths
        current, rewards, terminations, truncations = (
            arrays.current,
            arrays.rewards,
            arrays.terminated,
            arrays.truncated,
        )
        rows = arrays.observations if isinstance(arrays.observations, np.ndarray) else None
        shape = () if rows is None else rows.shape[1:]
        flat = len(shape) == 1  # for 1-D rows, whatever broadcasts differs in length: cheaper to check than a shape
        length = shape[0] if flat else 0
        # Spaces handle Python's numbers much faster than NumPy's.
        actions = arrays.actions.tolist() if self.counted else None
        self.records = []
        for index, environment in enumerate(self.acting):
            current[0] = first + index
            if next_step and self.finished[index]:
                rewards[index] = arrays.costs[index] = 0.0
                terminations[index] = truncations[index] = False
                self._record(index, self._begin(index))
                continue
            action = read_row(arrays.actions, index) if actions is None else actions[index]
            result = environment.step(action)
            observation, reward, terminated, truncated, info = result
            rewards[index] = reward
            terminations[index] = terminated
            truncations[index] = truncated
            returns[index] += float(reward)
            lengths[index] += 1
            if "cost" in info:
                arrays.costs[index] = cost = float(info["cost"])
                self.cost_totals[index] += cost
                arrays.has_cost[index] = True
            elif arrays.has_cost[index]:
                arrays.costs[index] = 0.0
            if terminated or truncated:
                self.finished[index] = True
                arrays.episode_returns[index] = returns[index]
                arrays.episode_lengths[index] = lengths[index]
                arrays.episode_costs[index] = self.cost_totals[index]
                if self.same_step:
                    write_row(arrays.final_observations, index, observation)
                    if not terminated:
                        self._keep_final_mask(index, info)
                    if self.keep_infos:
                        self.records.append((self.first + index, {"final_info": dict(info)}))
                    self._record(index, self._begin(index))
                    continue
            if rows is None:
                write_row(arrays.observations, index, observation)
            else:
                if len(observation) != length if flat else getattr(observation, "shape", ()) != shape:
                    require_shape(observation, shape)
                rows[index] = observation
            if self.recording or "action_mask" in info:
                self._record(index, info)
        current[0] = -1
        return self.records

    def call(self, name: str, arguments: tuple[Any, ...], keywords: dict[str, Any]) -> list[Any]:
        """Return each environment's attribute of that name or, for a method, its result."""
        attributes = [environment.get_wrapper_attr(name) for environment in self.environments]
        return [attribute(*arguments, **keywords) if callable(attribute) else attribute for attribute in attributes]

    def set_attr(self, name: str, values: Sequence[Any]) -> None:
        """Set an attribute of each environment to its value."""
        for environment, value in zip(self.environments, values, strict=True):
            environment.set_wrapper_attr(name, value)

    def close(self) -> None:
        """Close every environment."""
        for environment in self.environments:
            environment.close()

    def _begin(self, index: int, seed: int | None = None, options: dict[str, Any] | None = None) -> dict[str, Any]:
        result = self.acting[index].reset(seed=seed, options=options)
        observation, info = result
        write_row(self.arrays.observations, index, observation)
        self.finished[index] = False
        self.returns[index] = 0.0
        self.lengths[index] = 0
        self.cost_totals[index] = 0.0
        return info

    def _blame(self, error: Exception) -> None:
        """Raise a ContractError for an exception caused by a result of the environment now stepping."""
        trace = error.__traceback__
        codes = {Copies._step.__code__: "step", Copies._begin.__code__: "reset"}
        at: Any = None
        while trace is not None:
            at = trace if trace.tb_frame.f_code in codes else at
            trace = trace.tb_next
        if at is None or isinstance(error, ContractError):
            return
        environment = self.environments[int(self.arrays.current[0]) - self.first]
        name, after = codes[at.tb_frame.f_code], at.tb_next
        if after is None or after.tb_frame.f_code.co_filename == at.tb_frame.f_code.co_filename:
            problem = worst(problems_of(name, at.tb_frame.f_locals.get("result"), environment.observation_space))
            message = problem and Recorder([environment]).blame(environment, name, problem)
        else:
            message = explained(environment, name, error)
        if message is not None:
            raise ContractError(message) from None

    def _keep_final_mask(self, index: int, info: dict[str, Any]) -> None:
        """Store the legal actions in the last state of a truncated episode."""
        mask = self._mask(index, info)
        self.arrays.final_masks[index] = 0 if mask is None else mask

    def _mask(self, index: int, info: dict[str, Any]) -> np.ndarray | None:
        """Return the legal actions now, or None if the environment does not report them."""
        mask = info.get("action_mask")
        if mask is None and (ask := self.ask_masks[index]) is not None:
            mask = ask()
        if mask is None or self.arrays.action_masks.shape[1] == 0:
            return None
        # A MultiDiscrete space has one mask per dimension; they are concatenated in the row.
        flat = np.concatenate(mask) if isinstance(mask, tuple) else np.asarray(mask)
        if flat.shape != self.arrays.action_masks.shape[1:]:
            raise ValueError(f"action_mask of shape {flat.shape}, but there are {self.arrays.action_masks.shape[1:]}")
        return flat

    def _record(self, index: int, info: dict[str, Any]) -> None:
        mask = self._mask(index, info)
        if mask is not None:
            self.arrays.action_masks[index] = mask
            self.arrays.has_mask[index] = self.recording = True  # from now on, no mask means that all actions are legal
        elif self.arrays.has_mask[index]:
            self.arrays.action_masks[index] = 1
        if self.keep_infos:
            self.records.append((self.first + index, dict(info)))
