"""Sampling: warm-up, calibrated numbers of calls, and rounds in which every implementation is sampled once."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from velocirl.bench.machine.company import CompanyByRound
from velocirl.bench.machine.cost import Cost


@dataclass(frozen=True)
class Settings:
    """Duration of measurements. A sample is one timed series of calls; a round is one sample of every contestant."""

    warm_up_seconds: float = 0.3
    sample_seconds: float = 0.1
    fewest_rounds: int = 7
    most_rounds: int = 21
    budget_seconds: float = 5.0  # no further round after this time, if the minimum number is done
    long_round_seconds: float = 2.0  # if rounds take longer than this on average,
    fewest_long_rounds: int = 5  # this many are enough


THOROUGH = Settings()
QUICK = Settings(
    warm_up_seconds=0.05,
    sample_seconds=0.02,
    fewest_rounds=3,
    most_rounds=5,
    budget_seconds=0.5,
    long_round_seconds=0.5,
    fewest_long_rounds=2,
)


WORKED = 0.02  # fraction of wall-clock time: a process that was busy for less only waited


class Sampler(Protocol):
    """Sampler of one implementation."""

    @property
    def iterations(self) -> int:
        """Number of calls per sample."""
        ...

    @property
    def cost(self) -> Cost | None:
        """Minimum cost of one unit of its work, if known."""
        ...

    def prepare(self, settings: Settings) -> None:
        """Warm up and choose the number of calls."""
        ...

    def sample(self) -> float:
        """Take one sample, in the benchmark's unit."""
        ...

    def close(self) -> None:
        """Release the measured objects."""
        ...


@dataclass
class Timed:
    """Samples a call by wall-clock time: `amount` of work per second or, without an amount, seconds per call.

    GPU work that a call started is waited for. `cost` applies to one unit of the amount, or to one call. `facts` is
    called after all measurements; its values are stored with the result.
    """

    call: Callable[[], object]
    amount: float | None = None
    closing: Callable[[], object] | None = None
    cost: Cost | None = None
    facts: Callable[[], dict[str, float]] | None = None
    iterations: int = field(default=1, init=False)
    by_processor: float | None = field(default=None, init=False)  # the last sample, by CPU time

    def prepare(self, settings: Settings) -> None:
        """Call until warm; the number of calls made in that time determines the number per sample."""
        self.call()  # the first may compile or load something, so it does not count
        calls, seconds = 0, 0.0
        while seconds < settings.warm_up_seconds or not calls:
            seconds += self._seconds(1)
            calls += 1
        self.iterations = max(1, round(calls * settings.sample_seconds / seconds))

    def sample(self) -> float:
        """Time one series of calls."""
        before = time.process_time()
        seconds = self._seconds(self.iterations)
        used = time.process_time() - before
        # If another process or a GPU did the work, this process's CPU time is meaningless.
        self.by_processor = self._figure(used) if used > WORKED * seconds else None
        return self._figure(seconds)

    def close(self) -> None:
        """Release the timed objects."""
        if self.closing is not None:
            self.closing()

    def _figure(self, seconds: float) -> float:
        return seconds / self.iterations if self.amount is None else self.amount * self.iterations / seconds

    def _seconds(self, iterations: int) -> float:
        call = self.call
        synchronise()
        start = time.perf_counter()
        for _ in range(iterations):
            call()
        synchronise()
        return time.perf_counter() - start


def synchronise() -> None:
    """Wait for the GPU, if this process has started using one through torch or velocirl."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    engine: Any = sys.modules.get("velocirl.engine.targets.cuda")
    if engine is not None and engine.cuda.is_available():
        engine.cuda.synchronize()


@dataclass
class Counted:
    """Samples the value that a call returns, such as bytes. Nothing is timed, so no warm-up is needed."""

    call: Callable[[], float]
    closing: Callable[[], object] | None = None
    cost: Cost | None = None
    iterations: int = field(default=1, init=False)

    def prepare(self, settings: Settings) -> None:
        """Do nothing: a count is the same the first time."""

    def sample(self) -> float:
        """Count once."""
        return float(self.call())

    def close(self) -> None:
        """Release the counted objects."""
        if self.closing is not None:
            self.closing()


def measure(
    samplers: Mapping[str, Sampler],
    settings: Settings,
    progress: Callable[[float], None],
    into: dict[str, list[float]] | None = None,
    by_processor: dict[str, list[float]] | None = None,
    company: CompanyByRound | None = None,
) -> dict[str, list[float]]:
    """Sample every implementation; sample i of each comes from round i. `progress` receives the fraction done.

    A temporary slowdown of the machine therefore affects all of them. Each round has its own random order, so that none
    always runs right after the same other one. Samples are added to `into` as they are taken: an interrupt loses none.
    `by_processor` receives the same samples by CPU time, from samplers that measure it. `company` is marked at the
    beginning and the end of each round.
    """
    samples = {} if into is None else into
    for name in samplers:
        samples.setdefault(name, [])
    for sampler in samplers.values():
        sampler.prepare(settings)
    shuffle = np.random.default_rng(0)
    company = company or CompanyByRound()
    company.mark()
    start = time.perf_counter()
    for done in range(settings.most_rounds if samplers else 0):
        seconds = time.perf_counter() - start
        used, fewest = seconds / settings.budget_seconds, settings.fewest_rounds
        if seconds > done * settings.long_round_seconds:
            fewest = min(fewest, settings.fewest_long_rounds)
        if done >= fewest and used >= 1.0:
            break
        progress(max(done / settings.most_rounds, min(used, done / fewest)))
        for name in shuffle.permutation(list(samplers)).tolist():
            samples[name].append(samplers[name].sample())
            known = getattr(samplers[name], "by_processor", None)
            if by_processor is not None and known is not None:
                by_processor.setdefault(name, []).append(known)
        company.mark()
    progress(1.0)
    return samples
