"""Tables in files: CSV, and Parquet."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.engine.disk.files import open_plain
from velocirl.engine.naming import nearest

HEADING = re.compile(r"(?P<name>.*?)\s*\[(?P<unit>[^\[\]]*)\]\s*")
ENDINGS = (".csv", ".parquet")


class Table(NamedTuple):
    """Columns under their names, and the units that their headings have."""

    source: str
    frame: Any  # a pandas DataFrame
    headings: dict[str, tuple[str, str]]  # by name: the heading, and the unit in it

    def column(self, name: str) -> Any:
        """A column by its name, with its unit or without."""
        return self.frame[self.headings[name][0]]

    def unit(self, name: str) -> str:
        """The unit that the heading of a column has."""
        return self.headings[name][1]

    def require(self, name: str, what: str) -> None:
        """Refuse a name that is no column."""
        if name not in self.headings:
            raise ValueError(f"{self.source} has no column {name!r} for {what}{nearest(name, list(self.headings))}")

    def numbers(self, name: str) -> NDArray[np.float64]:
        """The numbers of a column; NaN where one is missing."""
        column = self.column(name)
        if column.dtype.kind in "biuf":
            return column.to_numpy(np.float64)
        for row, value in enumerate(column):
            if value is not None and value == value and not _is_number(value):
                raise ValueError(
                    f"{self.source}: column {name!r} has {str(value)[:40]!r} in row {row}, and needs numbers"
                )
        return np.array([_number(value) for value in column], np.float64)

    def seconds(self, name: str) -> NDArray[np.float64]:
        """Times as seconds."""
        column = self.column(name)
        if column.dtype.kind in "iuf":
            return column.to_numpy(np.float64)
        pandas = _pandas()
        try:
            moments = pandas.to_datetime(column, utc=True, format="ISO8601")
        except (ValueError, TypeError) as error:
            why = str(error).split(". ")[0][:120]
            raise ValueError(
                f"{self.source}: column {name!r} has times that are neither seconds nor ISO dates such as"
                f" 2026-03-01 12:00:00 ({why})"
            ) from None
        return (moments - pandas.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(np.float64)


def read_table(path: str | Path) -> Table:
    """The table of a file, as its ending says."""
    path = Path(path)
    if path.suffix.lower() not in ENDINGS:
        raise ValueError(f"{path} must end in {' or '.join(ENDINGS)}")
    with open_plain(path):  # a pipe would wait for ever
        pass
    pandas = _pandas()
    try:
        frame = pandas.read_csv(path) if path.suffix.lower() == ".csv" else pandas.read_parquet(path, engine="pyarrow")
    except ImportError:
        raise ValueError("Parquet needs pyarrow: pip install 'velocirl[data]'") from None
    except (ValueError, OSError) as error:  # pandas' and pyarrow's own are among these
        raise ValueError(f"{path} is damaged, or no {path.suffix[1:].upper()} file ({str(error)[:120]})") from None
    return table_from(frame, str(path))


def table_from(frame: Any, source: str) -> Table:
    """The table of a DataFrame."""
    headings: dict[str, tuple[str, str]] = {}
    for heading in map(str, frame.columns):
        found = HEADING.fullmatch(heading)
        name, unit = (found["name"], found["unit"]) if found else (heading, "")
        for key in dict.fromkeys((name, heading)):
            if key in headings:
                raise ValueError(f"{source} has two columns {key!r}: rename one of them")
            headings[key] = heading, unit
    return Table(source, frame, headings)


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (TypeError, ValueError):
        return str(value).strip() == ""
    return True


def _number(value: Any) -> float:
    return np.nan if value is None or not str(value).strip() else float(value)


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ValueError("tables of a historian need pandas: pip install 'velocirl[data]'") from None
    return pandas
