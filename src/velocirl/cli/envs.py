"""`velocirl envs`: list of the environments."""

from __future__ import annotations

import importlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from rich.markup import escape

from velocirl.bench.reports.terminal import new_table
from velocirl.cli.parsing import Parser
from velocirl.engine import registry
from velocirl.engine.environment import Environment
from velocirl.monitor.console import make_console
from velocirl.monitor.words import say_count


def envs(arguments: Sequence[str]) -> None:
    """List the compiled environments."""
    parser = Parser("envs", "List the environments that run compiled, and the algorithms that have a preset for each.")
    parser.add_argument("--json", action="store_true", help="Print JSON")
    found = [registry.find(one) for one in registry.list_envs()]
    if "json" in parser.parse(arguments):
        described = [{**_described(one), "presets": _plain(one.presets)} for one in found]
        print(json.dumps(described, indent=1))
        return
    console = make_console()
    table = new_table(console)
    for name in (*_described(found[0]), "presets"):
        table.add_column(name.replace("_", " "), justify="right" if name in ("max_steps", "time_step") else "left")
    for environment in found:
        row = _described(environment)
        row["time_step"] = None if environment.time_step is None else f"{environment.time_step:g} s"
        if environment.source.startswith(f"{registry.BUILT_IN}."):
            row["source"] = "built in"  # JSON contains the full module name
        row["presets"] = ", ".join(_say_preset(name, preset) for name, preset in environment.presets.items())
        table.add_row(*("" if value is None else escape(str(value)) for value in row.values()))
    console.print(table)
    room = Path(importlib.import_module(registry.BUILT_IN).__path__[0])
    console.print(f"Each built-in one is a file in {room}", soft_wrap=True)
    console.print("Gymnasium's environments run too, as gym:ID")


def _described(environment: Environment) -> dict[str, str | float | None]:
    return {
        "id": environment.id,
        "observation": describe_space(environment.observation),
        "action": describe_space(environment.action),
        "max_steps": environment.max_steps,
        "time_step": environment.time_step,
        "source": environment.source,
    }


def _say_preset(algorithm: str, preset: Mapping[str, Any]) -> str:
    """Format an algorithm with the steps of its preset: ppo 200k."""
    total = preset.get("total_steps")
    return algorithm if total is None else f"{algorithm} {say_count(total)}"


def _plain(presets: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {algorithm: dict(preset) for algorithm, preset in presets.items()}


def describe_space(space: gymnasium.Space) -> str:
    """Format a space: Box(4), Box(1) -2..2, Box(84x84) 0..255 uint8, Discrete(6), MultiDiscrete(9 of 3)."""
    if isinstance(space, Discrete):
        return f"Discrete({space.n})"
    if isinstance(space, Dict):
        return f"Dict({', '.join(f'{name}: {describe_space(part)}' for name, part in space.spaces.items())})"
    if isinstance(space, Tuple):
        return f"Tuple({', '.join(map(describe_space, space.spaces))})"
    if isinstance(space, MultiBinary):
        return f"MultiBinary({'x'.join(map(str, space.shape))})"
    if not isinstance(space, Box):
        counts = space.nvec.tolist()  # pyright: ignore[reportAttributeAccessIssue] - the third kind: MultiDiscrete
        same = len(set(counts)) == 1
        return f"MultiDiscrete({f'{len(counts)} of {counts[0]}' if same else ', '.join(map(str, counts))})"
    low, high = np.unique(space.low), np.unique(space.high)
    bounded = len(low) == len(high) == 1 and np.isfinite((low[0], high[0])).all()
    bounds = f" {low[0]:g}..{high[0]:g}" if bounded else ""
    dtype = "" if space.dtype == np.float32 else f" {space.dtype}"
    return f"Box({'x'.join(map(str, space.shape))}){bounds}{dtype}"
