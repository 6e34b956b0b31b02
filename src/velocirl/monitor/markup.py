"""HTML built from parts: all text except `Markup` is escaped, so displayed values cannot become code."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

# Invalid in HTML or harmful: control characters, lone surrogates, and characters that reverse the text direction.
UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")

WITHOUT_END = ("input",)


class Markup(str):
    """Text that is already HTML."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Escape untrusted text as HTML."""
    return text if isinstance(text, Markup) else Markup(html.escape(UNWANTED.sub("\ufffd", text)))


def joined(*parts: str) -> Markup:
    """Join parts, escaping those that are not `Markup`."""
    return Markup("".join(map(escaped, parts)))


def tag(name: str, *children: str, **attributes: str | float | bool | None) -> Markup:
    """Build an element; `class_` is its class, `text_anchor` its text-anchor. None and False are omitted."""
    given = []
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        spelt = key.rstrip("_").replace("_", "-")
        text = number(value) if isinstance(value, float) else str(value)
        given.append(f" {spelt}" if value is True else f' {spelt}="{escaped(text)}"')
    ending = "" if name in WITHOUT_END else f"</{name}>"
    return Markup(f"<{name}{''.join(given)}>{joined(*children)}{ending}")


def number(value: float) -> str:
    """Format a coordinate without trailing zeros."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def percent(value: float) -> str:
    """Format a coordinate as a percentage."""
    return f"{number(value)}%"


def table(headings: list[str], rows: list[list[str]], *, numeric: set[int] | None = None, class_: str = "") -> Markup:
    """Build a table; `numeric` columns are right-aligned. Cells carry their heading for display as a list."""
    right = numeric or set()

    def cell(kind: str, at: int, content: str) -> Markup:
        heading = headings[at] if kind == "td" and at and headings[at] else None
        return tag(kind, content, class_="number" if at in right else None, data_heading=heading)

    def row(kind: str, cells: list[str]) -> Markup:
        return tag("tr", *(cell(kind, at, content) for at, content in enumerate(cells)))

    head, body = tag("thead", row("th", headings)), tag("tbody", *(row("td", cells) for cells in rows))
    return tag("div", tag("table", head, body, class_=class_ or None), class_="scroll")


def facts_table(title: str, facts: Mapping[str, str]) -> str:
    """Format facts by name as a small HTML table, as a notebook displays an object."""
    plain, left = "border: 0; background: none", "text-align: left; padding: 0 1.2em 0 0"
    rows = [
        tag("tr", tag("td", name, style=f"{plain}; {left}; opacity: .7"), tag("td", fact, style=f"{plain}; {left}"))
        for name, fact in facts.items()
    ]
    shown = tag("table", tag("tbody", *rows), style=f"{plain}; margin: .2em 0")
    return str(tag("div", tag("b", title), shown))


def pill(text: str, kind: str) -> Markup:
    """Build a word in a colored box; `kind` is good, fair, bad or plain."""
    return tag("span", text, class_=f"pill {kind}")
