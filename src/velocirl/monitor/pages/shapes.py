"""What charts are put together from, as inline SVG. Widths are shares of the place that a chart gets."""

from __future__ import annotations

from velocirl.monitor.markup import Markup, percent, tag


def chart(label: str, height: float, *parts: str, class_: str = "chart") -> Markup:
    """The frame of a chart; `label` is read to those who do not see it."""
    return tag("svg", *parts, class_=class_, role="img", aria_label=label, width="100%", height=height)


def horizontal(x1: float, x2: float, y: float, class_: str) -> Markup:
    """A line from left to right."""
    return tag("line", x1=percent(x1), x2=percent(x2), y1=y, y2=y, class_=class_)


def vertical(x: float, y1: float, y2: float, class_: str) -> Markup:
    """A line from top to bottom."""
    return tag("line", x1=percent(x), x2=percent(x), y1=y1, y2=y2, class_=class_)


def box(begin: float, end: float, y: float, height: float, class_: str, title: str = "") -> Markup:
    """A rectangle between two places, whichever is first; never so narrow that it is not seen."""
    left, width = min(begin, end), max(abs(end - begin), 0.2)
    inner = (tag("title", title),) if title else ()
    return tag("rect", *inner, x=percent(left), y=y, width=percent(width), height=height, class_=class_)
