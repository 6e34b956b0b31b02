"""The tree of the training loop: seconds and shares of its phases, and what is left of the time for Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from velocirl.bench.units import SECONDS
from velocirl.monitor.phases import is_top, tree_lines

PYTHON = "Python and callbacks"  # what is left of the time
UNTOLD = "not told apart"  # all of it, where there are no phases
REST = "rest"  # what is left of a phase, beside its parts
LEAST_REST = 0.005  # of the time, below which a rest is not told
BAR = 24  # characters
FULL, PARTS = "█", " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Node:
    """One line of the tree."""

    path: str  # "rollout/policy"
    name: str
    depth: int
    seconds: float
    share: float  # of all the time
    seconds_per_step: float
    last: bool  # among those below the same parent


def build_tree(phases: Mapping[str, float], seconds: float, steps: int) -> list[Node]:
    """The phases, parents before their parts, and what is left of `seconds` as Python and callbacks.

    Where phases run at the same time and add up to more than the time, nothing is left.
    """
    total = seconds if seconds > 0 else _spent(phases)
    ordered = _ordered(phases)
    nodes: list[Node] = []

    def add(path: str, name: str, depth: int, spent: float, last: bool) -> None:
        share, each = (spent / total if total > 0 else 0.0), (spent / steps if steps else 0.0)
        nodes.append(Node(path, name, depth, spent, share, each, last))

    def add_below(parent: str, depth: int, whole: float) -> None:
        paths = [path for path in ordered if path.rpartition("/")[0] == parent]
        rest = whole - sum(phases[path] for path in paths)
        told = depth == 0 or (bool(paths) and rest >= LEAST_REST * total)
        for path in paths:
            last = path == paths[-1] and not told
            add(path, path.rpartition("/")[2], depth, phases[path], last)
            add_below(path, depth + 1, phases[path])
        if told:
            name = REST if depth else PYTHON if phases else UNTOLD
            add(f"{parent}/{name}" if parent else name, name, depth, max(rest, 0.0), last=True)

    add_below("", 0, total)
    return nodes


def overlap(phases: Mapping[str, float], seconds: float) -> float:
    """How much time the phases took beyond the clock's, as a share of it: above 0 where they run at the same time."""
    return max(_spent(phases) / seconds - 1.0, 0.0) if seconds > 0 else 0.0


def tree_text(nodes: Sequence[Node], *, ascii_only: bool = False) -> list[str]:
    """The tree as lines: names, bars, shares, seconds and time per step."""
    names = [_branches(nodes, i, ascii_only=ascii_only) + node.name for i, node in enumerate(nodes)]
    width = max(map(len, names), default=0)
    return [
        f"{name:<{width}}  {bar(node.share, ascii_only=ascii_only)}  {node.share:>6.1%}"
        f"  {SECONDS.say(node.seconds):>8}  {_say_step(node.seconds_per_step):>8}/step"
        for name, node in zip(names, nodes, strict=True)
    ]


def bar(share: float, width: int = BAR, *, ascii_only: bool = False) -> str:
    """A share as a bar, filled up with blanks."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if ascii_only:
        return ("#" * round(eighths / 8)).ljust(width)
    return (FULL * (eighths // 8) + PARTS[eighths % 8].strip()).ljust(width)


def _spent(phases: Mapping[str, float]) -> float:
    return sum(spent for path, spent in phases.items() if is_top(path))


def _ordered(phases: Mapping[str, float]) -> list[str]:
    """The paths as they follow each other in training."""
    paths: list[str] = []
    above: list[str] = []
    for depth, name, _, _ in tree_lines(phases):
        above[depth:] = [name]
        paths.append("/".join(above))
    return paths


def _say_step(seconds: float) -> str:
    """The time of a step, which on a GPU is less than a nanosecond."""
    return f"{seconds * 1e9:.2f} ns" if 0 < seconds < 1e-9 else SECONDS.say(seconds)


def _branches(nodes: Sequence[Node], index: int, *, ascii_only: bool) -> str:
    """The lines that lead to a node from those above it."""
    node = nodes[index]
    tee, corner, wall = ("|- ", "`- ", "|  ") if ascii_only else ("├─ ", "└─ ", "│  ")
    text = corner if node.last else tee
    depth = node.depth
    for before in reversed(nodes[:index]):
        if before.depth == depth - 1:
            text = ("   " if before.last else wall) + text
            depth -= 1
    return text
