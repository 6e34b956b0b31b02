"""One step of one copy: time limit, automatic reset, final observation, episode statistics; written once for all.

The functions here are scalar too and take the whole fleet with the index of a copy; every target composes its loop
from them, so no environment and no target has a lifecycle of its own.
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
    """The arrays of a fleet, a row for each copy; what decides its future is what `fleet.saved` names."""

    state: NDArray[Any]  # (copies,) record
    params: NDArray[Any]  # (copies,) record
    rng: NDArray[Any]  # (copies, 2) uint64
    elapsed: NDArray[Any]  # (copies,) steps of the episode so far
    total: NDArray[Any]  # (copies,) reward of the episode so far
    action: NDArray[Any]  # (copies, ...) what to do next; of several parts (copies,) record
    observation: NDArray[Any]  # (copies, ...) what is seen now, after an automatic reset
    final_observation: NDArray[Any]  # (copies, ...) the last of the episode, where one ended in this step
    reward: NDArray[Any]  # (copies,)
    terminated: NDArray[Any]  # (copies,)
    truncated: NDArray[Any]  # (copies,)
    episode_return: NDArray[Any]  # (copies,) of the episode that ended last
    episode_length: NDArray[Any]  # (copies,) of the episode that ended last
    final_state: NDArray[Any]  # (copies,) record at the end of that episode
    mask: NDArray[Any]  # (copies, choices) legal actions; one unused column unless the environment has a mask
    final_mask: NDArray[Any]  # the same in the last state of the episode that ended last; 0 where it terminated
    violated: NDArray[Any]  # (copies,) constraints that the last step violated, as bits; without any, of length 1
    costs: NDArray[Any]  # (copies, constraints) of the last step; without constraints (1, 1), as the next two
    cost_total: NDArray[Any]  # (copies, constraints) of the episode so far
    episode_costs: NDArray[Any]  # (copies, constraints) of the episode that ended last
    limit: int  # steps after which an episode is cut off; an argument, so that another limit compiles nothing


ARRAYS = tuple(name for name in Copies._fields if name != "limit")


def each_array(function: Callable[[Any], Any], copies: Any) -> Any:
    """The same copies, with a function applied to each of their arrays."""
    return copies._make(part if isinstance(part, int) else function(part) for part in copies)


def bytes_of(copies: Copies) -> int:
    """The memory that the arrays of copies take."""
    return sum(getattr(copies, name).nbytes for name in ARRAYS)


class Lifecycle(NamedTuple):
    """The scalar functions of an environment's life, each for one copy."""

    begin: Callable[..., Any]
    move: Callable[..., Any]
    conclude: Callable[..., Any]
    show: Callable[..., Any]
    choose: Callable[..., Any]  # draws a random legal action


def lifecycle(environment: Environment) -> Lifecycle:
    """Compose an environment's functions into its life; the result is as compilable as they are."""
    if environment.stack > 1:
        return _with_stack(environment, blind_life(environment))
    return _composed(environment, whole_frame(environment))


def blind_life(environment: Environment) -> Lifecycle:
    """The life of copies that somebody else lets see."""
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
        """Take one step and record what came of it."""
        state = load(copies.state[i])
        params = load(copies.params[i])
        reward, terminated = step(copies, i, state, params, action_of(copies.action, i), row(copies.rng, i))
        store(copies.state[i], state)
        elapsed = np.int32(copies.elapsed[i] + 1)
        copies.elapsed[i] = elapsed
        copies.reward[i] = reward
        copies.total[i] += copies.reward[i]
        copies.terminated[i] = terminated
        # So written it is one vector instruction: `>=` takes two, and of 64 bits only half as many fit.
        copies.truncated[i] = elapsed > np.int32(copies.limit - 1)

    def conclude(copies, i):
        """Where the episode ended: keep its last observation and statistics, then begin the next."""
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
        """Write what is seen and what may be done."""
        observe(copies.state[i], copies.params[i], shaped(row(copies.observation, i), shape))
        legal(copies.state[i], copies.params[i], row(copies.mask, i))

    return Lifecycle(begin, move, conclude, show, choose)


def _with_stack(environment: Environment, blind: Lifecycle) -> Lifecycle:
    """The same with the newest frames of each copy, see `framing`."""
    observe, newest, size = whole_frame(environment), environment.stack - 1, frame_size(environment)
    older = newest * size
    end, look = blind.conclude, blind.show

    def conclude(copies, i):
        """Where the episode ended: complete its last stack first."""
        if copies.terminated[i] or copies.truncated[i]:
            final = row(copies.final_observation, i)
            push(row(copies.observation, i), final, older, size)
            observe(copies.state[i], copies.params[i], final[newest])
        end(copies, i)

    def show(copies, i):
        """Write the newest frame, and let the first one of an episode be all that was ever seen."""
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
    """The `observe` of copies that somebody else lets see."""


def element(array, i):
    """Element i of an array with one number for each copy."""
    return array[i]


def ending_mask(environment: Environment) -> Callable[..., Any]:
    """`legal_at_the_end(copies, i)`: keep what is legal in the last state of an episode, before the next one begins.

    In a terminal state nothing is: the environment is not asked, whose function need not know such states.
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
    """Keep no mask: in this environment every action is legal."""


def no_mask(state, params, mask):
    """The `legal` of an environment in which every action is legal."""
