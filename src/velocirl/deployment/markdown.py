"""Markdown in which whatever comes from an environment or a file is text, and never markup."""

from __future__ import annotations

from collections.abc import Sequence

SPECIAL = r"\`*_[]<>|#"


def plain(text: object) -> str:
    """Any text on one line, as it is to be read."""
    line = " ".join(str(text).split())
    return "".join(f"\\{letter}" if letter in SPECIAL else letter for letter in line if letter.isprintable())


def table(headings: Sequence[object], rows: Sequence[Sequence[object]], words: int = 1) -> str:
    """A table; after so many columns of words come those of numbers, aligned to the right."""
    marks = [*["---"] * words, *["---:"] * (len(headings) - words)]
    return "\n".join(f"| {' | '.join(row)} |" for row in [[plain(cell) for cell in headings], marks, *_cells(rows)])


def facts(rows: Sequence[tuple[object, object]]) -> str:
    """A table of names and what is said of them."""
    return "\n".join(["| | |", "|---|---|", *(f"| {name} | {value} |" for name, value in _cells(rows))])


def _cells(rows: Sequence[Sequence[object]]) -> list[list[str]]:
    return [[plain(cell) for cell in row] for row in rows]
