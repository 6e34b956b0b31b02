"""Suggestions for unknown names."""

import difflib
import re
from collections.abc import Iterable

ALIKE = 0.6  # minimum similarity of a typo to its correction
MOST_COMPARED, MOST_LETTERS, MOST_LISTED = 1000, 100, 100  # a file from elsewhere may have any number of names


def nearest(name: str, known: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest known name, or all of them."""
    names = list(known)
    lower = {one.lower(): one for one in reversed(names[:MOST_COMPARED])}  # of two that differ in case, the first
    near = difflib.get_close_matches(name[:MOST_LETTERS].lower(), lower, n=1, cutoff=ALIKE)
    if near:
        return f": did you mean {lower[near[0]]!r}?"
    if len(names) > MOST_LISTED:
        return f"; there are {len(names):,}, such as {', '.join(names[:3])}"
    return f"; there are {', '.join(names)}" if names else "; it has none"


def plain_name(name: str, known: Iterable[str]) -> str:
    """Return the known name that equals `name` except for case, underscores and hyphens; else `name` itself."""
    spelled = {_letters(one): one for one in known}
    return spelled.get(_letters(name), name)


def nearest_id(name: str, known: Iterable[str]) -> str | None:
    """Return the id with the most similar name, ignoring version and case; among versions, the newest."""
    newest: dict[str, tuple[int, str]] = {}
    for one in known:
        stem, version = _split(one)
        newest[stem] = max(newest.get(stem, (-1, "")), (version, one))
    near = difflib.get_close_matches(_split(name)[0], newest, n=1, cutoff=ALIKE)
    return newest[near[0]][1] if near else None


def _letters(name: str) -> str:
    return name.lower().replace("_", "").replace("-", "")


def _split(name: str) -> tuple[str, int]:
    """Split `CartPole-v1` into cartpole and 1."""
    version = re.search(r"-v(\d+)$", name)
    return (name[: version.start()].lower(), int(version[1])) if version else (name.lower(), -1)
