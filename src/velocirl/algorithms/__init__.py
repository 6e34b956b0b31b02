"""Algorithms, one file each, and beside it what belongs to it: ppo.py, ppo_config.py, ppo_loss.py, ..."""

import importlib
import pkgutil


def load_algorithms() -> None:
    """Import every algorithm, which enters itself among those that are found by name."""
    names = [module.name for module in pkgutil.walk_packages(__path__, f"{__name__}.")]
    for name in names:
        # What belongs to an algorithm is imported by it when it is needed; some of it needs torch.
        if not any(name.startswith(f"{other}_") for other in names):
            importlib.import_module(name)
