"""Recording of datasets from any policy, in as many environments as whole episodes can fill."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.vector import VectorEnv

from velocirl.buffers.data.columns import columns_of
from velocirl.buffers.data.dataset import Dataset
from velocirl.buffers.data.file import require_place
from velocirl.buffers.data.info import DatasetInfo
from velocirl.buffers.data.writer import DatasetWriter, Growing, InMemory
from velocirl.controllers import bound
from velocirl.datasets.collecting import Steps, first_steps
from velocirl.datasets.noise import Noise
from velocirl.datasets.references import described, measure_references
from velocirl.engine.counts import require_count
from velocirl.engine.operating import action_seconds
from velocirl.training.episode_costs import COST, told_cost
from velocirl.training.evaluation import MOST_HOST_COPIES, Model
from velocirl.training.source import Given, Source
from velocirl.trajectories.policies import Policy, model_from, name_of
from velocirl.trajectories.rollout import in_scenario, source_for
from velocirl.version import __version__

MOST_COPIES = 1024
EPISODES = 4  # per environment at least, if the episode length is known: the last ones are partly discarded
USUAL = 1000  # steps of an episode of unknown length
ROUND_BYTES = 2**26  # of steps that are sorted together
OPEN_BYTES = 2**28  # of ongoing episodes; limits the number of environments with images
MOST_OPEN_BYTES = 2**30  # then ongoing episodes, such as endless ones, are truncated; new ones continue from there

Progress = Callable[[int, int], None]


def record_dataset(
    policy: Policy,
    env: Given | None = None,
    *,
    steps: int,
    path: str | Path | None = None,
    seed: int = 0,
    level: str | None = None,
    noise: float = 0.0,
    deterministic: bool = False,
    expert: Policy | None = None,
    references: Mapping[str, float] | None = None,
    scenario: str | None = None,
    params: Mapping[str, Any] | None = None,
    device: str = "cpu",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> Dataset:
    """Run a policy for `steps` steps and record all of them, in a file or, without a `path`, in memory.

    A policy is an agent, a controller, the path of a run or of a model, or a function of one observation. Agents sample
    their actions unless `deterministic`. `noise` is added to actions. Numbers get Gaussian noise, as a fraction of half
    their range; choices are replaced with that probability. Reference returns of known policies (and of the `expert`,
    if passed) are measured and stored for normalized scores, unless `references` has them.

    The last episode ends with the recording and counts as truncated. An existing file is replaced only with
    `overwrite=True`.
    """
    steps = require_count("steps", steps)
    if path is not None:
        require_place(Path(path), overwrite=overwrite)
    model = model_from(policy, env)
    source = in_scenario(_source(model, env), scenario, params)
    if references is None:
        expert = model if level == "expert" else expert
        judged = None if expert is None else model_from(expert, env)
        known = described(measure_references(source, judged, seed, device=device))
    else:
        known = {"references": dict(references)}
    info = replace(info_of(source), level=level, seed=seed, policy=name_of(policy), **known)
    parts = [(model, steps)]
    options = {"noise": noise, "deterministic": deterministic, "device": device}
    options |= {"overwrite": overwrite, "progress": progress}
    return record_parts(parts, source, info, path, seed, **options)


def record_parts(
    parts: Sequence[tuple[Model, int]],
    source: Source,
    info: DatasetInfo,
    path: str | Path | None,
    seed: int,
    *,
    overwrite: bool = False,
    **options: Any,
) -> Dataset:
    """Record one dataset from several models in sequence, each for its number of steps."""
    seeds = np.random.SeedSequence(seed).generate_state(len(parts)).tolist() if len(parts) > 1 else [seed]
    done, total, progress = 0, sum(steps for _, steps in parts), options.pop("progress", None)

    def record_all(into: Growing) -> None:
        nonlocal done
        for (model, steps), own in zip(parts, seeds, strict=True):
            before = done

            def told(now: int, _: int, before: int = before) -> None:
                if progress is not None:
                    progress(before + now, total)

            _record(model, source, info, into, steps, own, progress=told, **options)
            done += steps

    if path is None:
        growing = InMemory(info)
        record_all(growing)
        return growing.finish()
    with DatasetWriter(path, info, overwrite=overwrite) as writer:
        record_all(writer)
    return Dataset.load(path)


def info_of(source: Source) -> DatasetInfo:
    """Return the dataset information known from an environment."""
    native = source.native
    if native is None:
        spaces = source.observation_space, source.action_space
        return DatasetInfo(*spaces, environment=source.id, constraints=_told(source), version=__version__)
    return DatasetInfo(
        source.observation_space,
        source.action_space,
        environment=native.id,
        params=source.params,
        signals={} if native.stack > 1 else native.signals,
        actuators=native.actuators,
        constraints=tuple(one.name for one in native.constraints),
        scenario=source.scenario,
        time_step=action_seconds(native, source.params),
        version=__version__,
    )


def copies_for(steps: int, limit: int | None, most: int) -> int:
    """Return the number of environments for `steps` steps: each gets several episodes, only whole ones if possible."""
    most = max(min(most, steps // (USUAL if limit is None else EPISODES * limit)), 1)
    tried = range(most, most // 4, -1)
    for unit in (limit or 1, 1):  # whole episodes of maximum length, else equally many steps each
        if whole := [copies for copies in tried if steps % (copies * unit) == 0]:
            return whole[0]
    return most


def _told(source: Source) -> tuple[str, ...]:
    """Return the costs that an environment reports in a step's info; finding out takes one step."""
    with closing(source.make_evaluation(1, 0)) as envs:
        envs.reset()
        envs.action_space.seed(0)
        *_, infos = envs.step(envs.action_space.sample())
    return (COST,) if COST in infos or COST in infos.get("final_info", {}) else ()


