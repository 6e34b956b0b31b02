"""Section of recommendations."""

from __future__ import annotations

from collections.abc import Sequence

from velocirl.bench.regression import Change
from velocirl.bench.reports.recommendations import Recommendation, recommend
from velocirl.bench.results import Report
from velocirl.monitor.markup import Markup, pill, tag
from velocirl.monitor.pages.words import section

KINDS = {"act": "bad", "try": "fair", "know": "plain"}


def advice_section(report: Report, changes: Sequence[Change] = ()) -> Markup:
    """Build the list of recommendations with their measurements."""
    found = recommend(report, changes)
    if not found:
        return section("next", "What to do next", "Nothing stands out in these figures.")
    lead = "Derived from the figures of this run; behind each stands the measurement that it follows from."
    return section("next", "What to do next", lead, tag("ol", *map(_item, found), class_="advice"))


def _item(one: Recommendation) -> Markup:
    return tag(
        "li",
        pill(one.weight, KINDS[one.weight]),
        tag("div", tag("p", one.text), tag("p", one.measurement, class_="measurement")),
    )
