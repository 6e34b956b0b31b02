"""Warnings that point to the responsible line of the user's code."""

from __future__ import annotations

import sys
import warnings

OWN = __name__.partition(".")[0]


def warn_caller(message: str) -> None:
    """Warn at the nearest line outside velocirl, at any call depth."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == OWN:
        level, frame = level + 1, frame.f_back
    warnings.warn(message, stacklevel=level)
