"""Replay buffers of a million transitions with four-number observations: adding, sampling, priorities."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from velocirl.bench.comparison import Comparison, ratio, value
from velocirl.bench.machine.cost import Cost
from velocirl.bench.measuring import Timed
from velocirl.bench.peers.process import Peer
from velocirl.bench.registry import benchmark
from velocirl.bench.units import SECONDS, STEPS
from velocirl.buffers.prioritised import PrioritisedReplayBuffer
from velocirl.buffers.rank_based import RankReplayBuffer
from velocirl.buffers.records import Act, transition_type
from velocirl.buffers.replay import ReplayBuffer

CAPACITY, BATCH, ADDED = 1_000_000, 256, 4096
INPUTS, BETA = 4, 0.4
TYPE = transition_type(INPUTS, Act(1, "int32", 1))
COPIED = 2 * TYPE.itemsize  # bytes of one read and one write of a transition, without the lookup
MOST_SAMPLE_SECONDS, MOST_PRIORITISED_SECONDS, FEWEST_ADDED = 10e-6, 60e-6, 50e6


def random_transitions(count: int) -> NDArray[Any]:
    """Return random transitions (count,)."""
    generator = np.random.default_rng(0)
    transitions = np.zeros(count, TYPE)
    for name in ("observation", "reward", "next_observation"):
        transitions[name] = generator.random(transitions[name].shape, np.float32)
    return transitions


def errors() -> NDArray[np.float32]:
    """Return plausible TD errors for a batch."""
    return np.random.default_rng(1).exponential(size=BATCH).astype(np.float32)


def velocirl_sampling(capacity: int = CAPACITY) -> Timed:
    """Time uniform samples from a full buffer."""
    buffer = ReplayBuffer(capacity, TYPE, seed=0)
    buffer.add(random_transitions(capacity))
    return Timed(lambda: buffer.sample(BATCH), cost=Cost(bytes=BATCH * COPIED))


def velocirl_adding(capacity: int = CAPACITY) -> Timed:
    """Time adding batches to a buffer."""
    buffer, transitions = ReplayBuffer(capacity, TYPE, seed=0), random_transitions(ADDED)
    buffer.add(random_transitions(capacity))  # touches its pages
    return Timed(lambda: buffer.add(transitions), amount=ADDED, cost=Cost(bytes=COPIED))


def velocirl_prioritised(
    kind: type[PrioritisedReplayBuffer] | type[RankReplayBuffer], capacity: int = CAPACITY
) -> Timed:
    """Time a prioritized sample from a full buffer and the update of its priorities."""
    buffer, found = kind(capacity, TYPE, seed=0), errors()
    buffer.add(random_transitions(capacity))
    everywhere = np.random.default_rng(2).exponential(size=capacity).astype(np.float32)
    buffer.update(np.arange(capacity), everywhere)

    def call() -> None:
        _, places, _ = buffer.sample(BATCH, BETA)
        buffer.update(places, found)

    return Timed(call, cost=Cost(bytes=BATCH * COPIED))


def stable_baselines3_buffer(capacity: int) -> tuple[Any, Callable[[], object]]:
    """Return a buffer for `ADDED` environments, and a function that adds one step of all of them."""
    from gymnasium.spaces import Box, Discrete
    from stable_baselines3.common.buffers import ReplayBuffer as Buffer  # pyright: ignore[reportMissingImports]

    buffer = Buffer(capacity, Box(-1, 1, (INPUTS,)), Discrete(2), device="cpu", n_envs=ADDED)
    some = random_transitions(ADDED)
    names = ("observation", "next_observation", "action", "reward")
    before, after, actions, rewards = (np.ascontiguousarray(some[name]) for name in names)
    done, infos = np.zeros(ADDED, np.float32), [{} for _ in range(ADDED)]
    return buffer, lambda: buffer.add(before, after, actions, rewards, done, infos)


def stable_baselines3_adding(capacity: int) -> Callable[[], object]:
    """Return a call that adds a step of many environments to Stable-Baselines3's buffer."""
    return stable_baselines3_buffer(capacity)[1]


def stable_baselines3_sampling(capacity: int) -> Callable[[], object]:
    """Return a call that samples uniformly from a full buffer of Stable-Baselines3."""
    buffer, add = stable_baselines3_buffer(capacity)
    while not buffer.full:
        add()
    return lambda: buffer.sample(BATCH)


