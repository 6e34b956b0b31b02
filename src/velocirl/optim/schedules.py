"""Schedules: change of a learning rate or another setting over training, as a multiplier or by values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import pairwise
from math import cos, floor, inf, isfinite, isnan, pi
from typing import ClassVar

from velocirl.engine.calls import parse
from velocirl.optim.parsing import build, describe, require

# 0.3 / 0.1 is a little below 3; progress within this of a boundary is past it.
ROUNDING = 1e-9
SHORTEST_WAVE = 1e-6  # of training; a shorter one would be lost in rounding
MOST_POINTS = 10_000


class Schedule(ABC):
    """Multiplier as a function of progress, the fraction of training that is done."""

    name: ClassVar[str]

    @property
    def restarts(self) -> bool:
        """True if it starts again in each call of `learn`, also with `reset_num_timesteps=False`."""
        return False

    def __call__(self, progress: float) -> float:
        """Return the multiplier at a progress from 0 to 1; past 1, where the last round may end, the end value."""
        if isnan(progress):
            raise ValueError("progress must be a number from 0 to 1, not NaN")
        return self.multiplier(min(max(progress, 0.0), 1.0))

    def value(self, setting: float, progress: float) -> float:
        """Return a setting's value at a progress: its configured value times the multiplier."""
        return setting * self(progress)

    @abstractmethod
    def multiplier(self, progress: float) -> float:
        """Return the multiplier at a progress within [0, 1]."""

    def __str__(self) -> str:
        return describe(self, self.name)


@dataclass(frozen=True)
class Constant(Schedule):
    """Always 1."""

    name: ClassVar[str] = "constant"

    def multiplier(self, progress: float) -> float:  # noqa: ARG002
        """Return 1."""
        return 1.0


@dataclass(frozen=True)
class Linear(Schedule):
    """Straight line from 1 to `end`; with `each_call`, one in each call of `learn`, however calls count steps."""

    name: ClassVar[str] = "linear"
    end: float = 0.0
    each_call: bool = False

    def __post_init__(self) -> None:
        _require_end(self, self.end)

    @property
    def restarts(self) -> bool:
        """True if `each_call` is set."""
        return self.each_call

    def multiplier(self, progress: float) -> float:
        """Return end + (1 - end) * (1 - progress)."""
        return _above(self.end, 1.0 - progress)


@dataclass(frozen=True)
class Cosine(Schedule):
    """Half a cosine wave from 1 to `end`."""

    name: ClassVar[str] = "cosine"
    end: float = 0.0

    def __post_init__(self) -> None:
        _require_end(self, self.end)

    def multiplier(self, progress: float) -> float:
        """Return end + (1 - end) * (1 + cos(pi * progress)) / 2."""
        return _above(self.end, 0.5 * (1.0 + cos(pi * progress)))


@dataclass(frozen=True)
class CosineRestarts(Schedule):
    """Several half cosine waves (Loshchilov and Hutter, 2017), each `growth` times as long as the one before."""

    name: ClassVar[str] = "cosine_restarts"
    cycles: int = 4
    end: float = 0.0
    growth: float = 1.0

    def __post_init__(self) -> None:
        require(self, "cycles", 1 <= self.cycles <= 100, "from 1 to 100")
        _require_end(self, self.end)
        require(self, "growth", 0.1 <= self.growth <= 10, "from 0.1 to 10")
        enough = min(self._lengths()) >= SHORTEST_WAVE
        require(self, "growth", enough, f"nearer to 1 where there are {self.cycles} cycles")

    def multiplier(self, progress: float) -> float:
        """Return end + (1 - end) * (1 + cos(pi * share)) / 2, with the done share of the current wave; 1 at the end."""
        *earlier, length = self._lengths()
        start = 1.0 - length
        for wave in reversed(earlier):
            if progress >= start - ROUNDING:
                break
            length = wave
            start -= wave
        share = min(max((progress - start) / length, 0.0), 1.0)
        return _above(self.end, 0.5 * (1.0 + cos(pi * share)))

    def _lengths(self) -> list[float]:
        """Return the fraction of training that each wave takes."""
        waves = [self.growth**cycle for cycle in range(self.cycles)]
        return [wave / sum(waves) for wave in waves]


@dataclass(frozen=True)
class Polynomial(Schedule):
    """Power of the remaining progress, from 1 to `end`."""

    name: ClassVar[str] = "polynomial"
    power: float = 2.0
    end: float = 0.0

    def __post_init__(self) -> None:
        require(self, "power", 0 < self.power < inf, "above 0 and finite")
        _require_end(self, self.end)

    def multiplier(self, progress: float) -> float:
        """Return end + (1 - end) * (1 - progress) ** power."""
        return _above(self.end, (1.0 - progress) ** self.power)


@dataclass(frozen=True)
class Exponential(Schedule):
    """Exponential decay from 1 to `end`: the same ratio in each equal segment."""

    name: ClassVar[str] = "exponential"
    end: float = 0.01

    def __post_init__(self) -> None:
        require(self, "end", 0 < self.end < inf, "above 0 and finite; linear or cosine reach 0")

    def multiplier(self, progress: float) -> float:
        """Return end ** progress."""
        return self.end**progress


@dataclass(frozen=True)
class Step(Schedule):
    """Multiplication by `factor` each time another fraction `every` of training is done."""

    name: ClassVar[str] = "step"
    every: float = 0.25
    factor: float = 0.5

    def __post_init__(self) -> None:
        require(self, "every", 1e-6 <= self.every <= 1, "a share of training, from 0.000001 to 1")
        require(self, "factor", 0 < self.factor <= 1, "above 0 and at most 1")

    def multiplier(self, progress: float) -> float:
        """Return factor ** floor(progress / every)."""
        return self.factor ** floor(progress / self.every + ROUNDING)


