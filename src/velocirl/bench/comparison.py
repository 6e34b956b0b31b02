"""What a benchmark says: who is measured, in which unit, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from velocirl.bench.measuring import Counted, Sampler, Timed
from velocirl.bench.units import NUMBER, RATE, SECONDS, Unit


class UnavailableError(Exception):
    """A contestant cannot be measured on this machine; the message says why, as its row will."""


@dataclass(frozen=True)
class Claim:
    """A number drawn from the samples and, where there is a target, what it must reach."""

    by: Literal["value", "ratio", "difference"]
    of: str
    to: str = ""  # the contestant it is compared with
    at_least: float | None = None
    at_most: float | None = None


@dataclass(frozen=True)
class Comparison:
    """Contestants measured in turns in the same run. A contestant is what makes its sampler, called just before.

    `peers` names those that are somebody else's: they are measured where peers are asked for. `workers` has the number
    of threads, processes or ranks of those that are compared by it: reports show their efficiency.
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
        """The same among ourselves; claims about peers go with them."""
        return Comparison(
            self.unit,
            {name: make for name, make in self.contestants.items() if name not in self.peers},
            [claim for claim in self.claims if claim.of not in self.peers and claim.to not in self.peers],
            workers={name: count for name, count in self.workers.items() if name not in self.peers},
        )


def as_comparison(name: str, defined: object) -> Comparison:
    """What a benchmark returned: a comparison, or something shorter for a contestant that is alone.

    A function is timed, in seconds per call; `Timed` and `Counted` say themselves what they give.
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
    """Claim a contestant's own figure."""
    return Claim("value", of, at_least=at_least, at_most=at_most)


def ratio(of: str, to: str, *, at_least: float | None = None) -> Claim:
    """Claim how many times as good one contestant is as another: above 1 is better, whatever the unit."""
    return Claim("ratio", of, to, at_least=at_least)


def difference(of: str, to: str, *, at_most: float | None = None) -> Claim:
    """Claim how much more of the unit one contestant takes than another."""
    return Claim("difference", of, to, at_most=at_most)
