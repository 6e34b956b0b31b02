"""Chart elements as inline SVG. Horizontal coordinates are percentages of the chart's width."""

from __future__ import annotations

from velocirl.monitor.markup import Markup, percent, tag


def chart(label: str, height: float, *parts: str, class_: str = "chart") -> Markup:
    """Build the frame of a chart; screen readers read `label`."""
    return tag("svg", *parts, class_=class_, role="img", aria_label=label, width="100%", height=height)


def horizontal(x1: float, x2: float, y: float, class_: str) -> Markup:
    """Draw a horizontal line."""
    return tag("line", x1=percent(x1), x2=percent(x2), y1=y, y2=y, class_=class_)


def vertical(x: float, y1: float, y2: float, class_: str) -> Markup:
    """Draw a vertical line."""
    return tag("line", x1=percent(x), x2=percent(x), y1=y1, y2=y2, class_=class_)


def box(begin: float, end: float, y: float, height: float, class_: str, title: str = "") -> Markup:
    """Draw a rectangle between two x positions in any order, wide enough to be visible."""
    left, width = min(begin, end), max(abs(end - begin), 0.2)
    inner = (tag("title", title),) if title else ()
    return tag("rect", *inner, x=percent(left), y=y, width=percent(width), height=height, class_=class_)