@dataclass(frozen=True)
class Warmup(Schedule):
    """Straight line from `start` to 1 over the first fraction of training, then another schedule over the rest."""

    name: ClassVar[str] = "warmup"
    fraction: float
    then: Schedule = field(default_factory=Constant)
    start: float = 0.0

    def __post_init__(self) -> None:
        require(self, "fraction", 0 <= self.fraction < 1, "a share of training, at least 0 and below 1")
        require(self, "start", 0 <= self.start < inf, "at least 0 and finite")
        require(self, "then", isinstance(self.then, Schedule), "a schedule, for example Cosine()")

    def multiplier(self, progress: float) -> float:
        """Return start + (1 - start) * progress / fraction; after that, the other schedule from its beginning."""
        if progress < self.fraction:
            return self.start + (1.0 - self.start) * progress / self.fraction
        return self.then((progress - self.fraction) / (1.0 - self.fraction))

    @property
    def restarts(self) -> bool:
        """True if the other schedule restarts."""
        return self.then.restarts

    def __str__(self) -> str:
        return f"{describe(self, self.name)} {self.then}"


@dataclass(frozen=True)
class TwoPhase(Schedule):
    """Straight line from 1 to `middle` over the first `fraction` of training, and another one from there to `end`."""

    name: ClassVar[str] = "two_phase"
    fraction: float = 0.5
    middle: float = 0.1
    end: float = 0.0

    def __post_init__(self) -> None:
        require(self, "fraction", 0 < self.fraction < 1, "a share of training, above 0 and below 1")
        require(self, "middle", 0 <= self.middle < inf, "at least 0 and finite")
        _require_end(self, self.end)

    def multiplier(self, progress: float) -> float:
        """Return the linear interpolation between the two values of the current phase."""
        if progress < self.fraction:
            return 1.0 + (self.middle - 1.0) * progress / self.fraction
        return self.middle + (self.end - self.middle) * (progress - self.fraction) / (1.0 - self.fraction)


@dataclass(frozen=True)
class Points(Schedule):
    """Values of a setting at points of progress, with straight lines between them; two at one progress are a jump."""

    name: ClassVar[str] = "points"
    points: tuple[tuple[float, float], ...]

    def __post_init__(self) -> None:
        count, places = len(self.points), [place for place, _ in self.points]
        if not 1 <= count <= MOST_POINTS:
            raise ValueError(f"a schedule has from 1 to {MOST_POINTS:,} points, got {count:,}")
        for place, value in self.points:
            if not 0 <= place <= 1:
                raise ValueError(f"a point of a schedule is at a progress from 0 to 1, got {place!r}")
            if not isfinite(value):
                raise ValueError(f"a schedule has finite values, got {value!r} at a progress of {place!r}")
        for before, after in pairwise(places):
            if after < before:
                raise ValueError(f"points of a schedule are in the order of progress, got {after!r} after {before!r}")

    def value(self, setting: float, progress: float) -> float:  # noqa: ARG002
        """Return the value at a progress, whatever the configured setting."""
        return self(progress)

    def multiplier(self, progress: float) -> float:
        """Return the value itself; before the first point and after the last one, that point's value."""
        points = self.points
        after = bisect_right(points, (progress, inf))
        if after in (0, len(points)):
            return points[min(after, len(points) - 1)][1]
        (start, low), (stop, high) = points[after - 1 : after + 1]
        return low + (high - low) * ((progress - start) / (stop - start))

    @property
    def largest(self) -> float:
        """Largest of the values."""
        return max(value for _, value in self.points)

    def __str__(self) -> str:
        return ", ".join(f"{place!r}:{value!r}" for place, value in self.points)


SCHEDULES: dict[str, type[Schedule]] = {
    kind.name: kind
    for kind in (Constant, Linear, Step, Exponential, Cosine, CosineRestarts, Polynomial, TwoPhase, Warmup)
}


def schedule_from(text: str | Schedule) -> Schedule:
    """Return the schedule of a text: `warmup(0.05) cosine(end=0.1)`, or the points `0:3e-4, 0.5:1e-4, 1:0`.

    A schedule is returned as it is.
    """
    return text if isinstance(text, Schedule) else _read(text)


@lru_cache(maxsize=64)  # called in every iteration
def _read(text: str) -> Schedule:
    if ":" in text:
        return _points_of(text)
    *first, last = parse(text, "schedule")
    schedule = build(last, SCHEDULES, "schedule")
    for call in reversed(first):
        if call.name in SCHEDULES and call.name != Warmup.name:
            raise ValueError(
                f"{call.name} fills all of training, so nothing can follow it; only warmup(...) goes first"
            )
        schedule = build(call, SCHEDULES, "schedule", then=schedule)
    return schedule


def _points_of(text: str) -> Points:
    points: list[tuple[float, float]] = []
    for part in text.split(","):
        place, _, value = part.partition(":")
        try:
            points.append((float(place), float(value)))
        except ValueError:
            raise ValueError(f"cannot read {part.strip()!r} as a point of a schedule: write progress:value, as in"
                             " 0:3e-4,0.5:1e-4,1:0") from None  # fmt: skip
    return Points(tuple(points))


def _above(end: float, share: float) -> float:
    """Return the value at `share` of the way from `end` to 1."""
    return end + (1.0 - end) * share


def _require_end(schedule: Schedule, end: float) -> None:
    require(schedule, "end", 0 <= end < inf, "at least 0 and finite")
