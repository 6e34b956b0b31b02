"""Tables in files: CSV, and Parquet."""

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
LONGEST = 1000  # letters of a heading
MOST_COLUMNS = 10_000  # of a table, mapped or not
LONGEST_LINE = 2**24  # bytes of a line of headings
WIDTH = 16  # bytes of a value in a table and in the columns made of it, where it is no text


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
        except (ValueError, TypeError, ArithmeticError) as error:
            why = str(error).split(". ")[0][:120]
            raise ValueError(
                f"{self.source}: column {name!r} has times that are neither seconds nor ISO dates such as"
                f" 2026-03-01 12:00:00 ({why})"
            ) from None
        return (moments - pandas.Timestamp(0, tz="UTC")).dt.total_seconds().to_numpy(np.float64)


def read_table(path: str | Path, wanted: Set[str]) -> Table:
    """The columns of a file that are wanted by their names, with their units or without; others stay unread."""
    path = Path(path)
    ending = path.suffix.lower()
    if ending not in ENDINGS:
        raise ValueError(f"{path} must end in {' or '.join(ENDINGS)}")
    _pandas()
    with open_plain(path) as file:
        try:
            read = _read_csv if ending == ".csv" else _read_parquet
            return read(file, str(path), wanted)
        except ImportError:
            raise ValueError("Parquet needs pyarrow: pip install 'velocirl[data]'") from None
        except DatasetError:
            raise
        except Exception as error:  # noqa: BLE001 - pandas and pyarrow raise anything of damaged files
            why = " ".join(str(error).split())[:120]
            raise DatasetError(f"{path} is damaged, or no {path.suffix[1:].upper()} file ({why})") from None


def _read_csv(file: BufferedReader, source: str, wanted: Set[str]) -> Table:
    _require_few(file.readline(LONGEST_LINE).count(b",") + 1, source)
    file.seek(0)
    headings = _headings(_pandas().read_csv(file, nrows=0).columns, source)
    file.seek(0)
    chosen = {headings[name][0] for name in headings if name in wanted}
    frame = _pandas().read_csv(file, usecols=lambda heading: heading in chosen)
    return Table(source, frame, headings)


def _read_parquet(file: BufferedReader, source: str, wanted: Set[str]) -> Table:
    import pyarrow
    from pyarrow import parquet

    opened = parquet.ParquetFile(file)
    _require_few(opened.metadata.num_columns, source)
    headings = _headings(opened.schema_arrow.names, source)
    chosen = list(dict.fromkeys(headings[name][0] for name in headings if name in wanted))
    types = {name: _plain_type(opened.schema_arrow.field(name).type, f"{source}: column {name!r}") for name in chosen}
    size = os.fstat(file.fileno()).st_size
    _claim(_size_in_memory(opened.metadata, len(chosen)), size, source)
    # Texts stay as they are stored, each of them once, until it is known how much room they take one by one.
    texts = [name for name, kind in types.items() if pyarrow.types.is_string(kind)]
    table = parquet.ParquetFile(file, read_dictionary=texts, page_checksum_verification=True).read(columns=chosen)
    for name in texts:
        _claim(sum(map(_size_of_texts, table.column(name).chunks)), size, f"{source}: column {name!r}")
    table = table.cast(pyarrow.schema([(name, types[name]) for name in table.column_names]))
    return Table(source, table.to_pandas(ignore_metadata=True), headings)


def _plain_type(kind: Any, place: str) -> Any:
    """The type of the values of a column, if those are numbers, times or texts."""
    from pyarrow import string, types

    kind = kind.value_type if types.is_dictionary(kind) else kind
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return string()
    plain = (types.is_integer, types.is_floating, types.is_decimal, types.is_boolean, types.is_temporal, types.is_null)
    if not any(fits(kind) for fits in plain):
        raise DatasetError(f"{place} is of the type {str(kind)[:40]}, and needs numbers, times or texts")
    return kind


def _size_in_memory(metadata: Any, columns: int) -> int:
    """Bytes that so many columns take, by what a file of Parquet says of itself before anything is unpacked.

    What it says of each column by itself is not asked for: where that is damaged, pyarrow ends the process.
    """
    groups = [metadata.row_group(number) for number in range(metadata.num_row_groups)]
    return sum(max(one.total_byte_size, 0) + WIDTH * columns * max(one.num_rows, 0) for one in groups)


def _size_of_texts(column: Any) -> int:
    """Bytes that the texts of a column take one by one; they are stored as numbers of different ones."""
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


def table_from(frame: Any, source: str) -> Table:
    """The table of a DataFrame."""
    return Table(source, frame, _headings(frame.columns, source))


def _headings(found: Iterable[Any], source: str) -> dict[str, tuple[str, str]]:
    """By the names of columns, with their units and without: the heading, and the unit in it."""
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


def _is_number(value: Any) -> bool:
    try:
        float(value)
    except (ArithmeticError, TypeError, ValueError):
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
