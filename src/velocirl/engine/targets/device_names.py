"""The names of devices, as settings say them: cpu, cuda, cuda:1, python."""

from __future__ import annotations

import re

GPU = re.compile(r"cuda(:\d{1,3})?")


def kind_of(device: str) -> str:
    """The kind of a device, whichever of several it is."""
    return "cuda" if GPU.fullmatch(device) else device


def number_of(device: str) -> int | None:
    """Which of several GPUs is meant; None where that is not said."""
    found = GPU.fullmatch(device)
    return int(found[1][1:]) if found and found[1] else None
