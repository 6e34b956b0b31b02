"""Sections and inline code of a page."""

from __future__ import annotations

from velocirl.monitor.markup import Markup, joined, tag


def section(name: str, title: str, lead: str, *parts: str) -> Markup:
    """Build a section of the page that the navigation can link to."""
    told = tag("p", lead, class_="lead") if lead else ""
    return tag("section", tag("h2", title), told, *parts, id=name)


def with_code(text: str) -> Markup:
    """Format a text in which backquotes mark code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # an unmatched backquote
        return joined(text)
    return joined(*(tag("code", part) if place % 2 else part for place, part in enumerate(parts)))