def _source(model: Model, env: Given | None) -> Source:
    if isinstance(env, VectorEnv):
        raise ValueError("give what copies can be made of, such as an id: a data set is recorded in copies of its own")
    return source_for(model, env)


def _record(
    model: Model,
    source: Source,
    info: DatasetInfo,
    into: Growing,
    steps: int,
    seed: int,
    *,
    noise: float = 0.0,
    deterministic: bool = False,
    device: str = "cpu",
    progress: Progress,
) -> None:
    native = source.native
    limit = None if native is None else native.max_steps
    wanted, disturb = columns_of(info), Noise(info.action_space, noise, seed)
    row_bytes = sum(one.dtype.itemsize * prod(one.shape) for one in wanted.values())
    most = min(MOST_HOST_COPIES if native is None else MOST_COPIES, OPEN_BYTES // (row_bytes * (limit or USUAL)))
    copies = copies_for(steps, limit, most)
    each = -(-steps // copies)
    room = max(min(ROUND_BYTES // (row_bytes * copies), each), 1)
    collected, left = Steps(info, wanted, copies, room), steps
    with closing(source.make_evaluation(copies, seed, device)) as envs:
        acting = _Acting(bound(model, envs), envs, disturb, deterministic, bool(info.constraints))
        # Environments finish their current episode after their share of steps: only the very last episode is truncated.
        patience, going, step = (limit or USUAL) if copies > 1 else 0, np.ones(copies, np.bool_), 0
        while going.any():
            ended = acting.step(collected, going)
            step += 1
            over = step >= each
            going &= ~(over & ended)
            last = over and (step >= each + patience or not going.any())
            if last or (collected.full and collected.open_bytes >= MOST_OPEN_BYTES):
                collected.cut(acting.observations)
            if last or collected.full:
                columns = first_steps(collected.take(), left)
                into.add(columns)
                left -= len(columns["rewards"])
            progress(min(step * copies, steps), steps)
            if last:
                break


class _Acting:
    """Model that acts in environments, step by step."""

    def __init__(self, model: Model, envs: VectorEnv, disturb: Noise, deterministic: bool, costs: bool) -> None:
        self._model, self._envs, self._disturb, self._deterministic = model, envs, disturb, deterministic
        self._costs = costs
        self.observations, self._infos = envs.reset()
        self._starts, self._state = np.ones(envs.num_envs, np.bool_), None

    def step(self, collected: Steps, kept: Any) -> Any:
        # Optional arguments only if needed: models of other libraries may not accept them.
        more = {} if self._state is None else {"state": self._state, "episode_start": self._starts}
        if "action_mask" in self._infos:
            more["action_masks"] = self._infos["action_mask"]
        actions, self._state = self._model.predict(self.observations, deterministic=self._deterministic, **more)
        actions = self._disturb(actions)
        before = self.observations
        self.observations, rewards, terminated, truncated, self._infos = self._envs.step(actions)
        numbers = {"rewards": rewards, "terminations": terminated, "truncations": truncated}
        self._starts = terminated | truncated
        if "costs" in self._infos:
            numbers["costs"] = self._infos["costs"]
        elif self._costs:
            numbers["costs"] = np.nan_to_num(told_cost(self._infos, self._starts))[:, None]
        collected.add(before, actions, numbers, kept)
        if self._starts.any():
            collected.final(self._infos["final_obs"])
        return self._starts
