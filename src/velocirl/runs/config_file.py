"""Configuration file of a run: `velocirl train --config` repeats the run from it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from velocirl.engine.disk.writing import write_whole

if TYPE_CHECKING:
    from velocirl.runs.directory import Plan, Run
    from velocirl.runs.groups import Group

CONFIG = "config.toml"  # in the directory of a run or a group


def write_config(run: Run | Group, environment: str) -> None:
    """Write the file into the directory of a run or group; `environment` is spelled as on the command line."""
    description = run.description
    assert description.plan is not None  # noqa: S101 - every run that is trained has one
    text = config_text(environment, description.algorithm, description.plan, description.config)
    write_whole(run.files / CONFIG, [text.encode()])


def config_text(environment: str, algorithm: str, plan: Plan, config: Mapping[str, Any]) -> str:
    """Return the settings of a run as TOML text."""
    values = {
        "environment": environment,
        "algorithm": algorithm,
        "total_steps": plan.total_steps,
        "checkpoint_every": plan.checkpoint_every,
        "evaluate_every": plan.evaluate_every,
        "target_return": plan.target_return,
    }
    return f"# velocirl train --config {CONFIG}\n{as_toml(values)}\n{as_toml(config)}"


def as_toml(values: Mapping[str, Any]) -> str:
    """Format plain values as TOML lines; None is omitted, as TOML has no null."""
    return "".join(f"{name} = {_toml(value)}\n" for name, value in values.items() if value is not None)


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, Mapping):
        pairs = (f"{_toml_key(name)} = {_toml(one)}" for name, one in value.items() if one is not None)
        return f"{{{', '.join(pairs)}}}"
    if isinstance(value, str):
        escapes = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}
        return f'"{"".join(escapes.get(letter, letter) for letter in value)}"'
    return repr(value)


def _toml_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)
