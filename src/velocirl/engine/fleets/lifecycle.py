"""Step of one environment, for all targets: time limit, autoreset, final observation, episode statistics.

The functions are scalar and take the whole fleet and the index of an environment. Every target composes its loop from
them, so no environment and no target has a life cycle of its own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from gymnasium.spaces import Discrete
from numpy.typing import NDArray

from velocirl.engine.action_parts import has_parts
from velocirl.engine.compiler.registers import load, row, shaped, store
from velocirl.engine.constraints import clearing_costs, closing, counting, judged_step
from velocirl.engine.drawing import drawing_reset
from velocirl.engine.fleets.sampling import sampler
from velocirl.engine.framing import fill, frame_size, push, whole_frame

if TYPE_CHECKING:
    from velocirl.engine.environment import Environment


class Copies(NamedTuple):
    """Arrays of a fleet, one row per environment; `fleet.saved` names those that determine its future."""

    state: NDArray[Any]  # (num_envs,) record
    params: NDArray[Any]  # (num_envs,) record
    rng: NDArray[Any]  # (num_envs, 2) uint64
    elapsed: NDArray[Any]  # (num_envs,) steps of the episode so far
    total: NDArray[Any]  # (num_envs,) reward of the episode so far
    action: NDArray[Any]  # (num_envs, ...) next action; for composite actions (num_envs,) record
    observation: NDArray[Any]  # (num_envs, ...) current observation, after autoreset
    final_observation: NDArray[Any]  # (num_envs, ...) the episode's last, if one ended in this step
    reward: NDArray[Any]  # (num_envs,)
    terminated: NDArray[Any]  # (num_envs,)
    truncated: NDArray[Any]  # (num_envs,)
    episode_return: NDArray[Any]  # (num_envs,) of the last completed episode
    episode_length: NDArray[Any]  # (num_envs,) of the last completed episode
    final_state: NDArray[Any]  # (num_envs,) record at the end of that episode
    mask: NDArray[Any]  # (num_envs, options) legal actions; one unused column without an action mask
    final_mask: NDArray[Any]  # legal actions in the last completed episode's final state; 0 if it terminated
    violated: NDArray[Any]  # (num_envs,) constraints that the last step violated, as bits; of length 1 without any
    costs: NDArray[Any]  # (num_envs, constraints) of the last step; (1, 1) without constraints, as the next two
    cost_total: NDArray[Any]  # (num_envs, constraints) of the episode so far
    episode_costs: NDArray[Any]  # (num_envs, constraints) of the last completed episode
    limit: int  # steps before truncation; an argument, so that another limit compiles nothing


ARRAYS = tuple(name for name in Copies._fields if name != "limit")


def each_array(function: Callable[[Any], Any], copies: Any) -> Any:
    """Apply a function to each of a fleet's arrays."""
    return copies._make(part if isinstance(part, int) else function(part) for part in copies)


def bytes_of(copies: Copies) -> int:
    """Return the memory of a fleet's arrays in bytes."""
    return sum(getattr(copies, name).nbytes for name in ARRAYS)


class Lifecycle(NamedTuple):
    """Scalar functions of an environment's life cycle, each for a single environment."""

    begin: Callable[..., Any]
    move: Callable[..., Any]
    conclude: Callable[..., Any]
    show: Callable[..., Any]
    choose: Callable[..., Any]  # samples a random legal action


def lifecycle(environment: Environment) -> Lifecycle:
    """Compose an environment's functions into its life cycle, which can be compiled if they can."""
    if environment.stack > 1:
        return _with_stack(environment, blind_life(environment))
    return _composed(environment, whole_frame(environment))


def blind_life(environment: Environment) -> Lifecycle:
    """Return the life cycle without observations, which other code writes."""
    return _composed(environment, unseen)


