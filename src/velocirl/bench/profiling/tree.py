"""Tree of the training loop: seconds and shares of its phases; the remaining time is Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from velocirl.bench.units import SECONDS
from velocirl.monitor.phases import is_top, tree_lines

PYTHON = "Python and callbacks"  # remainder of the total time
UNTOLD = "not told apart"  # the total time, without phases
REST = "rest"  # remainder of a phase after its parts
LEAST_REST = 0.005  # of the total time; smaller remainders are omitted
BAR = 24  # characters
FULL, PARTS = "█", " ▏▎▍▌▋▊▉"


@dataclass(frozen=True)
class Node:
    """One line of the tree."""

    path: str  # "rollout/policy"
    name: str
    depth: int
    seconds: float
    share: float  # of the total time
    seconds_per_step: float
    last: bool  # among the children of its parent


def build_tree(phases: Mapping[str, float], seconds: float, steps: int) -> list[Node]:
    """Build the tree: phases, parents before their parts, and the remainder of `seconds` as Python and callbacks.

    If phases overlap and add up to more than `seconds`, the remainder is 0.
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
    """Return the phases' time beyond the wall time, as a fraction of it: above 0 if phases run concurrently."""
    return max(_spent(phases) / seconds - 1.0, 0.0) if seconds > 0 else 0.0


def tree_text(nodes: Sequence[Node], *, ascii_only: bool = False) -> list[str]:
    """Format the tree as lines: names, bars, shares, seconds and time per step."""
    names = [_branches(nodes, i, ascii_only=ascii_only) + node.name for i, node in enumerate(nodes)]
    width = max(map(len, names), default=0)
    return [
        f"{name:<{width}}  {bar(node.share, ascii_only=ascii_only)}  {node.share:>6.1%}"
        f"  {SECONDS.say(node.seconds):>8}  {_say_step(node.seconds_per_step):>8}/step"
        for name, node in zip(names, nodes, strict=True)
    ]


def bar(share: float, width: int = BAR, *, ascii_only: bool = False) -> str:
    """Format a share as a bar, padded with blanks."""
    eighths = round(min(max(share, 0.0), 1.0) * width * 8)
    if ascii_only:
        return ("#" * round(eighths / 8)).ljust(width)
    return (FULL * (eighths // 8) + PARTS[eighths % 8].strip()).ljust(width)


def _spent(phases: Mapping[str, float]) -> float:
    return sum(spent for path, spent in phases.items() if is_top(path))


def _ordered(phases: Mapping[str, float]) -> list[str]:
    """Return the paths in the order of training."""
    paths: list[str] = []
    above: list[str] = []
    for depth, name, _, _ in tree_lines(phases):
        above[depth:] = [name]
        paths.append("/".join(above))
    return paths


def _say_step(seconds: float) -> str:
    """Format the time of a step; on a GPU it may be below 1 ns."""
    return f"{seconds * 1e9:.2f} ns" if 0 < seconds < 1e-9 else SECONDS.say(seconds)


def _branches(nodes: Sequence[Node], index: int, *, ascii_only: bool) -> str:
    """Return the tree lines that connect a node to the nodes above it."""
    node = nodes[index]
    tee, corner, wall = ("|- ", "`- ", "|  ") if ascii_only else ("├─ ", "└─ ", "│  ")
    text = corner if node.last else tee
    depth = node.depth
    for before in reversed(nodes[:index]):
        if before.depth == depth - 1:
            text = ("   " if before.last else wall) + text
            depth -= 1
    return text
