"""Schedule of an off-policy iteration: when environments step, when updates run, and their parameters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Pace(NamedTuple):
    """Schedule of an off-policy iteration. Steps are environment steps, summed over all environments."""

    rounds: int  # steps of each environment in this iteration
    learning_rate: float
    max_grad_norm: float
    max_grad_value: float
    learning_starts: int
    train_every: int
    gradient_steps: int
    start: int  # the step at which this call of `learn` began
    total: int  # and the number of steps of that call
    initial: float  # exploration rate at the beginning,
    final: float  # after the fraction `fraction` of the call,
    fraction: float
    last: float  # and at its end
    beta: float  # exponent of prioritized replay's weights, at the beginning
    beta_final: float  # and at the end
    gamma: float


ANY_PACE = Pace(1, 0.0, 0.0, 0.0, 0, 1, 1, 0, 1, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0)  # defines the field types of PACE

GROUP = "learner.group"  # key in a saved state
# `Pace` as a record, so that compiled loops and graphs read what the host wrote last.
PACE = np.dtype(
    [(name, np.int64 if isinstance(one, int) else np.float64) for name, one in ANY_PACE._asdict().items()], align=True
)


def free(config: Any) -> bool:
    """Return whether collectors run in "free" mode."""
    return config.collectors is not None and config.collect_mode == "free"


def group_of(config: Any) -> int:
    """Return how many replay records belong to one step: an environment's next record is that many indices further.

    A step has a record of every environment; each free collector adds the records of its own environments only.
    """
    return config.num_envs // config.collectors if free(config) else config.num_envs


def saved_group(config: Any) -> dict[str, NDArray[np.int64]]:
    """Return the group size as part of a state, if it is not the number of environments."""
    group = group_of(config)
    return {} if group == config.num_envs else {GROUP: np.array([group])}


def group_in(config: Any, state: Mapping[str, NDArray[Any]]) -> int:
    """Return the group size of a state, which may have been saved under other settings."""
    return int(np.reshape(state[GROUP], -1)[0]) if GROUP in state and np.size(state[GROUP]) else config.num_envs


def check_group(config: Any, state: Mapping[str, NDArray[Any]], *, frames: bool = False) -> None:
    """Refuse a replay buffer saved with another step layout if the order of steps matters.

    It matters for n-step returns, and for observations stacked from the `frames` of several steps.
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
    """Return the fraction of this call of `learn` that is done."""
    return min(max((step - pace.start) / pace.total, 0.0), 1.0)


def exploration_at(step, pace):
    """Return the exploration rate: linear from `initial` to `final`, then linear from there to `last`."""
    progress = progress_at(step, pace)
    if progress < pace.fraction:
        return pace.initial + (pace.final - pace.initial) * (progress / pace.fraction)
    rest = max(1.0 - pace.fraction, 1e-9)
    return pace.final + (pace.last - pace.final) * ((progress - pace.fraction) / rest)


def beta_at(step, pace):
    """Return the exponent β of prioritized replay's importance weights."""
    return pace.beta + (pace.beta_final - pace.beta) * progress_at(step, pace)


def updates_due(step, copies, pace):
    """Return the number of updates due after all environments stepped and the run has taken `step` steps."""
    if step <= pace.learning_starts:
        return 0
    return (step // pace.train_every - (step - copies) // pace.train_every) * pace.gradient_steps


def stretches(first: int, copies: int, pace: Pace, most: int) -> Iterator[tuple[int, int]]:
    """Split an iteration that begins at step `first` of the run where updates are due.

    Yields pairs: a number of rounds, at most `most`, and the number of updates that follow them.
    """
    rounds = 0
    for t in range(pace.rounds):
        rounds += 1
        due = updates_due(first + (t + 1) * copies, copies, pace)
        if due or rounds == most or t + 1 == pace.rounds:
            yield rounds, due
            rounds = 0
