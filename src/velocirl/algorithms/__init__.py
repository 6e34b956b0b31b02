"""Algorithms, one file each."""

import importlib
import pkgutil


def load_algorithms() -> None:
    """Import every algorithm, which enters itself among those that are found by name."""
    for module in pkgutil.walk_packages(__path__, f"{__name__}."):
        importlib.import_module(module.name)
