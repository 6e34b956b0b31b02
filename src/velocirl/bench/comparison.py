"""What a benchmark says: who is measured, in which unit, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from velocirl.bench.measuring import Sampler
from velocirl.bench.units import Unit


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
    """Contestants measured in turns in the same run. A contestant is what makes its sampler, called just before."""

    unit: Unit
    contestants: Mapping[str, Callable[[], Sampler]]
    claims: Sequence[Claim] = ()

    def __post_init__(self) -> None:
        for claim in self.claims:
            for name in (claim.of, claim.to):
                if name and name not in self.contestants:
                    raise ValueError(f"a claim names {name!r}; the contestants are {', '.join(self.contestants)}")


def value(of: str, *, at_least: float | None = None, at_most: float | None = None) -> Claim:
    """Claim a contestant's own figure."""
    return Claim("value", of, at_least=at_least, at_most=at_most)


def ratio(of: str, to: str, *, at_least: float | None = None) -> Claim:
    """Claim how many times as good one contestant is as another: above 1 is better, whatever the unit."""
    return Claim("ratio", of, to, at_least=at_least)


def difference(of: str, to: str, *, at_most: float | None = None) -> Claim:
    """Claim how much more of the unit one contestant takes than another."""
    return Claim("difference", of, to, at_most=at_most)
