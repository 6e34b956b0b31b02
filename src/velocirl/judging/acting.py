"""A policy's actions at recorded observations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium.spaces import Space
from numpy.typing import NDArray

from velocirl.buffers.data.dataset import Dataset
from velocirl.controllers import bound
from velocirl.engine import registry
from velocirl.judging.numbers import Numbers, action_numbers
from velocirl.training.evaluation import Model
from velocirl.trajectories.policies import Policy, model_from
from velocirl.vector.host.copies import map_arrays

BLOCK = 65536  # observations of one call of the policy


def policy_for(policy: Policy, data: Dataset) -> Model:
    """Return the policy, ready to act on observations of the data; raise if its spaces differ."""
    model = model_from(policy)
    environment = data.info.environment
    if environment in registry.list_envs():
        model = bound(model, environment)
    source = getattr(model, "source", None)
    for what in ("observation", "action"):
        theirs, ours = getattr(data.info, f"{what}_space"), getattr(source, f"{what}_space", None)
        if ours is not None and ours != theirs:
            raise ValueError(f"the {what}s in the data are {theirs}, and those of the policy {ours}")
    return model


def actions_at_recorded(model: Model, data: Dataset, *, deterministic: bool = True) -> Numbers:
    """Return the policy's action at each observation, (transitions + episodes, numbers).

    A policy with a state (the integral of a PID, a recurrent network) runs along each recorded episode. Its state
    depends on the recorded observations, not on the effect of its own actions.
    """
    first = data.starts[:-1] + np.arange(data.episodes)  # the first observation of each episode
    ask = _asking(model, data, deterministic)
    actions, state = ask(first)
    if state is None:
        count = len(data) + data.episodes
        blocks = [np.arange(begin, min(begin + BLOCK, count)) for begin in range(0, count, BLOCK)]
        return np.concatenate([ask(rows)[0] for rows in blocks])
    found = np.empty((len(data) + data.episodes, actions.shape[1]), np.float32)
    found[first] = actions
    last, going = data.lengths(), np.zeros(data.episodes, np.bool_)
    for step in range(1, int(last.max()) + 1):
        rows = first + np.minimum(step, last)  # finished episodes stay at their ends, and are not written again
        actions, state = ask(rows, state=state, episode_start=going)
        on = step <= last
        found[rows[on]] = actions[on]
    return found


def _asking(model: Model, data: Dataset, deterministic: bool) -> Callable[..., tuple[Numbers, Any]]:
    observations, space = data.observations, data.info.action_space

    def ask(rows: NDArray[np.int64], **more: Any) -> tuple[Numbers, Any]:
        seen = map_arrays(lambda column: column[rows], observations)
        actions, state = model.predict(seen, deterministic=deterministic, **more)
        return action_numbers(space, as_rows(space, actions, len(rows)), len(rows)), state

    return ask


def as_rows(space: Space[Any], actions: Any, count: int) -> Any:
    """Return actions in the shape and dtype of their space; a function may return a scalar for a row of one."""
    if isinstance(actions, (dict, tuple)):
        return actions
    return np.asarray(actions).reshape(count, *(space.shape or ()))
