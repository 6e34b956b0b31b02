"""Training speed of candidates: a quick pass over all, then samples in turns of the promising ones."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from velocirl.bench.measuring import Settings, Timed, measure
from velocirl.bench.tuning.candidates import Candidate
from velocirl.bench.tuning.evidence import Measured
from velocirl.bench.tuning.watching import Deadline, Watcher
from velocirl.training.agent import Agent

Make = Callable[[Candidate], Agent]  # creates an agent with a candidate's settings
GLANCE_SECONDS = 0.06
SAMPLE_SECONDS = 0.1
LEAST_STEPS, MOST_STEPS = 1024, 2**20  # per call, for algorithms without rollouts
COLLECTED_ROUNDS = 32  # per call with collectors, which are ahead of the learner only in the middle of a call
# While only speed is measured: a limited replay buffer, and learning that starts once it can be sampled.
MOST_MEMORY, LATEST_START = 100_000, 1000


def glance(rows: Sequence[Measured], make: Make, total_steps: int | None, deadline: Deadline, watcher: Watcher) -> None:
    """Measure steps per second with one short sample each, and a second one for fast candidates.

    Noise only slows, so the better sample counts. First come the ways to run the reference. Every shape follows where
    the reference ran fastest, then where it ran second fastest, and so on until half of the time is used.
    """
    neutral = [row for row in rows if row.candidate.is_neutral]
    _look(neutral, make, total_steps, deadline, watcher)
    ranked = [row.candidate.running for row in sorted(neutral, key=lambda row: -row.rate)]
    others = [row for row in rows if not row.candidate.is_neutral]
    others.sort(key=lambda row: (_rank(row.candidate.running, ranked), row.candidate.distance))
    _look(others, make, total_steps, deadline, watcher)
    again = worth_another_look(rows)
    for place, row in enumerate(again):
        if deadline.share > 0.75:
            break
        watcher.advance(max(0.5 + place / len(again) / 4, deadline.share), row.name)
        row.glance = max(row.glance or 0.0, _once(make(row.candidate), total_steps))


def _look(rows: Sequence[Measured], make: Make, total_steps: int | None, deadline: Deadline, watcher: Watcher) -> None:
    for row in rows:
        if deadline.share > 0.5 and not row.candidate.is_reference:
            break
        watcher.advance(deadline.share, row.name)
        row.glance = max(row.glance or 0.0, _once(make(row.candidate), total_steps))


def _rank(running: Mapping[str, Any], ranked: Sequence[Mapping[str, Any]]) -> int:
    """Return a way's rank among the measured ways to run; unmeasured ones come last."""
    return ranked.index(running) if running in ranked else len(ranked)


def worth_another_look(rows: Sequence[Measured]) -> list[Measured]:
    """Return the faster half, the fastest of each shape, and the reference; the fastest first."""
    seen = sorted((row for row in rows if row.glance is not None), key=lambda row: -row.rate)
    half = len(seen) // 2
    shapes: set[str] = set()
    chosen = []
    for place, row in enumerate(seen):
        if place < half or row.candidate.shape not in shapes or row.candidate.is_reference:
            chosen.append(row)
        shapes.add(row.candidate.shape)
    return chosen


def in_turns(
    finalists: Sequence[Measured], make: Make, total_steps: int | None, deadline: Deadline, watcher: Watcher
) -> None:
    """Sample steps per second in rounds, in which every finalist has its turn."""
    with ExitStack() as stack:
        samplers = {}
        for row in finalists:
            agent = make(row.candidate)
            stack.callback(let_go, agent)
            call, amount = _warmed(agent, total_steps)
            samplers[row.name] = _Kept(call, row.speeds, amount)
        settings = Settings(
            warm_up_seconds=SAMPLE_SECONDS,
            sample_seconds=SAMPLE_SECONDS,
            fewest_rounds=5,
            most_rounds=15,
            budget_seconds=max(deadline.left, 0.01),
        )
        measure(samplers, settings, lambda share: watcher.advance(0.75 + share / 4, "in turns"))


class _Kept(Timed):
    """Sampler that stores its samples immediately, so that an interrupt does not lose them."""

    def __init__(self, call: Callable[[], object], samples: list[float], amount: int) -> None:
        super().__init__(call, amount=amount)
        self._samples = samples

    def sample(self) -> float:
        """Take and store one more sample."""
        self._samples.append(super().sample())
        return self._samples[-1]


def for_speed(config: Any) -> dict[str, Any]:
    """Return settings that replace the configuration's while only speed is measured."""
    limits = {"buffer_size": MOST_MEMORY, "learning_starts": max(LATEST_START, getattr(config, "batch_size", 0))}
    return {name: min(getattr(config, name), most) for name, most in limits.items() if hasattr(config, name)}


def let_go(agent: Agent) -> None:
    """Release an agent's processes and GPU memory."""
    close = getattr(getattr(agent, "_learner", None), "close", None)
    if close is not None:
        close()
    if agent.source.native is None or getattr(agent.config, "device", "cpu") == "cuda":
        del agent
        gc.collect()


def _once(agent: Agent, total_steps: int | None) -> float:
    """Return the steps per second of one short sample."""
    try:
        call, amount = _warmed(agent, total_steps)
        calls, start = 0, time.perf_counter()
        while not calls or time.perf_counter() - start < GLANCE_SECONDS:
            call()
            calls += 1
        return amount * calls / (time.perf_counter() - start)
    finally:
        let_go(agent)


def _warmed(agent: Agent, total_steps: int | None) -> tuple[Callable[[], object], int]:
    """Return a call that continues an agent's training, already made once, and its number of steps."""
    config = agent.config
    if hasattr(config, "horizon"):
        steps = config.batch
    elif hasattr(config, "train_every"):
        steps = max(LEAST_STEPS if agent.source.native is not None else 4 * config.train_every, config.num_envs)
        if config.collectors is not None:
            steps = max(steps, COLLECTED_ROUNDS * config.num_envs)
    else:
        steps = min(total_steps or LEAST_STEPS, MOST_STEPS)  # short calls would have fewer syncs between threads
    agent.learn(steps + getattr(config, "learning_starts", 0))
    before = agent.steps
    agent.learn(steps)
    return lambda: agent.learn(steps), agent.steps - before
