"""Tables in CSV and Parquet files."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Set
from io import BufferedReader
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from velocirl.buffers.data.columns import DatasetError
from velocirl.engine.disk.allowance import AllowanceError, claim_unpacked
from velocirl.engine.disk.files import open_plain
from velocirl.engine.naming import nearest

HEADING = re.compile(r"(?P<name>.*?)\s*\[(?P<unit>[^\[\]]*)\]\s*")
ENDINGS = (".csv", ".parquet")
LONGEST = 1000  # characters of a heading
MOST_COLUMNS = 10_000  # of a table, including columns that are not mapped
LONGEST_LINE = 2**24  # bytes of a line of headings
WIDTH = 16  # bytes of a value in a table and in the columns built from it, except text
SEPARATORS = (",", ";", "\t")
EXCEL = "excel"
TIME_UNITS = {"s": 1.0, "ms": 1e-3, "min": 60.0, "h": 3600.0, "d": 86400.0, EXCEL: 86400.0}  # seconds
FIRST_DAY = 25569  # 1970-01-01 in the serial days of Excel's 1900 system
SERIAL_DAYS = (29221.0, 62094.0)  # from 1980 to 2070
SERIAL_MILLISECONDS = (3e11, 3.2e12)  # since 1970: from 1979 to 2071


class Notation(NamedTuple):
    """Format of numbers and times in a table."""

    separator: str | None = None  # column separator of a CSV file; None: the most frequent one in its headings
    decimal: str = "."
    missing: frozenset[str] = frozenset()  # texts that stand for a missing number
    time_unit: str | None = None  # unit of numeric times
    time_format: str | None = None  # format of times as text; None: ISO 8601


class Table(NamedTuple):
    """Table: columns by name, with the units from their headings."""

    source: str
    frame: Any  # a pandas DataFrame
    headings: dict[str, tuple[str, str]]  # by name: the heading and the unit in it
    notation: Notation = Notation()

    def column(self, name: str) -> Any:
        """Return a column by its name, with or without its unit."""
        return self.frame[self.headings[name][0]]

    def unit(self, name: str) -> str:
        """Return the unit in a column's heading."""
        return self.headings[name][1]

    def require(self, name: str, what: str) -> None:
        """Raise unless the table has a column of that name."""
        if name not in self.headings:
            raise ValueError(f"{self.source} has no column {name!r} for {what}{nearest(name, list(self.headings))}")

    def numbers(self, name: str) -> NDArray[np.float64]:
        """Return a column's numbers, with NaN for missing ones."""
        column = self.column(name)
        if column.dtype.kind in "biuf":
            return column.to_numpy(np.float64)
        return np.array([self._number(value, name, row) for row, value in enumerate(column)], np.float64)

    def seconds(self, name: str) -> NDArray[np.float64]:
        """Return a column's times in seconds."""
        column, unit = self.column(name), self.notation.time_unit
        if column.dtype.kind in "iuf" or (unit is not None and column.dtype.kind != "M"):
            return self._counted(name, self.numbers(name), unit)
        pandas = _pandas()
        try:
            moments = pandas.to_datetime(column, utc=True, format=self.notation.time_format or "ISO8601")
        except (ValueError, TypeError, ArithmeticError) as error:
            why = str(error).split(". ")[0][:120]
            wanted = self.notation.time_format
            expected = f"not of time_format={wanted!r}" if wanted else "neither seconds nor ISO dates such as"
            expected += "" if wanted else " 2026-03-01 12:00:00; say time_format, such as %d.%m.%Y %H:%M:%S"
            raise ValueError(f"{self.source}: column {name!r} has times that are {expected} ({why})") from None
        return (moments - pandas.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(np.float64)

    def _counted(self, name: str, numbers: NDArray[np.float64], unit: str | None) -> NDArray[np.float64]:
        """Convert numeric times from the declared unit, by default seconds; raise if those are implausible."""
        if unit == EXCEL:
            return np.round((numbers - FIRST_DAY) * TIME_UNITS[EXCEL], 3)  # a day's fraction holds milliseconds
        if unit is None and len(numbers):
            low, high, usual = np.nanmin(numbers), np.nanmax(numbers), _usual_distance(numbers)
            place = f"{self.source}: column {name!r} has times such as {numbers[0]:.12g}, "
            if SERIAL_DAYS[0] <= low and high <= SERIAL_DAYS[1] and usual < 1.0:
                raise ValueError(place + "as Excel's serial days are: say time_unit=excel, or s if these are seconds")
            if SERIAL_MILLISECONDS[0] <= low and high <= SERIAL_MILLISECONDS[1]:
                raise ValueError(place + "as milliseconds since 1970 are: say time_unit=ms, or s if these are seconds")
        return numbers * TIME_UNITS[unit or "s"]

    def _number(self, value: Any, name: str, row: int) -> float:
        """Return a cell's number; NaN if it has none."""
        text = value.strip() if isinstance(value, str) else value
        if text is None or text != text or text in self.notation.missing or text == "":
            return np.nan
        try:
            if not isinstance(text, str) or self.notation.decimal == ".":
                return float(text)
            if "." not in text:  # with decimal commas, points group digits: 1.234 means 1234
                return float(text.replace(",", "."))
        except (ArithmeticError, TypeError, ValueError):
            pass
        raise ValueError(
            f"{self.source}: column {name!r} has {str(value)[:40]!r} in row {row}, and needs numbers"
            + self._advice(str(text))
        )

    def _advice(self, value: str) -> str:
        if self.notation.decimal == "." and re.fullmatch(r"[-+]?\d+,\d+", value):
            return ": say decimal=, if its commas are decimal points"
        if re.fullmatch(r"[-+]?[\d.,]+", value):
            return f": write numbers without groups of digits, with decimal={self.notation.decimal}"
        return ": name it in missing_text if it stands for a missing number"


def _usual_distance(numbers: NDArray[np.float64]) -> float:
    distances = np.diff(numbers)
    distances = distances[distances > 0]
    return float(np.median(distances)) if len(distances) else np.inf


def read_table(path: str | Path, wanted: Set[str], notation: Notation = Notation()) -> Table:  # noqa: B008 - immutable
    """Read the wanted columns of a file, named with or without their units."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{path} must end in {' or '.join(ENDINGS)}")
    _pandas()
    with open_plain(path) as file:
        try:
            read = _read_csv if ending == ".csv" else _read_parquet
            return read(file, str(path), wanted, notation)
        except ImportError:
            raise ValueError("Parquet needs pyarrow: pip install 'velocirl[data]'") from None
        except DatasetError:
            raise
        except Exception as error:  # noqa: BLE001 - pandas and pyarrow raise anything of damaged files
            why = " ".join(str(error).split())[:120]
            raise DatasetError(f"{path} is damaged, or no {path.suffix[1:].upper()} file ({why})") from None


def _read_csv(file: BufferedReader, source: str, wanted: Set[str], notation: Notation) -> Table:
    first = file.readline(LONGEST_LINE)
    separator = notation.separator or max(SEPARATORS, key=lambda one: first.count(one.encode()))
    _require_few(first.count(separator.encode()) + 1, source)
    file.seek(0)
    options: dict[str, Any] = {"sep": separator, "decimal": notation.decimal}
    headings = _headings(_pandas().read_csv(file, nrows=0, **options).columns, source)
    file.seek(0)
    chosen = {headings[name][0] for name in headings if name in wanted}
    frame = _pandas().read_csv(file, usecols=lambda heading: heading in chosen, **options)
    return Table(source, frame, headings, notation)


def _read_parquet(file: BufferedReader, source: str, wanted: Set[str], notation: Notation) -> Table:
    import pyarrow
    from pyarrow import parquet

    opened = parquet.ParquetFile(file)
    _require_few(opened.metadata.num_columns, source)
    headings = _headings(opened.schema_arrow.names, source)
    chosen = list(dict.fromkeys(headings[name][0] for name in headings if name in wanted))
    types = {name: _plain_type(opened.schema_arrow.field(name).type, f"{source}: column {name!r}") for name in chosen}
    size = os.fstat(file.fileno()).st_size
    _claim(_size_in_memory(opened.metadata, len(chosen)), size, source)
    # Texts stay dictionary-encoded until their expanded size has been checked.
    texts = [name for name, kind in types.items() if pyarrow.types.is_string(kind)]
    table = parquet.ParquetFile(file, read_dictionary=texts, page_checksum_verification=True).read(columns=chosen)
    for name in texts:
        _claim(sum(map(_size_of_texts, table.column(name).chunks)), size, f"{source}: column {name!r}")
    table = table.cast(pyarrow.schema([(name, types[name]) for name in table.column_names]))
    return Table(source, table.to_pandas(ignore_metadata=True), headings, notation)


def _plain_type(kind: Any, place: str) -> Any:
    """Return a column's value type; raise unless it holds numbers, times or text."""
    from pyarrow import string, types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return string()
    plain = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_temporal, types.is_null)
    if not any(fits(kind) for fits in plain):
        raise DatasetError(f"{place} is of the type {str(kind)[:40]}, and needs numbers, times or texts")
    return kind


