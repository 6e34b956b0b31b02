"""Settings that may affect learning and are worth trying for speed: each a step away from an agent's settings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any

import numpy as np
from gymnasium import Space

from velocirl.bench.tuning.ways import ways_of
from velocirl.networks.observations import raw_space
from velocirl.training.agent import Agent
from velocirl.training.settings.config import as_plain, build_config
from velocirl.training.settings.device_choice import no_cuda

Changes = dict[str, Any]
POWERS = range(-1, 7)  # num_envs is halved, or multiplied by up to 64
FEWEST_ITERATIONS = 10  # of a training: fewer would end before the policy is evaluated often enough
SHORTEST_HORIZON = 8  # unless the agent's own is shorter
MOST_BYTES = 2**28  # of the observations of a rollout
GPU_COPIES = 65_536  # environments of a tabular agent that keep a GPU busy


def shapes_of(agent: Agent, total_steps: int, cores: int) -> list[Changes]:
    """Return the distinct changes of an agent's settings that its configuration accepts."""
    config = agent.config
    if hasattr(config, "horizon"):
        wanted = _on_policy(config, total_steps, _bytes_of(agent.source.observation_space))
    elif hasattr(config, "train_every"):
        wanted = _off_policy(config, total_steps)
    elif hasattr(config, "storage"):
        wanted = _tabular(agent, total_steps, cores)
    else:
        wanted = iter(())
    plain = as_plain(config)
    found: list[Changes] = []
    for changes in chain(wanted, ways_of(agent)):
        real = {name: value for name, value in changes.items() if plain[name] != value}
        if real and real not in found and _is_possible(config, plain, real):
            found.append(real)
    return found


def distance(config: Any, changes: Mapping[str, Any]) -> float:
    """Return the distance of changes from a configuration: their doublings, plus 1 per non-numeric setting."""
    total = 0.0
    for name, value in changes.items():
        before = getattr(config, name)
        numbers = all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in (before, value))
        total += abs(math.log2(value / before)) if numbers else 1.0
    return total


def doublings(most: int) -> list[int]:
    """Return 1, 2, 4, ... up to `most`, and `most` itself."""
    return sorted({2**power for power in range(most.bit_length()) if 2**power <= most} | {most})


def _on_policy(config: Any, total_steps: int, observation_bytes: int) -> Iterator[Changes]:
    """Yield numbers of environments at equal minibatch count, minibatch size or rollout size; other minibatch sizes."""
    most = max(min(total_steps // FEWEST_ITERATIONS, MOST_BYTES // observation_bytes), config.batch)
    whole = config.num_minibatches == 1  # the minibatch is the rollout, at any size
    even = config.batch % config.minibatch_size == 0
    for power in POWERS:
        num_envs, size = _scaled(config.num_envs, power), _scaled(config.minibatch_size, power)
        shorter = _scaled(config.horizon, -power)
        wanted: list[Changes] = [
            {"num_envs": num_envs} if whole else {"num_envs": num_envs, "minibatch_size": size},
            {"num_envs": num_envs},
            {"num_envs": num_envs, "horizon": shorter},
        ]
        if not whole and power <= 3:
            wanted.append({"minibatch_size": size})
        for changes in wanted:
            if None in changes.values():
                continue
            copies, horizon, minibatch = (
                changes.get(name, getattr(config, name)) for name in ("num_envs", "horizon", "minibatch_size")
            )
            batch = copies * horizon
            cut = 1 if whole else batch // minibatch
            if (
                horizon >= min(SHORTEST_HORIZON, config.horizon)
                and batch <= most
                and (whole or not even or batch % minibatch == 0)
                and cut >= min(config.gradient_accumulation, config.num_minibatches)
                and (config.minibatches == "samples" or cut <= copies)
            ):
                yield changes


def _off_policy(config: Any, total_steps: int) -> Iterator[Changes]:
    """Yield numbers of environments, also with longer, rarer rounds at equal updates per step; other batch sizes."""
    for power in POWERS:
        copies = _scaled(config.num_envs, power)
        if copies is None or copies * FEWEST_ITERATIONS > min(total_steps, config.buffer_size):
            continue
        yield {"num_envs": copies}
        if power > 0:
            rounds = {name: getattr(config, name) * 2**power for name in ("train_every", "gradient_steps")}
            yield {"num_envs": copies, **rounds}
    for power in (1, 2, 3):  # as many sampled transitions per step, in fewer and larger updates
        larger = {"batch_size": config.batch_size * 2**power, "train_every": config.train_every * 2**power}
        yield larger
        yield {"num_envs": config.num_envs * 2**power, **larger}
    smaller = _scaled(config.batch_size, -1)
    if smaller is not None:
        yield {"batch_size": smaller}


def _tabular(agent: Agent, total_steps: int, cores: int) -> Iterator[Changes]:
    """Yield numbers of environments on one core, on several cores or on a GPU."""
    config, native = agent.config, agent.source.native is not None
    for power in POWERS:
        copies = _scaled(config.num_envs, power)
        if copies is None or copies * FEWEST_ITERATIONS > total_steps:
            continue
        yield {"num_envs": copies}
        if config.runtime not in ("serial", "threads", "processes"):
            continue
        several = "threads" if native else "processes"  # Python's threads would share one core
        runtime = config.runtime if config.runtime != "serial" else several
        for workers in doublings(cores)[1:]:
            if copies % workers == 0:
                yield {"num_envs": copies, "runtime": runtime, "workers": workers}
    if native and no_cuda() is None and total_steps >= GPU_COPIES * FEWEST_ITERATIONS:
        yield {"num_envs": GPU_COPIES, "runtime": "cuda", "workers": None}


def _scaled(value: int, power: int) -> int | None:
    """Multiply a number by `2**power`; None if the result is not an integer."""
    factor = 2 ** abs(power)
    if power >= 0:
        return value * factor
    return value // factor if value % factor == 0 else None


def _bytes_of(space: Space[Any]) -> int:
    """Return the bytes of one observation as an agent stores it."""
    shape, dtype = raw_space(space)
    return max(math.prod(shape) * np.dtype(dtype).itemsize, 1)


def _is_possible(config: Any, plain: Mapping[str, Any], changes: Mapping[str, Any]) -> bool:
    try:
        build_config(type(config), {**plain, **changes})
    except ValueError:
        return False
    return True


def without(changes: Iterable[Changes], fixed: Iterable[str]) -> list[Changes]:
    """Return the changes that leave the user's fixed settings alone."""
    names = set(fixed)
    return [one for one in changes if names.isdisjoint(one)]
