"""Taking samples: warm-up, calibrated numbers of calls, and rounds in which all contestants have their turn."""

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
    """How long to measure. A sample is one timed series of calls; a round is one sample of every contestant."""

    warm_up_seconds: float = 0.3
    sample_seconds: float = 0.1
    fewest_rounds: int = 7
    most_rounds: int = 21
    budget_seconds: float = 5.0  # no further round once they have taken this long, where the fewest are done
    long_round_seconds: float = 2.0  # where rounds take longer than this on average,
    fewest_long_rounds: int = 5  # these are enough


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


WORKED = 0.02  # of the time by the clock: a process that was busy for less only waited


class Sampler(Protocol):
    """What takes the samples of one contestant."""

    @property
    def iterations(self) -> int:
        """The number of calls in a sample."""
        ...

    @property
    def cost(self) -> Cost | None:
        """What a unit of its work needs at least, where that is known."""
        ...

    def prepare(self, settings: Settings) -> None:
        """Warm up and choose the number of calls."""
        ...

    def sample(self) -> float:
        """One sample, in the unit of the benchmark."""
        ...

    def close(self) -> None:
        """Let go of what was measured."""
        ...


@dataclass
class Timed:
    """Samples a call by the clock: `amount` of work per second or, without an amount, seconds per call.

    Work that a call gave to a GPU is waited for. `cost` is that of one unit of the amount, or of one call; `facts`
    are told once everything was measured, and stand beside the result.
    """

    call: Callable[[], object]
    amount: float | None = None
    closing: Callable[[], object] | None = None
    cost: Cost | None = None
    facts: Callable[[], dict[str, float]] | None = None
    iterations: int = field(default=1, init=False)
    by_processor: float | None = field(default=None, init=False)  # the last sample, by the processor's time

    def prepare(self, settings: Settings) -> None:
        """Call until warm; how many calls were made in that time tells how many fill a sample."""
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
        # Where something else did the work, a process or a GPU, the time of this process says nothing.
        self.by_processor = self._figure(used) if used > WORKED * seconds else None
        return self._figure(seconds)

    def close(self) -> None:
        """Let go of what was timed."""
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
    """Wait for the GPU, where this process has begun to use one through torch or velocirl."""
    torch: Any = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.synchronize()
    engine: Any = sys.modules.get("velocirl.engine.targets.cuda")
    if engine is not None and engine.cuda.is_available():
        engine.cuda.synchronize()


@dataclass
class Counted:
    """Samples what a call returns: bytes, say. Nothing is timed, so nothing needs to be warm."""

    call: Callable[[], float]
    closing: Callable[[], object] | None = None
    cost: Cost | None = None
    iterations: int = field(default=1, init=False)

    def prepare(self, settings: Settings) -> None:
        """Nothing: a count is the same the first time."""

    def sample(self) -> float:
        """Count once."""
        return float(self.call())

    def close(self) -> None:
        """Let go of what was counted."""
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
    """The samples of every contestant, sample i of each from round i; `progress` is told the share that is done.

    What slows the machine for a while so slows all of them; each round has an order of its own, so that nobody always
    runs in the wake of the same other one. Samples are added to `into` as they are taken, so that an interrupt loses
    none of them, and to `by_processor` the same by the processor's time, of those that know it. `company` is told when
    each round begins and ends.
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