def _size_in_memory(metadata: Any, columns: int) -> int:
    """Return the bytes that `columns` columns take in memory, from a Parquet file's metadata before unpacking.

    Only row group totals are read: pyarrow aborts the process if the metadata of a single column is damaged.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return sum(max(one.total_byte_size, 0) + WIDTH * columns * max(one.num_rows, 0) for one in groups)


def _size_of_texts(column: Any) -> int:
    """Return the bytes of a column's expanded texts, which are stored dictionary-encoded."""
    from pyarrow.compute import call_function

    if not hasattr(column, "dictionary"):
        return column.nbytes
    lengths = call_function("binary_length", [column.dictionary]).take(column.indices)
    return call_function("sum", [lengths]).as_py() or 0


def _require_few(columns: int, source: str) -> None:
    if columns > MOST_COLUMNS:
        raise DatasetError(f"{source} has {columns:,} columns, and at most {MOST_COLUMNS:,} are looked through")


def _claim(size: int, stored: int, what: str) -> None:
    try:
        claim_unpacked(size, stored, what)
    except (ValueError, AllowanceError) as error:
        raise DatasetError(str(error)) from None


def table_from(frame: Any, source: str, notation: Notation = Notation()) -> Table:  # noqa: B008 - immutable
    """Return a DataFrame as a table."""
    return Table(source, frame, _headings(frame.columns, source), notation)


def _headings(found: Iterable[Any], source: str) -> dict[str, tuple[str, str]]:
    """Map column names, with and without their units, to the heading and the unit in it."""
    headings: dict[str, tuple[str, str]] = {}
    for heading in map(str, found):
        if len(heading) > LONGEST:
            raise DatasetError(f"{source} has a heading of {len(heading):,} letters, {heading[:40]!r}...")
        matched = HEADING.fullmatch(heading)
        name, unit = (matched["name"], matched["unit"]) if matched else (heading, "")
        for key in dict.fromkeys((name, heading)):
            if key in headings:
                raise ValueError(f"{source} has two columns {key!r}: rename one of them")
            headings[key] = heading, unit
    return headings


def _pandas() -> Any:
    try:
        import pandas
    except ImportError:
        raise ValueError("tables of a historian need pandas: pip install 'velocirl[data]'") from None
    return pandas