def _composed(environment: Environment, observe: Callable[..., Any]) -> Lifecycle:
    reset, step = drawing_reset(environment), judged_step(environment)
    shape = environment.observation.shape or (1,)
    legal, legal_at_the_end = environment.legal or no_mask, ending_mask(environment)
    count, close, clear = counting(environment), closing(environment), clearing_costs(environment)
    choose = sampler(environment)
    action_of = element if isinstance(environment.action, Discrete) or has_parts(environment.action) else row

    def begin(copies, i):
        """Start a new episode."""
        copies.elapsed[i] = 0
        copies.total[i] = 0.0
        clear(copies, i)
        reset(copies.state[i], copies.params[i], row(copies.rng, i))

    def move(copies, i):
        """Take one step and record its result."""
        state = load(copies.state[i])
        params = load(copies.params[i])
        reward, terminated = step(copies, i, state, params, action_of(copies.action, i), row(copies.rng, i))
        store(copies.state[i], state)
        elapsed = np.int32(copies.elapsed[i] + 1)
        copies.elapsed[i] = elapsed
        copies.reward[i] = reward
        copies.total[i] += copies.reward[i]
        copies.terminated[i] = terminated
        # In this form it is one vector instruction: `>=` takes two, and only half as many 64-bit numbers fit.
        copies.truncated[i] = elapsed > np.int32(copies.limit - 1)

    def conclude(copies, i):
        """If the episode ended, store its last observation and statistics, then begin the next."""
        count(copies, i)
        if copies.terminated[i] or copies.truncated[i]:
            observe(copies.state[i], copies.params[i], shaped(row(copies.final_observation, i), shape))
            legal_at_the_end(copies, i)
            copies.episode_return[i] = copies.total[i]
            copies.episode_length[i] = copies.elapsed[i]
            copies.final_state[i] = copies.state[i]
            close(copies, i)
            begin(copies, i)

    def show(copies, i):
        """Write the observation and the action mask."""
        observe(copies.state[i], copies.params[i], shaped(row(copies.observation, i), shape))
        legal(copies.state[i], copies.params[i], row(copies.mask, i))

    return Lifecycle(begin, move, conclude, show, choose)


def _with_stack(environment: Environment, blind: Lifecycle) -> Lifecycle:
    """Extend a life cycle by frame stacks, see `framing`."""
    observe, newest, size = whole_frame(environment), environment.stack - 1, frame_size(environment)
    older = newest * size
    end, look = blind.conclude, blind.show

    def conclude(copies, i):
        """If the episode ended, complete its last stack first."""
        if copies.terminated[i] or copies.truncated[i]:
            final = row(copies.final_observation, i)
            push(row(copies.observation, i), final, older, size)
            observe(copies.state[i], copies.params[i], final[newest])
        end(copies, i)

    def show(copies, i):
        """Write the newest frame; an episode's first frame fills the whole stack."""
        seen = row(copies.observation, i)
        goes_on = copies.elapsed[i] > 0
        if goes_on:
            push(seen, seen, older, size)
        observe(copies.state[i], copies.params[i], seen[newest])
        if not goes_on:
            fill(seen, older, size)
        look(copies, i)

    return Lifecycle(blind.begin, blind.move, conclude, show, blind.choose)


def unseen(state, params, observation):
    """Do nothing: the `observe` of environments whose observations other code writes."""


def element(array, i):
    """Return element i of an array with one number per environment."""
    return array[i]


def ending_mask(environment: Environment) -> Callable[..., Any]:
    """Make `legal_at_the_end(copies, i)`, which stores the final state's legal actions before the next episode begins.

    A terminal state has none: the environment's function is not called, as it need not support such states.
    """
    if environment.legal is None:
        return no_mask_at_the_end
    legal: Callable[..., Any] = environment.legal

    def legal_at_the_end(copies, i):
        mask = row(copies.final_mask, i)
        if copies.terminated[i]:
            for k in range(len(mask)):
                mask[k] = 0
        else:
            legal(copies.state[i], copies.params[i], mask)

    return legal_at_the_end


def no_mask_at_the_end(copies, i):
    """Store no mask: in this environment every action is legal."""


def no_mask(state, params, mask):
    """Write no mask: in this environment every action is legal."""
