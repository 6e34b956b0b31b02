"""Evaluation of a model over whole episodes, with equally many episodes per environment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import numpy as np
from gymnasium.vector import AutoresetMode, VectorEnv
from numpy.typing import NDArray

from velocirl.controllers import bound
from velocirl.engine.counts import require_count
from velocirl.engine.random import streams
from velocirl.engine.warning import warn_caller
from velocirl.monitor.words import plural, say_count_of, say_figure
from velocirl.runs.intervals import mean_cost
from velocirl.training.episode_costs import CostMeter, EpisodeCosts
from velocirl.training.source import Given, Source
from velocirl.vector.autoreset import NextStep
from velocirl.vector.checked_env import CheckedVectorEnv
from velocirl.vector.given_vector import GivenVectorEnv, mode_of
from velocirl.vector.host.copies import read_row
from velocirl.vector.host.interface import HostInterface
from velocirl.vector.native import FleetVectorEnv
from velocirl.vector.vec_env import is_vec_env, opened

APART = 100  # episodes that estimate costs during training
FRESH = 2**40  # exceeds the steps of any training: seed offset of episodes that select no model
MOST_COPIES, MOST_HOST_COPIES = 128, 8  # limits of num_envs: compiled environments, environments in Python
MOST_STEPS = 100_000  # per episode, if the environment has no time limit


class Model(Protocol):
    """Interface of Stable-Baselines3's models: anything with `predict`.

    `predict` is called with `deterministic`, and with `action_masks` if the environment has masks. If it returned a
    state that is not None, the next call passes that `state`, and `episode_start`: True for environments in a new
    episode.
    """

    def predict(self, observation: Any, /, *arguments: Any, **more: Any) -> tuple[Any, Any]:
        """Return actions for a batch of observations, and the state of a recurrent model, or None."""
        ...


class Rule:
    """Model that applies a function to one observation at a time."""

    def __init__(self, act: Callable[[Any], Any]) -> None:
        self._act = act

    def predict(self, observation: Any, **_: Any) -> tuple[Any, None]:
        """Compute the action of each row."""
        first: Any = observation
        while not isinstance(first, np.ndarray):
            first = next(iter(first.values())) if isinstance(first, dict) else first[0]
        actions = [self._act(read_row(observation, copy)) for copy in range(len(first))]
        return _together(actions), None


def _together(actions: list[Any]) -> Any:
    """Stack the actions of single environments into a vector environment's action."""
    first = actions[0]
    if isinstance(first, dict):
        return {key: _together([one[key] for one in actions]) for key in first}
    if isinstance(first, tuple):
        return tuple(_together([one[place] for one in actions]) for place in range(len(first)))
    return np.stack([np.asarray(one) for one in actions])


@dataclass(frozen=True)
class Evaluation:
    """Results of an evaluation, by episode."""

    returns: NDArray[np.float64]  # (episodes,), in order of episode number; see `evaluate`
    lengths: NDArray[np.int64]  # (episodes,)
    cut: int = 0  # episodes truncated at `max_steps`
    costs: EpisodeCosts | None = None  # of the same episodes; None if the environment reports no costs

    @property
    def mean_return(self) -> float:
        """Mean episode return."""
        return float(self.returns.mean())

    @property
    def std_return(self) -> float:
        """Standard deviation of the episode returns."""
        return float(self.returns.std())

    def __repr__(self) -> str:
        return f"<Evaluation: {'; '.join(str(self).splitlines())}>"

    def _repr_html_(self) -> str:
        from velocirl.monitor.markup import facts_table  # needed in notebooks only

        lengths, cut = self.lengths, f", {self.cut} of them cut" if self.cut else ""
        facts = {
            "return": f"{self.mean_return:,.2f} ± {self.std_return:,.2f}",
            "range": f"{self.returns.min():,.6g} to {self.returns.max():,.6g}",
            "episodes": f"{len(self.returns):,}{cut}",
            "steps": f"{lengths.mean():,.1f} each, {lengths.min():,} to {lengths.max():,}",
        }
        facts |= dict(line.split(": ", 1) for line in self.safety_lines())
        return facts_table("Evaluation", facts)

    def __str__(self) -> str:
        said = (
            f"{self.mean_return:.2f} +- {self.std_return:.2f} over {plural(len(self.returns), 'episode')}"
            f" of {self.lengths.mean():.1f} steps"
            + (f", {self.cut} of them cut after {self.lengths.max():,}" if self.cut else "")
        )
        return "\n".join([said, *self.safety_lines()])

    def safety_lines(self) -> list[str]:
        """Format costs, violations and emergency stops with their 95% intervals; empty if there are no costs."""
        if self.costs is None:
            return []
        mean, low, high = mean_cost(self.costs.cost)
        ends = f" ({say_figure(low)} to {say_figure(high)})" if np.isfinite(high) else ""
        count, violated = len(self.returns), int(self.costs.violated.sum())
        lines = [
            f"cost: {say_figure(mean)}{ends}, most {say_figure(float(self.costs.cost.max()))}",
            f"violations: {say_count_of(violated, count)}",
        ]
        if self.costs.stopped is not None:
            lines.append(f"emergency stops: {say_count_of(int(self.costs.stopped.sum()), count)}")
        return lines


