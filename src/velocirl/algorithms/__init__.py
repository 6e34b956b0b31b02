"""Algorithms, one file each: a new one is a new file here, and is found by its name and by that of its class."""

import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path


@cache
def algorithm_modules() -> dict[str, str]:
    """Map each algorithm class to its module, found in the source files without importing them."""
    found = {}
    for room in pkgutil.iter_modules(__path__, f"{__name__}."):
        folder = Path(__path__[0]) / room.name.rpartition(".")[2]
        for file in sorted(folder.glob("[!_]*.py")):
            classes = re.findall(r"^class ([A-Z]\w*)\(\w+\):", file.read_text(encoding="utf-8"), re.MULTILINE)
            found |= {name: f"{room.name}.{file.stem}" for name in classes if not name.endswith("Config")}
    return found


def load_algorithms() -> None:
    """Import every algorithm, which registers it by name."""
    for module in set(algorithm_modules().values()):
        importlib.import_module(module)
