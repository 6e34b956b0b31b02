"""Parsing of step counts: 10_000, 1e4 or a NumPy integer."""

from __future__ import annotations

from typing import Any

import numpy as np

STEPS = "a whole number of steps of at least 1"


def whole(value: Any) -> Any:
    """Convert a float without a fraction, such as 1e4, to an integer; return any other value unchanged."""
    return int(value) if isinstance(value, (float, np.floating)) and float(value).is_integer() else value


def require_count(name: str, value: Any, what: str | None = None) -> int:
    """Return a count of at least 1 as an integer; raise a ValueError that names it for any other value."""
    count = whole(value)
    integral = isinstance(count, (int, np.integer)) and not isinstance(count, bool)
    if not integral or count < 1:
        raise ValueError(f"{name} must be {what or ('at least 1' if integral else 'a whole number')}, got {value!r}")
    return int(count)
