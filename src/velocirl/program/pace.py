"""The numbers of an iteration of an algorithm that learns from a memory: when what is done, and how much."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Pace(NamedTuple):
    """Steps are those of the environment, counted over all copies."""

    rounds: int  # steps that each copy takes in this iteration
    learning_rate: float
    max_grad_norm: float
    max_grad_value: float
    learning_starts: int
    train_every: int
    gradient_steps: int
    start: int  # the step at which this call of `learn` began
    total: int  # and how many it takes
    initial: float  # exploration at the beginning,
    final: float  # after this share of it,
    fraction: float
    last: float  # and at its end
    beta: float  # of the weights of prioritised replay, at the beginning
    beta_final: float  # and at the end
    gamma: float


ANY_PACE = Pace(1, 0.0, 0.0, 0.0, 0, 1, 1, 0, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)  # for its types

GROUP = "learner.group"  # in a state
# The same as a record, so that compiled loops and graphs read what the host wrote last.
PACE = np.dtype(
    [(name, np.int64 if isinstance(one, int) else np.float64) for name, one in ANY_PACE._asdict().items()], align=True
)


def free(config: Any) -> bool:
    """Whether there are collectors that run free."""
    return config.collectors is not None and config.collect_mode == "free"


def group_of(config: Any) -> int:
    """How many records of a memory belong to one step: the next of the same copy lies so many places further.

    They are those of all copies; of collectors that run free, each brings those of its own.
    """
    return config.num_envs // config.collectors if free(config) else config.num_envs


def saved_group(config: Any) -> dict[str, NDArray[np.int64]]:
    """That number as a state has it, where it is not the number of copies."""
    group = group_of(config)
    return {} if group == config.num_envs else {GROUP: np.array([group])}


def group_in(config: Any, state: Mapping[str, NDArray[Any]]) -> int:
    """The same number of a state, which may be of other settings."""
    return int(np.reshape(state[GROUP], -1)[0]) if GROUP in state and np.size(state[GROUP]) else config.num_envs


def check_group(config: Any, state: Mapping[str, NDArray[Any]], *, frames: bool = False) -> None:
    """Refuse a memory whose steps lie otherwise than they will from now on, where it matters what follows a step.

    It does for returns over several steps, and for observations that are put together from `frames` of several.
    """
    saved = group_in(config, state)
    if saved == group_of(config) or (config.n_step == 1 and not frames):
        return
    by = f"{config.num_envs // saved} free collectors" if saved != config.num_envs else "steps of all copies"
    cannot, without = ("stacks of pictures", "") if frames else (f"n_step={config.n_step}", ", or n_step=1")
    raise ValueError(
        f"the memory of the state was filled by {by}, and {cannot} cannot follow its steps with these"
        f" settings: give the collectors and the collect_mode that it was saved with{without}"
    )


def progress_at(step, pace):
    """The share of this call of `learn` that is done."""
    return min(max((step - pace.start) / pace.total, 0.0), 1.0)


def exploration_at(step, pace):
    """How much is explored: a straight line from `initial` to `final`, and a second one from there to `last`."""
    progress = progress_at(step, pace)
    if progress < pace.fraction:
        return pace.initial + (pace.final - pace.initial) * (progress / pace.fraction)
    rest = max(1.0 - pace.fraction, 1e-9)
    return pace.final + (pace.last - pace.final) * ((progress - pace.fraction) / rest)


def beta_at(step, pace):
    """How much of the priorities the weights take back."""
    return pace.beta + (pace.beta_final - pace.beta) * progress_at(step, pace)


def updates_due(step, copies, pace):
    """Updates that are due after a step of all copies, at which the run has taken `step` steps."""
    if step <= pace.learning_starts:
        return 0
    return (step // pace.train_every - (step - copies) // pace.train_every) * pace.gradient_steps


def stretches(first: int, copies: int, pace: Pace, most: int) -> Iterator[tuple[int, int]]:
    """An iteration from a step of the run on, cut where updates are due: rounds, at most so many, and updates then."""
    rounds = 0
    for t in range(pace.rounds):
        rounds += 1
        due = updates_due(first + (t + 1) * copies, copies, pace)
        if due or rounds == most or t + 1 == pace.rounds:
            yield rounds, due
            rounds = 0
