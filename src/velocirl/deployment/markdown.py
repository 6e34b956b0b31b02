"""Markdown output; text from an environment or a file is escaped, never markup."""

from __future__ import annotations

from collections.abc import Sequence

SPECIAL = r"\`*_[]<>|#"


def plain(text: object) -> str:
    """Escape any text and put it on one line."""
    line = " ".join(str(text).split())
    return "".join(f"\\{letter}" if letter in SPECIAL else letter for letter in line if letter.isprintable())


def table(headings: Sequence[object], rows: Sequence[Sequence[object]], words: int = 1) -> str:
    """Return a table; after the first `words` columns, the others are numbers, aligned to the right."""
    marks = [*["---"] * words, *["---:"] * (len(headings) - words)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [[plain(cell) for cell in headings], marks, *_cells(rows)])


def facts(rows: Sequence[tuple[object, object]]) -> str:
    """Return a table of names and values."""
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in _cells(rows))])


def _cells(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    return [[plain(cell) for cell in row] for row in rows]
