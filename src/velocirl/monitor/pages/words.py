"""How texts are put on a page."""

from __future__ import annotations

from velocirl.monitor.markup import Markup, joined, tag


def section(name: str, title: str, lead: str, *parts: str) -> Markup:
    """A part of the page that the navigation knows."""
    told = tag("p", lead, class_="lead") if lead else ""
    return tag("section", tag("h2", title), told, *parts, id=name)


def with_code(text: str) -> Markup:
    """A text in which what stands between backquotes is code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:  # one is open
        return joined(text)
    return joined(*(tag("code", part) if place % 2 else part for place, part in enumerate(parts)))
