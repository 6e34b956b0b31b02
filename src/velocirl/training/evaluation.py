"""Evaluating a model: whole episodes, each copy counted alike."""

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

APART = 100  # episodes by which costs are judged in training
FRESH = 2**40  # more than the steps of a training: seeds of episodes that decide nothing
MOST_COPIES, MOST_HOST_COPIES = 128, 8  # of a compiled environment, and of one that runs in Python
MOST_STEPS = 100_000  # of an episode, where the environment has no time limit


class Model(Protocol):
    """Whatever chooses actions as Stable-Baselines3's models do.

    `predict` is called with `deterministic`; with `action_masks` where there are masks; and once it has given a state
    that is not None, with that `state`, and in `episode_start` where a new episode has begun.
    """

    def predict(self, observation: Any, /, *arguments: Any, **more: Any) -> tuple[Any, Any]:
        """Actions for a batch of observations, and the state of a recurrent model, or None."""
        ...


class Rule:
    """A function of one observation as a model."""

    def __init__(self, act: Callable[[Any], Any]) -> None:
        self._act = act

    def predict(self, observation: Any, **_: Any) -> tuple[Any, None]:
        """The action for each row."""
        first: Any = observation
        while not isinstance(first, np.ndarray):
            first = next(iter(first.values())) if isinstance(first, dict) else first[0]
        actions = [self._act(read_row(observation, copy)) for copy in range(len(first))]
        return _together(actions), None


def _together(actions: list[Any]) -> Any:
    """Actions of single copies as a vector environment takes them."""
    first = actions[0]
    if isinstance(first, dict):
        return {key: _together([one[key] for one in actions]) for key in first}
    if isinstance(first, tuple):
        return tuple(_together([one[place] for one in actions]) for place in range(len(first)))
    return np.stack([np.asarray(one) for one in actions])


@dataclass(frozen=True)
class Evaluation:
    """The episodes of an evaluation."""

    returns: NDArray[np.float64]  # (episodes,) in the order of episodes, see `evaluate`
    lengths: NDArray[np.int64]  # (episodes,)
    cut: int = 0  # episodes that had not ended after `max_steps`
    costs: EpisodeCosts | None = None  # of the same episodes; None where nobody tells costs

    @property
    def mean_return(self) -> float:
        """The mean return of an episode."""
        return float(self.returns.mean())

    @property
    def std_return(self) -> float:
        """The standard deviation of the returns."""
        return float(self.returns.std())

    def __repr__(self) -> str:
        return f"<Evaluation: {'; '.join(str(self).splitlines())}>"

    def _repr_html_(self) -> str:
        from velocirl.monitor.markup import facts_table  # needed where a notebook shows it

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
        """Format costs, violations and emergency stops with their 95% intervals; none where nobody tells costs."""
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
    """Let a model act for whole episodes, in `env` or in the environment that it was trained in.

    A function is a model too, that gives the action for one observation. A native environment may be operated in a
    `scenario` of its own.
    Every copy plays the same number of episodes (the first ones one more, where they do not divide), so that short
    episodes do not count more than long ones.

    `returns` and `lengths` are in the order of episodes, not in that of their ends. With the same `seed` and number of
    episodes, policies may be compared in pairs: episode k of both begins alike where steps draw no random numbers, and
    else up to episode 128 (of environments in Python, 8).

    An episode that has not ended after `max_steps` is cut there, with a warning. The default is 100,000 steps, or the
    environment's own time limit where that is longer.
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
        # The first reset is by the seed they were made with.
        return _play(bound(model, envs), envs, episodes, None, deterministic, max_steps)
    finally:
        envs.close()


def played_apart(agent: Any, episodes: int = APART, *, fresh: bool = False) -> Evaluation:
    """Evaluate an agent in training with actions drawn, from a stream of its own: the agent's stays where it is.

    The seed follows from the agent's steps; `fresh` episodes have another one.
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
    """Return the mean and the standard deviation of returns, as Stable-Baselines3's function does: see `evaluate`.

    With `return_episode_rewards`, returns the returns and the lengths of all episodes, as lists.
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
    resetting = np.zeros(envs.num_envs, np.bool_)  # copies whose next step only begins a new episode
    starts = np.ones(envs.num_envs, np.bool_)
    state: Any = None
    meter = CostMeter(envs)
    observations, infos = envs.reset(seed=seed)
    while (played < wanted).any():
        # Only what there is, since the models of other libraries do not know all of these.
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
        # In the order of episodes, not in that in which they end: the first of all copies, then the second.
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
    """Refuse to go on in a vector environment that may not begin one episode while others go on."""
    if not isinstance(envs, (FleetVectorEnv, HostInterface)):
        raise ValueError(
            f"an episode of {type(envs.unwrapped).__name__} has not ended after max_steps={most:,}: give its"
            " environment a time limit, such as max_episode_steps=1000"
        )
