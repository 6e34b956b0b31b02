"""HTML put together from parts: text is escaped unless it was made here, so nothing that is shown becomes code."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping

# Neither allowed in HTML nor of use to anybody: control characters, halves of pairs, and what reverses a text's order.
UNWANTED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\u202a-\u202e\u2066-\u2069\ufffe\uffff]")

WITHOUT_END = ("input",)


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def escaped(text: str) -> Markup:
    """Text of anybody's as HTML that shows it."""
    return text if isinstance(text, Markup) else Markup(html.escape(UNWANTED.sub("\ufffd", text)))


def joined(*parts: str) -> Markup:
    """Parts one after the other, those that are not HTML escaped."""
    return Markup("".join(map(escaped, parts)))


def tag(name: str, *children: str, **attributes: str | float | bool | None) -> Markup:
    """An element; `class_` is its class, `text_anchor` its text-anchor, and what is None or False is left out."""
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
    """A coordinate, no longer than it need be."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def percent(value: float) -> str:
    """A coordinate as a share of the whole."""
    return f"{number(value)}%"


def table(headings: list[str], rows: list[list[str]], *, numeric: set[int] | None = None, class_: str = "") -> Markup:
    """A table; `numeric` columns stand right. On a narrow screen rows become lists: so cells know their heading."""
    right = numeric or set()

    def cell(kind: str, at: int, content: str) -> Markup:
        heading = headings[at] if kind == "td" and at and headings[at] else None
        return tag(kind, content, class_="number" if at in right else None, data_heading=heading)

    def row(kind: str, cells: list[str]) -> Markup:
        return tag("tr", *(cell(kind, at, content) for at, content in enumerate(cells)))

    head, body = tag("thead", row("th", headings)), tag("tbody", *(row("td", cells) for cells in rows))
    return tag("div", tag("table", head, body, class_=class_ or None), class_="scroll")


def facts_table(title: str, facts: Mapping[str, str]) -> str:
    """Show facts by name as a small table, as a notebook displays an object."""
    plain, left = "border: 0; background: none", "text-align: left; padding: 0 1.2em 0 0"
    rows = [
        tag("tr", tag("td", name, style=f"{plain}; {left}; opacity: .7"), tag("td", fact, style=f"{plain}; {left}"))
        for name, fact in facts.items()
    ]
    shown = tag("table", tag("tbody", *rows), style=f"{plain}; margin: .2em 0")
    return str(tag("div", tag("b", title), shown))


def pill(text: str, kind: str) -> Markup:
    """A word in a coloured field: kinds are good, fair, bad and plain."""
    return tag("span", text, class_=f"pill {kind}")