def cpprb_buffer(kind: str, capacity: int) -> tuple[Any, Callable[[], object]]:
    """Return a full cpprb buffer, and a function that adds a batch."""
    import cpprb  # pyright: ignore[reportMissingImports]

    fields = {
        "obs": {"shape": INPUTS},
        "act": {"dtype": np.int32},
        "rew": {},
        "next_obs": {"shape": INPUTS},
        "done": {},
    }
    buffer = getattr(cpprb, kind)(capacity, fields)
    some, done = random_transitions(ADDED), np.zeros(ADDED, np.float32)
    columns = {"obs": "observation", "act": "action", "rew": "reward", "next_obs": "next_observation"}
    batch = {name: np.ascontiguousarray(some[field]) for name, field in columns.items()}
    for _ in range(-(-capacity // ADDED)):
        buffer.add(**batch, done=done)
    return buffer, lambda: buffer.add(**batch, done=done)


def cpprb_adding(capacity: int) -> Callable[[], object]:
    """Return a call that adds a batch to cpprb's buffer."""
    return cpprb_buffer("ReplayBuffer", capacity)[1]


def cpprb_sampling(capacity: int) -> Callable[[], object]:
    """Return a call that samples uniformly from cpprb's buffer."""
    buffer, _ = cpprb_buffer("ReplayBuffer", capacity)
    return lambda: buffer.sample(BATCH)


def cpprb_prioritised(capacity: int) -> Callable[[], object]:
    """Return a call that draws a prioritized sample from cpprb's buffer and updates its priorities."""
    buffer, _ = cpprb_buffer("PrioritizedReplayBuffer", capacity)
    found = errors()

    def call() -> None:
        sample = buffer.sample(BATCH, beta=BETA)
        buffer.update_priorities(sample["indexes"], found)

    return call


def peer(function: str, needs: str, amount: float | None = None, capacity: int = CAPACITY) -> Peer:
    """Time a function of this module in a separate process."""
    return Peer(__name__, function, capacity, needs=needs, amount=amount)


@benchmark(category="learning")
def replay_sample() -> Comparison:
    """A uniform sample of 256 from 1M transitions.

    Into arrays that are used again; Stable-Baselines3's become new tensors of torch, cpprb's new arrays. Of memory,
    each transition is read and written once, although whole lines of the cache are moved.
    """
    return Comparison(
        unit=SECONDS,
        contestants={
            "velocirl": velocirl_sampling,
            "Stable-Baselines3": lambda: peer("stable_baselines3_sampling", "stable_baselines3"),
            "cpprb": lambda: peer("cpprb_sampling", "cpprb"),
        },
        claims=(
            value("velocirl", at_most=MOST_SAMPLE_SECONDS),
            ratio("velocirl", "Stable-Baselines3"),
            ratio("velocirl", "cpprb"),
        ),
        peers=("Stable-Baselines3", "cpprb"),
    )


@benchmark(category="learning")
def replay_add() -> Comparison:
    """Adding transitions, in batches of 4096.

    velocirl's are records, the others' are columns; Stable-Baselines3 takes them as a step of 4096 copies. Of memory,
    each transition is read and written once.
    """
    return Comparison(
        unit=STEPS,
        contestants={
            "velocirl": velocirl_adding,
            "Stable-Baselines3": lambda: peer("stable_baselines3_adding", "stable_baselines3", ADDED),
            "cpprb": lambda: peer("cpprb_adding", "cpprb", ADDED),
        },
        claims=(
            value("velocirl", at_least=FEWEST_ADDED),
            ratio("velocirl", "Stable-Baselines3"),
            ratio("velocirl", "cpprb"),
        ),
        peers=("Stable-Baselines3", "cpprb"),
    )


@benchmark(category="learning")
def replay_prioritised() -> Comparison:
    """A prioritised sample of 256 from 1M transitions, with weights, and 256 new priorities.

    In proportion to the priorities; by rank, the heap is sorted after every million changes, within the measured time.
    """
    return Comparison(
        unit=SECONDS,
        contestants={
            "velocirl": lambda: velocirl_prioritised(PrioritisedReplayBuffer),
            "velocirl, by rank": lambda: velocirl_prioritised(RankReplayBuffer),
            "cpprb": lambda: peer("cpprb_prioritised", "cpprb"),
        },
        claims=(value("velocirl", at_most=MOST_PRIORITISED_SECONDS), ratio("velocirl", "cpprb")),
        peers=("cpprb",),
    )
