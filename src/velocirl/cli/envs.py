"""`velocirl envs`: which environments there are."""

from __future__ import annotations

import json as json_format

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete

from velocirl.bench.terminal import new_table
from velocirl.cli.console import make_console
from velocirl.engine import registry
from velocirl.engine.environment import Environment


def envs(json: bool = False) -> None:
    """List the environments that velocirl runs compiled.

    Args:
        json: Print JSON instead of a table.
    """
    found = [registry.find(one) for one in registry.list_envs()]
    if json:
        print(json_format.dumps([_described(environment) for environment in found], indent=1))
        return
    console = make_console()
    table = new_table(console)
    for name in _described(found[0]):
        table.add_column(name.replace("_", " "), justify="right" if name == "max_steps" else "left")
    for environment in found:
        table.add_row(*("" if value is None else str(value) for value in _described(environment).values()))
    console.print(table)
    console.print("Any of Gymnasium's, too: [bold]gym:ID[/bold]", highlight=False)


def _described(environment: Environment) -> dict[str, str | int | None]:
    return {
        "id": environment.id,
        "observation": describe_space(environment.observation),
        "action": describe_space(environment.action),
        "max_steps": environment.max_steps,
        "source": environment.source,
    }


def describe_space(space: gymnasium.Space) -> str:
    """A space in a few words: Box(4) float32, Box(1) -2..2, Discrete(6)."""
    if isinstance(space, Discrete):
        return f"Discrete({space.n})"
    if not isinstance(space, Box):
        return f"MultiDiscrete({', '.join(map(str, space.nvec))})"  # pyright: ignore[reportAttributeAccessIssue]
    shape = "x".join(map(str, space.shape))
    low, high = np.unique(space.low), np.unique(space.high)
    bounded = len(low) == len(high) == 1 and np.isfinite((low[0], high[0])).all()
    bounds = f" {low[0]:g}..{high[0]:g}" if bounded else ""
    return f"Box({shape}){bounds} {space.dtype}"
