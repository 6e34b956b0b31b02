"""Validation of saved agents: their environment and files, and whether they belong to an agent's training."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from velocirl.engine import registry
from velocirl.engine.disk.files import parse_json
from velocirl.engine.disk.writing import strict_json
from velocirl.runs.directory import Run
from velocirl.runs.memory_files import ROWS
from velocirl.runs.state_file import State
from velocirl.training.settings.config import as_plain
from velocirl.vector.given import GIVEN

if TYPE_CHECKING:
    from velocirl.training.agent import Agent

FREE = {"seed", "device", "threads"}  # settings that may differ within one training
RECORDED = "data:"  # name prefix of environments known only from recorded data


def named_environment(environment: str, file: str) -> str:
    """Return the environment that a file names; raises if that would import a module, as loading executes nothing."""
    if str(environment).startswith(GIVEN):
        raise ValueError(
            f"{file} was trained in an environment that was given as an object, {environment.removeprefix(GIVEN)!r}:"
            " give it again as env="
        )
    if str(environment).count(":") > 1:
        raise ValueError(
            f"{file} names {environment!r}, and making that would import a module; if you trust it, give env="
        )
    return environment


def require_known(environment: str, model: str, run: Run | None) -> None:
    """Raise if an agent was trained in an environment that is not registered here: files hold no code."""
    if ":" in environment or environment in registry.list_envs():
        return
    plan = None if run is None else run.description.plan
    file = "the file that defines it" if plan is None or plan.environment_file is None else plan.environment_file
    raise ValueError(
        f"{model} was trained in {environment!r}, which is no environment that is known here: import {file} first, or"
        " give the environment as env="
    )


def unasked_file(buffer_file: str | None, state: State, name: str) -> None:
    """Return None: a buffer file named in a saved file is never opened unasked. Raises if the file has buffer rows."""
    if buffer_file is not None and len(state.arrays.get(ROWS, ())):
        raise ValueError(
            f"{name} wants its memory in the file {buffer_file}: give buffer_file={buffer_file!r} if it may be made or"
            " written there, or buffer_file=None to have it in memory"
        )


def other_setting(document: Mapping[str, Any], agent: Agent) -> tuple[str, Any, Any] | None:
    """Return the first setting in which a saved agent differs from an agent: name, saved value, the agent's value.

    `document` has algorithm, environment and config, like a state's document or a run's description. The seed and the
    machine do not count.
    """
    theirs = {name: document.get(name) for name in ("algorithm", "environment")}
    ours = {"algorithm": agent.name, "environment": agent.source.id}
    config, known = parse_json(strict_json(as_plain(agent.config))), document.get("config")
    theirs |= {name: value for name, value in (known if isinstance(known, dict) else {}).items() if name not in FREE}
    names = [*theirs, *(name for name in config if name not in theirs and name not in FREE)]
    mine = {**config, **ours}
    return next(
        ((name, theirs.get(name), mine.get(name)) for name in names if theirs.get(name) != mine.get(name)), None
    )