def evaluate(
    model: Model | Callable[[Any], Any],
    env: Given | None = None,
    episodes: int = 100,
    seed: int | None = None,
    *,
    deterministic: bool = True,
    scenario: str | None = None,
    max_steps: int | None = None,
) -> Evaluation:
    """Evaluate a model over whole episodes.

    Every environment plays the same number of episodes, so that short episodes do not count more than long ones. If the
    number does not divide evenly, the first environments play one more.

    `returns` and `lengths` are ordered by episode number, not by when episodes end. With the same `seed` and number of
    episodes, policies can be compared in pairs: episode k of both starts in the same state if steps draw no random
    numbers. Otherwise this holds up to episode 128 (8 for environments in Python).

    Args:
        model: An agent, any model with `predict`, or a function that maps one observation to one action.
        env: Environment to evaluate in; by default the environment that the model was trained in.
        episodes: Number of episodes.
        seed: Seed of the environments.
        deterministic: Whether the model takes its deterministic action instead of sampling one.
        scenario: Scenario in which a native environment is operated.
        max_steps: Truncate longer episodes here, with a warning. The default is 100,000 steps, or the environment's own
            time limit if it is longer.

    Returns:
        The returns, lengths and costs of the episodes.

    Raises:
        TypeError: If `model` has no `predict` and is not callable.
        ValueError: If no environment is known, if a `VectorEnv` is combined with `scenario`, or if a `VectorEnv` that
            cannot reset single environments has an episode longer than `max_steps`.
    """
    max_steps = None if max_steps is None else require_count("max_steps", max_steps)
    episodes = require_count("episodes", episodes)
    if not hasattr(model, "predict"):
        if not callable(model):
            raise TypeError(f"a {type(model).__name__} cannot act: give a model with predict, or a function")
        model = Rule(model)
    model = cast("Model", model)
    env = opened(env, trains=False)[0] if is_vec_env(env) else env
    if isinstance(env, VectorEnv):
        if scenario is not None:
            raise ValueError(f"a VectorEnv is made already: make it with make_vec(..., scenario={scenario!r})")
        acting = bound(model, env)
        if mode_of(env) == AutoresetMode.DISABLED:
            env = GivenVectorEnv(env)
        elif not isinstance(env, (FleetVectorEnv, HostInterface, NextStep)):
            env = CheckedVectorEnv(env)
        return _play(acting, env, episodes, seed, deterministic, max_steps)
    if env is None:
        source = getattr(model, "source", None)
        if source is None:
            raise ValueError("say in which environment this model is to be evaluated: evaluate(model, env)")
        if scenario is not None:
            source = source.operated(source.own_params, scenario)
    else:
        trained_in = getattr(model, "source", None)
        frames, preprocess = (getattr(trained_in, name, None) for name in ("frames", "preprocess"))
        source = Source(env, None, frames, preprocess, scenario)
    most = MOST_HOST_COPIES if source.native is None else MOST_COPIES
    envs = source.make_evaluation(min(episodes, most), seed)
    try:
        # The environments were created with the seed; their first reset uses it.
        return _play(bound(model, envs), envs, episodes, None, deterministic, max_steps)
    finally:
        envs.close()


def played_apart(agent: Any, episodes: int = APART, *, fresh: bool = False) -> Evaluation:
    """Evaluate an agent during training with sampled actions.

    The actions come from a separate random stream; the agent's own stream is restored. The seed follows from the
    agent's steps; `fresh` episodes use another one.
    """
    seed = agent.steps + (FRESH if fresh else 0)
    stream: NDArray[np.uint64] = agent.own_arrays()["acting.rng"]
    kept = stream.copy()
    stream[...] = streams(seed, len(stream))
    try:
        return evaluate(agent, None, episodes, seed, deterministic=False)
    finally:
        stream[...] = kept


