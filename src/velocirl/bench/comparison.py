"""Definition of a benchmark: the implementations measured, their unit, and the claims about them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from velocirl.bench.measuring import Counted, Sampler, Timed
from velocirl.bench.units import NUMBER, RATE, SECONDS, Unit


class UnavailableError(Exception):
    """Raised where an implementation cannot be measured on this machine; the message is shown in its row."""


@dataclass(frozen=True)
class Claim:
    """Value computed from the samples, with an optional target."""

    by: Literal["value", "ratio", "difference"]
    of: str
    to: str = ""  # the contestant it is compared with
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Implementations or variants (`contestants`) measured in turn in the same run.

    Each contestant is a function that creates its sampler; it is called just before measuring. `peers` names the
    third-party ones, which are measured only if peers are requested. `workers` maps contestants that are compared by
    their number of threads, processes or ranks to that number; reports show their efficiency.
    """

    unit: Unit
    contestants: Mapping[str, Callable[[], Sampler]]
    claims: Sequence[Claim] = ()
    peers: Collection[str] = ()
    workers: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        named = [name for claim in self.claims for name in (claim.of, claim.to) if name]
        roles = (("a claim names", named), ("the peers have", self.peers), ("the workers have", self.workers))
        for role, names in roles:
            for name in names:
                if name not in self.contestants:
                    raise ValueError(f"{role} {name!r}; the contestants are {', '.join(self.contestants)}")

    def without_peers(self) -> Comparison:
        """Return the comparison without peers and without claims about them."""
        return Comparison(
            self.unit,
            {name: make for name, make in self.contestants.items() if name not in self.peers},
            [claim for claim in self.claims if claim.of not in self.peers and claim.to not in self.peers],
            workers={name: count for name, count in self.workers.items() if name not in self.peers},
        )


def as_comparison(name: str, defined: object) -> Comparison:
    """Convert a benchmark's return value to a comparison; a single implementation may use a shorter form.

    A function is timed in seconds per call. `Timed` and `Counted` determine their own unit.
    """
    if isinstance(defined, Comparison):
        return defined
    if isinstance(defined, Timed):
        return Comparison(SECONDS if defined.amount is None else RATE, {name: lambda: defined})
    if isinstance(defined, Counted):
        return Comparison(NUMBER, {name: lambda: defined})
    if callable(defined):
        return Comparison(SECONDS, {name: lambda: Timed(defined)})
    raise TypeError(
        f"the benchmark {name} must return a function to time, a Timed, a Counted or a Comparison, got {defined!r}"
    )


def value(of: str, *, at_least: float | None = None, at_most: float | None = None) -> Claim:
    """Claim the value of one implementation."""
    return Claim("value", of, at_least=at_least, at_most=at_most)


def ratio(of: str, to: str, *, at_least: float | None = None) -> Claim:
    """Claim a ratio: `of` is this many times as good as `to`; above 1 is better, whatever the unit."""
    return Claim("ratio", of, to, at_least=at_least)


def difference(of: str, to: str, *, at_most: float | None = None) -> Claim:
    """Claim a difference: `of` takes this much more of the unit than `to`."""
    return Claim("difference", of, to, at_most=at_most)
