"""Mapping of a table's columns: roles, units and the beginnings of episodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Self

from velocirl.datasets.historian.tables import SEPARATORS, TIME_UNITS, Notation
from velocirl.engine.disk.files import parse_json, read_plain
from velocirl.engine.naming import nearest

LONGEST = 1000  # characters of a text
LARGEST = 1e38  # limit of numbers in a mapping, so that float32 can hold them

REFUSE, CUT, HOLD, INTERPOLATE = "refuse", "cut", "hold", "interpolate"
MISSING, KEEP = "missing", "keep"
CHOICES = {
    "duplicates": (REFUSE, "first", "last"),
    "missing": (REFUSE, CUT, HOLD, INTERPOLATE),
    "outside": (REFUSE, MISSING, KEEP),
    "alignment": ("taken", "led"),
    "decimal": (".", ","),
}


@dataclass(frozen=True)
class Channel:
    """Table column that holds a signal, an actuator or a cost."""

    column: str
    name: str = ""  # name in the environment or the dataset; default: the column's name
    unit: str = ""  # unit in the table; default: the heading's, as in "TI101 [degC]"
    to: str = ""  # unit in the dataset; default: the environment's or the table's
    # Range of the instrument or actuator in the dataset's unit; default: the environment's.
    low: float | None = None
    high: float | None = None

    @classmethod
    def read(cls, given: Any, place: str) -> Self:
        """Read a channel from a JSON value; a text is a column name."""
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
    """Mapping from a historian's table to episodes; a JSON document may have the same keys.

    A row holds the measurements at its time. With `alignment="taken"`, its actions, reward and costs belong to the step
    that begins there. With "led", as in velocirl's own tables, they belong to the step that led there.
    """

    time: str  # column of times: dates, or seconds
    observations: tuple[Channel, ...]
    actions: tuple[Channel, ...]
    reward: str | float | None = None  # a column, or one number for all steps; required
    costs: tuple[Channel, ...] = ()
    terminated: str | None = None  # column that is true in the last row of an episode that terminated
    environment: str | None = None  # environment id; the columns are its signals and actuators
    episode: str | None = None  # column whose change begins a new episode
    gap: float | None = None  # seconds without a row that begin a new episode; default: 1.5 times the median interval
    longest: int | None = None  # steps after which an episode is truncated and another begins
    duplicates: str = REFUSE  # rows of equal time: refuse, or keep the first or the last
    missing: str = REFUSE  # missing numbers: refuse, cut the episode there, hold the last, or interpolate
    max_gap: float | None = None  # longest gap in seconds to hold or interpolate; a longer gap cuts the episode
    missing_text: tuple[str, ...] = ()  # texts that stand for a missing number, such as "Bad" or "No Data"
    outside: str = REFUSE  # numbers outside a range: refuse, treat as missing, or keep
    alignment: str = "taken"
    time_unit: str | None = None  # unit of numeric times: s, ms, min, h, d or excel (serial days)
    time_format: str | None = None  # format of times as text, such as %d.%m.%Y %H:%M:%S; None: ISO 8601
    time_step: float | None = None  # seconds between two rows; default: the environment's
    params: Mapping[str, Any] = field(default_factory=dict)  # environment parameters, such as {"time_step": 10}
    separator: str | None = (
        None  # column separator of a CSV file: comma, semicolon or tab; None: detected in its headings
    )
    decimal: str = "."  # decimal point of numbers as text
    source: str = field(default="the mapping", compare=False)  # origin of the mapping, for messages

    def __post_init__(self) -> None:
        for name, choices in CHOICES.items():
            if getattr(self, name) not in choices:
                raise ValueError(f"{self.source}: {name} is one of {', '.join(choices)}, got {getattr(self, name)!r}")
        if self.separator is not None and (self.separator not in SEPARATORS or self.separator == self.decimal):
            raise ValueError(
                f"{self.source}: separator is a comma, a semicolon or a tab, and not decimal: got {self.separator!r}"
            )
        if self.time_unit is not None and self.time_unit not in TIME_UNITS:
            raise ValueError(
                f"{self.source}: time_unit is one of {', '.join(TIME_UNITS)}, got {_shown(self.time_unit)}"
            )
        if (self.missing in (HOLD, INTERPOLATE)) != (self.max_gap is not None):
            raise ValueError(
                f"{self.source}: missing={HOLD} and missing={INTERPOLATE} need max_gap, the seconds over which numbers"
                " are filled in, and nothing else does"
            )
        if self.outside == MISSING and self.missing == REFUSE:
            raise ValueError(f"{self.source}: outside={MISSING} needs missing={CUT}, {HOLD} or {INTERPOLATE}")
        if not isinstance(self.params, Mapping) or not all(isinstance(one, str) for one in self.params):
            raise ValueError(f"{self.source}: params must be an object of names and values, got {_shown(self.params)}")
        if not isinstance(self.missing_text, tuple) or not all(isinstance(one, str) for one in self.missing_text):
            raise ValueError(f"{self.source}: missing_text must be a list of texts, got {_shown(self.missing_text)}")
        for name in ("gap", "longest", "max_gap", "time_step"):
            value = getattr(self, name)
            if value is not None and not (_is_moderate(value) and value > 0):
                raise ValueError(f"{self.source}: {name} must be a number above 0, got {_shown(value)}")
        for name in ("time", "terminated", "environment", "episode", "time_format"):
            value = getattr(self, name)
            if not isinstance(value, str | None) or (name == "time" and not value):
                raise ValueError(f"{self.source}: {name} must be a text, got {_shown(value)}")
            _require_short(value or "", f"{self.source}: {name}")
        if self.reward is None:
            raise ValueError(
                f"{self.source} names no reward: say reward, a column, or a number for every step (0 where only"
                " imitation is to learn from the data)"
            )
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
        """Names of all mapped columns."""
        named = {one.column for one in (*self.observations, *self.actions, *self.costs)}
        others = (self.time, self.terminated, self.episode, self.reward)
        return named | {one for one in others if isinstance(one, str)}

    @property
    def notation(self) -> Notation:
        """Spelling of the table's numbers and times."""
        texts = frozenset(one.strip() for one in self.missing_text)
        return Notation(self.separator, self.decimal, texts, self.time_unit, self.time_format)

    @classmethod
    def read(cls, given: str | Path | Mapping[str, Any] | HistorianMapping) -> HistorianMapping:
        """Read a mapping from a JSON file or an equivalent dict."""
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
        if isinstance(known.get("missing_text"), list):
            known["missing_text"] = tuple(known["missing_text"])
        return cls(**{**known, "source": source})


def _require_short(text: str, place: str) -> None:
    if len(text) > LONGEST:
        raise ValueError(f"{place} has {len(text):,} letters; names and units have at most {LONGEST:,}")


def _is_moderate(value: Any) -> bool:
    """Return whether a value is a number within the range of float32; JSON has integers of any length."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST


def _shown(value: Any) -> str:
    """Format a value for a message; Python refuses to print integers of thousands of digits."""
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
