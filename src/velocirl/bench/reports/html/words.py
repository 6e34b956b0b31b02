"""Formatting of values and CSS classes for the page."""

from __future__ import annotations

from velocirl.bench.reports.roofline import share_in
from velocirl.bench.results import MET, MISSED, UNDECIDED, Measured, Report, Result
from velocirl.bench.units import Unit
from velocirl.monitor.markup import Markup, joined, tag

VERDICTS = {MET: "good", MISSED: "bad", UNDECIDED: "fair"}
BOUNDS = {"arithmetic": "of peak arithmetic", "memory": "of peak bandwidth"}


def figure_row(name: str, value: str, note: str, drawing: str) -> Markup:
    """Build a row: name and value above a drawing of the same width."""
    words = joined(tag("span", name, class_="name"), tag("span", tag("b", value), *_note(note), class_="value"))
    return tag("div", tag("div", words, class_="words"), drawing, class_="figure-row")


def share_note(report: Report, result: Result, one: Measured) -> str:
    """Format the fraction of the machine's limit that was reached; empty if unknown."""
    share = share_in(result, one, report.peaks)
    return "" if share is None else f"{share.of_peak:.0%} {BOUNDS[share.bound]}"


def plain(unit: Unit, value: float) -> str:
    """Format a value for an axis, without the unit if it is a rate: 35.6M rather than 35.6M steps/s."""
    said = unit.say(value)
    return said.removesuffix(f" {unit.name}") if unit.name.endswith("/s") else said


def _note(note: str) -> list[Markup]:
    return [tag("small", f" {note}")] if note else []
