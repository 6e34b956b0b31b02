"""The file of a run from which `velocirl train --config` makes the same run again."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from velocirl.engine.disk.writing import write_whole

if TYPE_CHECKING:
    from velocirl.runs.directory import Plan, Run
    from velocirl.runs.groups import Group

CONFIG = "config.toml"  # in the directory of a run or of a group


def write_config(run: Run | Group, environment: str) -> None:
    """Write it into the directory of a run or group; `environment` is as one writes it on a command line."""
    description = run.description
    assert description.plan is not None  # noqa: S101 - every run that is trained has one
    text = config_text(environment, description.algorithm, description.plan, description.config)
    write_whole(run.files / CONFIG, [text.encode()])


def config_text(environment: str, algorithm: str, plan: Plan, config: Mapping[str, Any]) -> str:
    """The settings of a run as a TOML file."""
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
    """Plain values as the lines of a TOML file; what is None is left out, as TOML has no word for it."""
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
