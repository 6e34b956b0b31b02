"""Compact formatting of metrics for terminals."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from math import ceil, floor, log10

from velocirl.monitor.phases import tree_lines
from velocirl.monitor.resource_use import NOTABLE_LOAD, ResourceUse
from velocirl.runs.intervals import exact_share

UNITS = ((1e9, "B"), (1e6, "M"), (1e3, "k"))
BYTES = ((10**12, "TB"), (10**9, "GB"), (10**6, "MB"), (10**3, "kB"))
GAP = "   "  # between two items of a line
LEAST_SHARE = 0.005  # smallest fraction of the time of a part that is listed
# Suffixes of a gauge's name that state its unit.
SECONDS, BYTES_END, SHARE, RATE = "seconds", "bytes", "share", "per second"


def say_count(value: float) -> str:
    """Format a number compactly: 950, 12.3k, 1.2M."""
    for unit, letter in UNITS:
        if abs(value) >= 0.9995 * unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def plural(count: int, word: str) -> str:
    """Format a count with its noun: "1 run", "1,200 runs", "2 copies"."""
    ending = word if count == 1 else f"{word[:-1]}ies" if word.endswith("y") else f"{word}s"
    return f"{count:,} {ending}"


def averaged(episodes: int) -> str:
    """Format the number of episodes behind a mean."""
    return "of one episode" if episodes == 1 else f"the mean of {episodes} episodes"


def say_figure(value: float) -> str:
    """Format a metric compactly: 475.2, -0.0031, 1.0e-05."""
    size = abs(value)
    if size == 0.0 or not math.isfinite(value):
        return f"{value:g}"
    if size >= 1e6:
        return say_count(value)
    return f"{value:,.1f}" if size >= 10 else f"{value:.3f}" if size >= 0.01 else f"{value:.1e}"


def say_seconds(seconds: float) -> str:
    """Format a duration compactly: 0.8 s, 42 s, 3:05, 1:02:03."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def say_bytes(count: float) -> str:
    """Format an amount of memory compactly: 512 B, 350 MB, 1.25 GB."""
    for unit, letters in BYTES:
        if count >= 0.9995 * unit:
            return f"{count / unit:.3g} {letters}"
    return f"{count:.0f} B"


def say_resources(resources: ResourceUse) -> list[str]:
    """Format resource use: CPU 180%, memory 350 MB."""
    said = [f"CPU {resources.cpu_percent:.0f}%", f"memory {say_bytes(resources.memory_bytes)}"]
    if resources.gpu_percent is not None:
        said.append(f"GPU {resources.gpu_percent:.0f}%")
    if resources.gpu_memory_bytes is not None:
        said.append(f"GPU memory {say_bytes(resources.gpu_memory_bytes)}")
    others = say_others(resources)
    return said if others is None else [*said, others]


def say_others(resources: ResourceUse) -> str | None:
    """Format the load of other programs: other programs 1.0 cores; None if it is not notable."""
    others = resources.other_cores or 0.0
    return f"other programs {others:.1f} cores" if others >= NOTABLE_LOAD else None


def say_gauge(name: str, value: float) -> str:
    """Format a gauge: queue/length as queue length 1, waiting_seconds as waiting 2.5 s."""
    words = printable(name).replace("/", " ").replace("_", " ")
    if words.endswith(SECONDS):
        return f"{words.removesuffix(SECONDS).rstrip()} {say_seconds(max(value, 0.0))}".lstrip()
    if words.endswith(BYTES_END):
        return f"{words.removesuffix(BYTES_END).rstrip()} {say_bytes(value)}".lstrip()
    if words.endswith(SHARE):
        return f"{words.removesuffix(SHARE).rstrip()} {value:.0%}".lstrip()
    if words.endswith(RATE):
        return f"{words.removesuffix(RATE).rstrip()} {say_count(value)}/s".lstrip()
    return f"{words} {say_count(value)}"


def say_phases(shares: Mapping[str, float]) -> list[str]:
    """Format the phases' fractions of the time, each with its notable parts in parentheses."""
    said: list[str] = []
    parts: list[list[str]] = []
    for depth, name, share, _ in tree_lines(shares):
        text = f"{printable(name)} {share:.0%}"
        if depth == 0 or not said:
            said.append(text)
            parts.append([])
        elif depth == 1 and share >= LEAST_SHARE:
            parts[-1].append(text)
    return [text + (f" ({', '.join(within)})" if within else "") for text, within in zip(said, parts, strict=True)]


def in_lines(items: Sequence[str], width: int) -> str:
    """Arrange items side by side, as many per line as fit."""
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(GAP) + len(item) <= width:
            lines[-1] += GAP + item
        else:
            lines.append(item)
    return "\n".join(lines)


def printable(text: str) -> str:
    """Escape control characters, so that a terminal prints them instead of executing them."""
    return "".join(one if one.isprintable() else one.encode("unicode_escape").decode("ascii") for one in text)


def say_count_of(count: int, episodes: int) -> str:
    """Format a count of episodes with its exact 95% interval: 3 of 50, 6.0% (1.2% to 16.6%)."""
    low, high = exact_share(count, episodes)
    said = f"{say_percent(low, floor)} to {say_percent(high, ceil)}"
    return f"{count:,} of {episodes:,}, {say_percent(count / episodes)} ({said})"


def say_percent(value: float, rounded: Callable[[float], float] = round) -> str:
    """Format a fraction with at least two significant digits: 16.6%, 0.74%, 0%; interval ends are rounded outward."""
    percent = 100.0 * value
    if percent in (0.0, 100.0):
        return f"{percent:.0f}%"
    places = max(1, 1 - floor(log10(percent)))
    found = rounded(percent * 10**places) / 10**places
    return f"{min(found, 100.0):.{places}f}%"
