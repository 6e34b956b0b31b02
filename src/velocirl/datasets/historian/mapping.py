"""Which column of a table is what, in which unit, and where episodes begin."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from velocirl.engine.disk.files import parse_json, read_plain
from velocirl.engine.naming import nearest

LONGEST = 1000  # letters of a text
LARGEST = 1e38  # of the numbers in a mapping, so that single precision has them

REFUSE = "refuse"
CHOICES = {
    "duplicates": (REFUSE, "first", "last"),
    "missing": (REFUSE, "cut"),
    "alignment": ("taken", "led"),
}


@dataclass(frozen=True)
class Channel:
    """A column of the table that is a signal, an actuator or a cost."""

    column: str
    name: str = ""  # what it is called in the environment, or in the data set; the column's where there is none
    unit: str = ""  # of the numbers in the table; where the heading has one, as in "TI101 [degC]", that
    to: str = ""  # the unit in the data set; the environment's, or the table's
    low: float | None = (
        None  # limits of an actuator, in the unit of the data set; the environment's, where there is one
    )
    high: float | None = None

    @classmethod
    def read(cls, given: Any, place: str) -> Self:
        """From a document; a text is a column."""
        given = {"column": given} if isinstance(given, str) else given
        known = _known(cls, given, place)
        for name, value in known.items():
            kind, wanted = ((int, float), "a number") if name in ("low", "high") else (str, "a text")
            if not isinstance(value, kind) or isinstance(value, bool):
                raise ValueError(f"{place}: {name} must be {wanted}, got {_shown(value)}")
            if isinstance(value, str):
                _require_short(value, f"{place}: {name}")
            if name in ("low", "high") and not _is_moderate(value):
                raise ValueError(f"{place}: {name} must be between {-LARGEST:g} and {LARGEST:g}, got {_shown(value)}")
        if "column" not in known:
            raise ValueError(f"{place} names no column: {{'column': 'TI101', 'name': 'temperature', 'unit': 'degC'}}")
        return cls(**known)


@dataclass(frozen=True)
class HistorianMapping:
    """How a table of a historian becomes episodes; a JSON document of the same keys says it, too.

    A row has what was measured at its time. With `alignment="taken"`, its actions, reward and costs are those of the
    step that begins there; with "led", as in velocirl's own tables, those of the step that led there.
    """

    time: str  # the column of times: dates, or seconds
    observations: tuple[Channel, ...]
    actions: tuple[Channel, ...]
    reward: str | float = 0.0  # a column, or one number for all steps
    costs: tuple[Channel, ...] = ()
    terminated: str | None = None  # a column that is true in the last row of an episode that ended by itself
    environment: str | None = None  # one of ours, whose signals and actuators the columns are
    episode: str | None = None  # a column whose change begins a new episode
    gap: float | None = None  # seconds without a row that begin a new episode; 1.5 times the usual where nobody says
    longest: int | None = None  # steps after which an episode is cut off, and another begins
    duplicates: str = REFUSE  # rows of the same time: refuse, or keep the first or the last
    missing: str = REFUSE  # numbers that are missing: refuse, or cut the episode there
    alignment: str = "taken"
    source: str = field(default="the mapping", compare=False)  # where it comes from, for messages

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{self.source}: {name} is one of {', '.join(choices)}, got {getattr(self, name)!r}")
        for name in ("gap", "longest"):
            value = getattr(self, name)
            if value is not None and not (_is_moderate(value) and value > 0):
                raise ValueError(f"{self.source}: {name} must be a number above 0, got {_shown(value)}")
        for name in ("time", "terminated", "environment", "episode"):
            value = getattr(self, name)
            if not isinstance(value, str | None) or (name == "time" and not value):
                raise ValueError(f"{self.source}: {name} must be a text, got {_shown(value)}")
            _require_short(value or "", f"{self.source}: {name}")
        if isinstance(self.reward, bool) or not isinstance(self.reward, str | int | float):
            raise ValueError(f"{self.source}: reward is a column or a number, got {_shown(self.reward)}")
        if not isinstance(self.reward, str) and not _is_moderate(self.reward):
            raise ValueError(f"{self.source}: reward must be finite, got {_shown(self.reward)}")
        if isinstance(self.reward, str):
            _require_short(self.reward, f"{self.source}: reward")
        for name in ("observations", "actions", "costs"):
            channels = [one.name or one.column for one in getattr(self, name)]
            if not channels and name != "costs":
                raise ValueError(f"{self.source}: {name} names no column")
            if twice := next((one for one, count in Counter(channels).items() if count > 1), None):
                raise ValueError(f"{self.source}: two of the {name} have the same name, {twice!r}")

    @property
    def columns(self) -> set[str]:
        """Names of all columns that it maps."""
        named = {one.column for one in (*self.observations, *self.actions, *self.costs)}
        others = (self.time, self.terminated, self.episode, self.reward)
        return named | {one for one in others if isinstance(one, str)}

    @classmethod
    def read(cls, given: str | Path | Mapping[str, Any] | HistorianMapping) -> HistorianMapping:
        """From a JSON file, or from a dict as such a file has."""
        if isinstance(given, HistorianMapping):
            return given
        source = "the mapping"
        if isinstance(given, (str, Path)):
            source = str(given)
            try:
                given = parse_json(read_plain(given))
            except ValueError as error:
                raise ValueError(f"{source} is no JSON ({error})") from None
        known = _known(cls, given, source)
        for name in ("time", "observations", "actions"):
            if name not in known:
                raise ValueError(f"{source} does not say which columns are {name}")
        for name in ("observations", "actions", "costs"):
            listed = known.get(name, [])
            if not isinstance(listed, list | tuple):
                raise ValueError(f"{source}: {name} must be a list of columns, got {_shown(listed)}")
            known[name] = tuple(Channel.read(one, f"{source}: {name}[{k}]") for k, one in enumerate(listed))
        return cls(**{**known, "source": source})


def _require_short(text: str, place: str) -> None:
    if len(text) > LONGEST:
        raise ValueError(f"{place} has {len(text):,} letters; names and units have at most {LONGEST:,}")


def _is_moderate(value: Any) -> bool:
    """Return whether a value is a number within the range of float32; JSON has integers of any length."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _shown(value: Any) -> str:
    """A value in a message; Python refuses to write numbers of thousands of digits."""
    if isinstance(value, int) and abs(value) > LARGEST:
        return f"a number of {value.bit_length()} bits"
    return repr(value)[:80]


def _known(kind: type[Any], given: Any, place: str) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise ValueError(f"{place} must be an object of names and values, got {str(given)[:80]!r}")
    names = [one.name for one in fields(kind) if one.name != "source"]
    for name in given:
        if name not in names:
            raise ValueError(f"{place} has the key {str(name)[:40]!r}, which is not known{nearest(str(name), names)}")
    return dict(given)
