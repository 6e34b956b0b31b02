"""Device names in settings: cpu, cuda, cuda:1, python."""

from __future__ import annotations

import re

GPU = re.compile(r"cuda(:\d{1,3})?")


def kind_of(device: str) -> str:
    """Return the kind of a device, without its number."""
    return "cuda" if GPU.fullmatch(device) else device


def number_of(device: str) -> int | None:
    """Return the number of a GPU; None if not specified."""
    found = GPU.fullmatch(device)
    return int(found[1][1:]) if found and found[1] else None
