"""Parser of calls written as text, `adamw(weight_decay=0.01)`, `cnn(16, 32) mlp(64)`; nothing is evaluated."""

from __future__ import annotations

import re
from typing import NamedTuple

_CALL = re.compile(r"\s*([A-Za-z_]\w*)\s*(?:\(([^()]*)\))?\s*")


class Call(NamedTuple):
    """One `name(argument, keyword=argument)`; its arguments are still text, and positional ones have no keyword."""

    name: str
    arguments: tuple[tuple[str | None, str], ...]


def parse(text: str, what: str, advice: str = "a name or name(argument=value, ...)") -> list[Call]:
    """Parse the calls in a text, from left to right; `what` they describe and `advice` appear in error messages."""
    calls: list[Call] = []
    position = 0
    while position < len(text) or not calls:
        found = _CALL.match(text, position)
        if found is None:
            where = f" at {text[position:]!r}" if position else ""
            raise ValueError(f"cannot read the {what} {text!r}{where}: write {advice}")
        position = found.end()
        calls.append(Call(found[1].lower(), _arguments(found[1], found[2] or "")))
    return calls


def _arguments(name: str, text: str) -> tuple[tuple[str | None, str], ...]:
    arguments: list[tuple[str | None, str]] = []
    for part in text.split(",") if text.strip() else ():
        keyword, equals, value = (piece.strip() for piece in part.rpartition("="))
        if not value or (equals and not keyword.isidentifier()):
            raise ValueError(f"cannot read the argument {part.strip()!r} of {name}({text}): write argument=value")
        if not equals and arguments and arguments[-1][0] is not None:
            raise ValueError(f"{name}({text}): {value!r} follows a named argument and needs a name too")
        arguments.append((keyword if equals else None, value))
    return tuple(arguments)