def evaluate_policy(
    model: Model | Callable[[Any], Any],
    env: Given | None = None,
    n_eval_episodes: int = 10,
    deterministic: bool = True,
    render: bool = False,
    callback: None = None,
    reward_threshold: float | None = None,
    return_episode_rewards: bool = False,
    warn: bool = True,  # noqa: ARG001 - of a Monitor, which is not needed here
) -> tuple[Any, Any]:
    """Evaluate a model with the signature of Stable-Baselines3's `evaluate_policy`; see `evaluate`.

    Args:
        model: An agent, any model with `predict`, or a function that maps one observation to one action.
        env: Environment to evaluate in; by default the environment that the model was trained in.
        n_eval_episodes: Number of episodes.
        deterministic: Whether the model takes its deterministic action instead of sampling one.
        render: Not supported; use `velocirl.record_video`.
        callback: Not supported; use `velocirl.rollout`.
        reward_threshold: Mean return that has to be exceeded.
        return_episode_rewards: Return the results of each episode instead of their mean and standard deviation.
        warn: Ignored; it concerns a Monitor wrapper, which is not needed here.

    Returns:
        The mean and the standard deviation of the returns. With `return_episode_rewards`, two lists: the returns and
        the lengths of all episodes.

    Raises:
        AssertionError: If the mean return does not exceed `reward_threshold`.
        ValueError: If `render` or `callback` is given.
    """
    if render or callback is not None:
        what = "render=True" if render else "callback"
        raise ValueError(
            f"evaluate_policy has no {what}: velocirl.record_video(model, path) films, velocirl.rollout(model) gives"
            " every step"
        )
    result = evaluate(model, env, n_eval_episodes, deterministic=deterministic)
    if reward_threshold is not None and result.mean_return <= reward_threshold:
        raise AssertionError(f"mean return below threshold: {result.mean_return:.2f} < {reward_threshold:.2f}")
    if return_episode_rewards:
        return result.returns.tolist(), result.lengths.tolist()
    return result.mean_return, result.std_return


def _play(
    model: Model, envs: VectorEnv, episodes: int, seed: int | None, deterministic: bool, max_steps: int | None
) -> Evaluation:
    most = max_steps or max(MOST_STEPS, getattr(envs, "time_limit", None) or 0)
    wanted = np.full(envs.num_envs, episodes // envs.num_envs)
    wanted[: episodes % envs.num_envs] += 1
    played, copies = np.zeros_like(wanted), np.arange(envs.num_envs)
    returns, lengths = np.zeros(episodes), np.zeros(episodes, np.int64)
    total, length = np.zeros(envs.num_envs), np.zeros(envs.num_envs, np.int64)
    cut = 0
    resets_later = envs.metadata.get("autoreset_mode") == AutoresetMode.NEXT_STEP
    resetting = np.zeros(envs.num_envs, np.bool_)  # environments whose next step only resets them
    starts = np.ones(envs.num_envs, np.bool_)
    state: Any = None
    meter = CostMeter(envs)
    observations, infos = envs.reset(seed=seed)
    while (played < wanted).any():
        # Only the arguments in use: models of other libraries do not accept all of them.
        more = {} if state is None else {"state": state, "episode_start": starts}
        if "action_mask" in infos:
            more["action_masks"] = infos["action_mask"]
        actions, state = model.predict(observations, deterministic=deterministic, **more)
        observations, rewards, terminated, truncated, infos = envs.step(actions)
        total += rewards
        length += ~resetting
        ended = terminated | truncated
        meter.add(infos, ended, ~resetting)
        late = ~ended & (length >= most)
        over = (ended | late) & (played < wanted)
        # Ordered by episode number, not by end: the first episode of each environment, then the second.
        places = (played * envs.num_envs + copies)[over]
        returns[places], lengths[places] = total[over], length[over]
        meter.end(np.flatnonzero(over), terminated, places)
        played[over] += 1
        cut += int((late & over).sum())
        total[ended], length[ended] = 0.0, 0
        meter.clear(ended)
        starts, resetting = (resetting, ended) if resets_later else (ended, resetting)
        if late.any() and (played < wanted).any():
            _require_resettable(envs, most)
            observations, infos = envs.reset(options={"reset_mask": late})
            total[late], length[late] = 0.0, 0
            meter.clear(late)
            starts = starts | late
    if cut:
        warn_caller(
            f"{cut} of {episodes} episodes had not ended after max_steps={most:,} and were cut there: give the"
            " environment a time limit, such as max_episode_steps=1000, or another max_steps"
        )
    return Evaluation(returns, lengths, cut, meter.found())


def _require_resettable(envs: VectorEnv, most: int) -> None:
    """Raise unless single environments can be reset while the others continue their episodes."""
    if not isinstance(envs, (FleetVectorEnv, HostInterface)):
        raise ValueError(
            f"an episode of {type(envs.unwrapped).__name__} has not ended after max_steps={most:,}: give its"
            " environment a time limit, such as max_episode_steps=1000"
        )
