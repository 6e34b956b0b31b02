"""Description of a dataset."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import isfinite
from typing import Any

import numpy as np
from gymnasium.spaces import Space

from velocirl.buffers.data.spaces import space_document, space_from

LEVELS = ("random", "operator", "medium", "expert", "mixed", "replay")
REFERENCES = ("random", "operator", "expert")
LARGEST = 1e300  # of numbers in a description; JSON has integers of any length
ADDED = {"reference_episodes", "reference_intervals", "scenario", "time_step"}  # fields that older files lack


@dataclass(frozen=True)
class DatasetInfo:
    """Origin of a dataset and meaning of its numbers.

    `signals` and `actuators` name the numbers of an observation and an action, in their order, each with its unit.
    `references` are the mean returns of known policies ("random", "operator", "expert") on the same environment, each
    over `reference_episodes`; `reference_intervals` are their 95% intervals.
    """

    observation_space: Space[Any]
    action_space: Space[Any]
    environment: str | None = None  # its id; None for a historian's data
    params: Mapping[str, Any] = field(default_factory=dict)
    signals: Mapping[str, str] = field(default_factory=dict)
    actuators: Mapping[str, str] = field(default_factory=dict)
    constraints: tuple[str, ...] = ()
    level: str | None = None
    policy: str | None = None  # description of the policy that acted
    seed: int | None = None
    references: Mapping[str, float] = field(default_factory=dict)
    reference_episodes: Mapping[str, int] = field(default_factory=dict)
    reference_intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    scenario: str | None = None  # scenario of the recording
    time_step: float | None = None  # seconds between two observations
    version: str = ""  # of the velocirl that created it

    def __post_init__(self) -> None:
        for name in ("environment", "policy", "scenario"):
            if not isinstance(getattr(self, name), str | None):
                raise ValueError(f"{name} of a data set must be a text, got {getattr(self, name)!r}")
        if self.level is not None and self.level not in LEVELS:
            raise ValueError(f"the level of a data set is one of {', '.join(LEVELS)}, got {self.level!r}")
        if self.seed is not None and type(self.seed) is not int:
            raise ValueError(f"the seed of a data set is a whole number, got {self.seed!r}")
        if self.time_step is not None and not (_is_number(self.time_step) and self.time_step > 0):
            raise ValueError(f"the time step of a data set is in seconds, above 0, got {self.time_step!r}")
        named = ("params", "signals", "actuators", "references", "reference_episodes", "reference_intervals")
        for name in named:
            if not isinstance(getattr(self, name), Mapping):
                raise ValueError(f"{name} of a data set is a dict, got {getattr(self, name)!r}")
        texts = [*self.constraints, *(one for name in ("signals", "actuators") for one in getattr(self, name).items())]
        if not all(isinstance(one, str) for text in texts for one in (text if isinstance(text, tuple) else (text,))):
            raise ValueError("signals, actuators and constraints of a data set are named by texts, with units as texts")
        if len(set(self.constraints)) != len(self.constraints):
            raise ValueError(f"two constraints of a data set have the same name: {', '.join(self.constraints)}")
        for name, value in self.references.items():
            if name not in REFERENCES or isinstance(value, bool) or not isinstance(value, (int, float)):
                raise ValueError(f"reference returns are numbers for {', '.join(REFERENCES)}, got {name}={value!r}")
            if not isfinite(value):
                raise ValueError(f"the reference return of {name} must be finite, got {value}")
        for name, count in self.reference_episodes.items():
            if name not in self.references or type(count) is not int or count < 1:
                raise ValueError(f"reference_episodes has {name}={count!r}: give the episodes of a reference return")
        for name, ends in self.reference_intervals.items():
            pair = isinstance(ends, tuple | list) and len(ends) == 2 and all(map(_is_number, ends))
            if name not in self.references or not pair:
                raise ValueError(f"reference_intervals has {name}={ends!r}: give the two ends of a reference return's")

    def normalised(self, returns: Any) -> Any:
        """Return normalized scores of returns: 0 is the random policy, 100 the expert."""
        missing = [name for name in ("random", "expert") if name not in self.references]
        if missing:
            raise ValueError(f"normalised scores need the reference return of {' and '.join(missing)} in the data set")
        low, high = self.references["random"], self.references["expert"]
        if low == high:
            raise ValueError(f"the random policy and the expert both return {low:g}: scores between them mean nothing")
        return 100.0 * (np.asarray(returns, np.float64) - low) / (high - low)

    def document(self) -> dict[str, Any]:
        """Return all fields as plain JSON."""
        found = {one.name: getattr(self, one.name) for one in fields(self)}
        spaces = {name: space_document(found[name]) for name in ("observation_space", "action_space")}
        # Lists of pairs, as order matters and a name may be any text.
        named = {name: [list(pair) for pair in found[name].items()] for name in ("signals", "actuators")}
        plain = {"params": plain_values(self.params), "references": dict(self.references)}
        plain |= {"reference_episodes": dict(self.reference_episodes)}
        plain |= {"reference_intervals": {name: list(ends) for name, ends in self.reference_intervals.items()}}
        return {**found, **spaces, **named, **plain, "constraints": list(self.constraints)}

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> DatasetInfo:
        """Create the info from a document of `document()`. Raises ValueError for anything else."""
        names = {one.name for one in fields(cls)}
        if not names - ADDED <= set(document) <= names:
            odd = sorted(set(document) ^ names)
            raise ValueError(f"its description has unknown or missing keys: {', '.join(odd)[:200]}")
        spaces = {name: space_from(document[name]) for name in ("observation_space", "action_space")}
        named = {name: dict(document[name]) for name in ("signals", "actuators")}
        found = {**document, **spaces, **named, "constraints": tuple(document["constraints"])}
        if isinstance(intervals := document.get("reference_intervals", {}), Mapping):
            tuples = {name: tuple(ends) if isinstance(ends, list) else ends for name, ends in intervals.items()}
            found["reference_intervals"] = tuples
        return cls(**found)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def plain_values(params: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as numbers, texts and lists; distributions for randomization become text."""
    return {name: _plain(value) for name, value in params.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if value is None or isinstance(value, str | bool | int) or (isinstance(value, float) and isfinite(value)):
        return value
    return str(value)
